"""How does a command run an experiment with functions that are named, as in ``triage RUN --experiment MODULE``?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataguard.core.spikes import SpikeEvent
from dataguard.run.run import Run
from dataguard.torch.experiment.answers import ExperimentReport
from dataguard.torch.experiment.runner import experiment
from dataguard.torch.making import Transform
from dataguard.torch.replaying import imported

__all__ = ["run_experiment"]


def run_experiment(
    run: Run,
    step: int,
    module_name: str,
    *,
    attempt: int | None = None,
    event: SpikeEvent | None = None,
    checkpoints: Mapping[int, str | Path] | None = None,
    earlier: int | None = None,
    roots: Mapping[str, str] | None = None,
    node: str | None = None,
    others: Sequence[str | Path] = (),
    by: str | None = None,
    record: bool = True,
    dry_run: bool = False,
) -> ExperimentReport:
    """Import a module and replay a step with its functions (`experiment`).

    Parameters
    ----------
    module_name
        It has ``load`` and ``loss``, and may have ``transform``, ``collate`` and ``update``, as `experiment` takes
        them. A transform that is called otherwise is found where the attempt recorded that name. Modules of the working
        directory are found as well.

    Raises
    ------
    UsageError
        The module cannot be imported, or lacks ``load`` or ``loss``.
    """
    load, loss = imported(f"{module_name}:load"), imported(f"{module_name}:loss")
    module: Any = imported(f"{module_name}:__dict__")
    return experiment(
        run,
        step,
        load=load,
        loss=loss,
        transform=module.get("transform", _recorded(run, step, attempt, module)),
        collate=module.get("collate"),
        update=module.get("update"),
        attempt=attempt,
        event=event,
        checkpoints=checkpoints,
        earlier=earlier,
        roots=roots,
        node=node,
        others=others,
        by=by,
        record=record,
        dry_run=dry_run,
    )


def _recorded(run: Run, step: int, attempt: int | None, module: Mapping[str, Any]) -> Transform | None:
    """The function of the module that is called as the attempt's transform was; None where there is none."""
    tree = run.attempts()
    identity = run.begun(tree.owner(run.step(step), tree.lineage(attempt)[-1].number)).transform or None
    if identity is None or identity.name.startswith("dataguard."):
        return None
    found: Transform | None = module.get(identity.name.partition(":")[2])
    return found
