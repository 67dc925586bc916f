"""What does each check cost, in node-seconds, and what has one to type?

A replay of step s from a checkpoint whose first untrained step is c runs s - c + 1 steps, each for the time of a step
on all nodes (A9): "about one node-hour" is a guess that depends on all three. What is not known is not guessed: without
a step time, a checkpoint or the number of nodes the cost is not known, and the text says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

__all__ = ["Cost", "Costs", "cost_of", "how_to", "replay_node_seconds", "replay_steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What costs follow from, as far as it is known; steps in the trainer's labels.

    >>> Costs(step=9_001, checkpoint_before=8_900).num_replay_steps
    102
    """

    run: str = "RUN"
    """As one types it."""
    step: int | None = None
    """The step to look at: the event's peak."""
    checkpoint_before: int | None = None
    """First untrained step of the newest checkpoint before the event."""
    checkpoint_earlier: int | None = None
    """The same of an earlier one."""
    step_seconds: float | None = None
    """How long a step takes."""
    num_nodes: int | None = None
    """Nodes that a step takes."""

    @property
    def num_replay_steps(self) -> int | None:
        """Steps of one replay from the checkpoint before; None where one of the two is not known."""
        return _steps(self.step, self.checkpoint_before)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a check costs."""

    node_seconds: float | None
    """Seconds times nodes; 0 for what lies on disk already; None where it is not known."""
    text: str
    """How it was computed, or what is missing to compute it."""


def replay_steps(step: int, checkpoint: int) -> int:
    """Steps to run from a checkpoint (its first untrained step) to the end of a step.

    Raises
    ------
    ValueError
        The checkpoint was trained on the step already.

    Examples
    --------
    >>> replay_steps(9_001, 8_900), replay_steps(7, 7)
    (102, 1)
    """
    if checkpoint > step:
        raise ValueError(f"a checkpoint whose first untrained step is {checkpoint:,} has step {step:,} behind it")
    return step - checkpoint + 1


def replay_node_seconds(step: int, checkpoint: int, *, step_seconds: float, num_nodes: int) -> float:
    """What one replay costs (A9): (s - checkpoint + 1) x step time x nodes.

    >>> replay_node_seconds(9_001, 8_900, step_seconds=2.0, num_nodes=16) / 3_600
    0.9066666666666666
    """
    return replay_steps(step, checkpoint) * step_seconds * num_nodes


def cost_of(check: str, costs: Costs) -> Cost:
    """What a check costs, by its name (`dataguard.triage.diagnose.checks.CHECKS`)."""
    return _COSTS.get(check, _on_disk)(costs)


def how_to(check: str, costs: Costs) -> str:
    """What one types for a check."""
    return _HOW[check].format(run=costs.run, step="N" if costs.step is None else costs.step)


_HOW: Mapping[str, str] = {
    "plan_and_journal": "dataguard log {run}",
    "numerics_and_ranks": "log loss and local gradient norm on every rank (Monitor), or: "
    "dataguard telemetry import {run} FILE; then: dataguard triage {run} --step {step}",
    "machine_logs": "dataguard triage {run} --step {step} --evidence HOST=dmesg.txt",
    "optimizer_traces": "dataguard.torch.watch(monitor, model, optimizer) logs them; then: "
    "dataguard triage {run} --step {step}",
    "samples": "dataguard inspect {run} --step {step}",
    "canary": "on two hosts: dataguard canary {run} --load MODULE:NAME --loss MODULE:NAME -o HOST.json "
    "(--transform MODULE:NAME, where yours made the tensors); then: "
    "dataguard canary {run} --compare HOST.json",
    "replay": "from dataguard import Run; from dataguard.torch.experiment import experiment; "
    "experiment(Run.open('{run}'), {step}, load=load, loss=loss)",
}


def _steps(step: int | None, checkpoint: int | None) -> int | None:
    return None if step is None or checkpoint is None or checkpoint > step else replay_steps(step, checkpoint)


def _on_disk(_costs: Costs) -> Cost:
    return Cost(node_seconds=0.0, text="nothing is run: it reads what is on disk")


def _replay(costs: Costs) -> Cost:
    before = costs.num_replay_steps
    earlier = _steps(costs.step, costs.checkpoint_earlier)
    if before is None or costs.step_seconds is None or costs.num_nodes is None:
        return _not_known(costs, checkpoint=True)
    # Two batches on two nodes from each checkpoint, the first cell again for the baseline, and again in float32.
    parts = [f"6 x {before:,}"] + ([] if earlier is None else [f"4 x {earlier:,}"])
    steps = 6 * before + 4 * (earlier or 0)
    without = " (without an earlier checkpoint, of which none is known)" if earlier is None else ""
    return Cost(
        node_seconds=steps * costs.step_seconds * costs.num_nodes,
        text=f"({' + '.join(parts)}) steps x {costs.step_seconds:.3g} s x {_nodes(costs.num_nodes)}{without}",
    )


def _canary(costs: Costs) -> Cost:
    if costs.step_seconds is None:
        return _not_known(costs, checkpoint=False)
    return Cost(node_seconds=2 * costs.step_seconds, text=f"1 step x {costs.step_seconds:.3g} s on each of 2 nodes")


def _not_known(costs: Costs, *, checkpoint: bool) -> Cost:
    missing = ["the time of a step"] if costs.step_seconds is None else []
    if checkpoint:
        missing += ["the number of nodes"] if costs.num_nodes is None else []
        missing += ["the step"] if costs.step is None else []
        missing += ["a checkpoint before it"] if costs.num_replay_steps is None else []
    return Cost(node_seconds=None, text=f"not known: {', '.join(missing)} is missing")


def _nodes(count: int) -> str:
    return f"{count:,} node{'' if count == 1 else 's'}"


_COSTS: Mapping[str, Callable[[Costs], Cost]] = {
    "canary": _canary,
    "replay": _replay,
}
