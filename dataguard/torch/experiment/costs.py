"""What does an experiment cost (row A9, computed)? Told before anything is loaded."""

from __future__ import annotations

from dataguard.torch.experiment.answers import ExperimentCost

__all__ = ["cost_of"]

_FORWARD_OF_A_STEP = 1 / 3  # a backward pass costs about two forward passes


def cost_of(
    *,
    train_steps: int,
    measured_batches: int,
    forward_batches: int,
    seconds_per_step: float | None,
    num_nodes: int | None,
    sampled: float,
) -> ExperimentCost:
    """Node-seconds of an experiment, where what a step takes, and on how many nodes, is known.

    Parameters
    ----------
    sampled
        Share of a step's microbatches that is used.

    Examples
    --------
    >>> known = {"seconds_per_step": 2.0, "num_nodes": 4, "sampled": 1.0}
    >>> cost_of(train_steps=6, measured_batches=3, forward_batches=3, **known).text
    '10.0 steps x 2 s x 4 nodes = 80 node-seconds (0.02 node-hours)'
    """
    steps = (train_steps + measured_batches + forward_batches * _FORWARD_OF_A_STEP) * sampled
    if seconds_per_step is None or num_nodes is None:
        missing = [
            what
            for what, known in (("seconds of a step", seconds_per_step), ("number of nodes", num_nodes))
            if known is None
        ]
        seconds, text = None, f"as much as {steps:.1f} steps of the run; not known: {', '.join(missing)}"
    else:
        seconds = steps * seconds_per_step * num_nodes
        text = (
            f"{steps:.1f} steps x {seconds_per_step:.3g} s x {num_nodes:,} nodes = {seconds:,.0f} node-seconds "
            f"({seconds / 3600:,.2f} node-hours)"
        )
    return ExperimentCost(
        train_steps=train_steps,
        measured_batches=measured_batches,
        forward_batches=forward_batches,
        seconds_per_step=seconds_per_step,
        nodes=num_nodes,
        node_seconds=seconds,
        text=text,
    )
