"""Is a run hardened before it begins? Of a run or of a file of facts: 22 points, and how far back checkpoints reach."""

from __future__ import annotations

from dataguard.core.trainer import CheckpointFacts, TrainerFacts
from dataguard.run.run import Run
from dataguard.triage.preflight.answers import PreflightAnswer
from dataguard.triage.preflight.known import Known
from dataguard.triage.preflight.points import judge
from dataguard.triage.preflight.seen import seen_of_run
from dataguard.triage.respond.described import facts_of, merged
from dataguard.triage.respond.retention import REWIND_STEPS, advise_retention, detection_delay

__all__ = ["preflight"]


def preflight(
    subject: Run | TrainerFacts,
    *,
    of: str = "",
    facts: TrainerFacts | None = None,
    attempt: int | None = None,
    rewind_steps: int = REWIND_STEPS,
    delay_steps: int | None = None,
) -> PreflightAnswer:
    """Judge every point by what is known.

    Parameters
    ----------
    subject
        A run: what it has seen itself, and what its trainer said of itself in the journal; or just facts.
    of
        What to call the subject, where it is no run.
    facts
        Beside those of a run's journal; they count as the latest.
    attempt
        Of a run: the lineage to look at, by default the newest leaf's.
    rewind_steps, delay_steps
        How far a rewind goes back, and what passes until an event is told; see `advise_retention`. Default of the
        second: that of the default detector, where the run logs its loss.

    Raises
    ------
    NotInRun
        The run has no such attempt.
    RunDamaged
        Its record or telemetry cannot be trusted.

    Examples
    --------
    >>> from dataguard.core.trainer import OptimizerFacts
    >>> answer = preflight(TrainerFacts(optimizer=OptimizerFacts(clip_norm=1.0, weight_decay=0.0)))
    >>> answer.num_pass, answer.num_fail, answer.num_not_known
    (2, 1, 19)
    """
    if isinstance(subject, TrainerFacts):
        known = Known(facts=merged([subject, *([facts] if facts else [])]))
        notes: tuple[str, ...] = ()
        leaf = None
    else:
        seen, notes = seen_of_run(subject, attempt)
        said = facts_of(subject.read().entries)
        known = Known(facts=merged([said, *([facts] if facts else [])]), seen=seen)
        tree = subject.attempts()
        leaf = attempt if attempt is not None else (tree.newest if len(tree) else None)
        of = of or str(subject.path)
    points = judge(known)
    states = [point.state for point in points]
    return PreflightAnswer(
        of=of,
        attempt=leaf,
        points=points,
        num_pass=states.count("pass"),
        num_fail=states.count("fail"),
        num_not_known=states.count("not known"),
        retention=advise_retention(
            _checkpoints(known),
            rewind_steps=rewind_steps,
            delay_steps=_delay(known) if delay_steps is None else delay_steps,
            detector=None if delay_steps is not None else "default",
        ),
        notes=notes,
    )


def _delay(known: Known) -> int | None:
    """Of the default detector at the distance at which the run logs its loss; None where it does not."""
    seen = known.seen
    return None if seen is None or seen.loss_every is None else detection_delay(seen.loss_every)


def _checkpoints(known: Known) -> CheckpointFacts:
    """The facts with the distance that the run has seen."""
    said = known.facts.checkpoints
    if known.seen is None or known.seen.checkpoint_every is None:
        return said
    return CheckpointFacts(every_steps=known.seen.checkpoint_every, num_kept=said.num_kept)
