"""Where NaN stood first: of what each rank saw by itself, before its neighbours made it theirs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Finite
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.telemetry_reading import TELEMETRY_ROW
from dataguard.triage.evidence import finite_of

NAN = math.nan


def event(start: int, stop: int) -> SpikeEvent:
    return SpikeEvent(
        event_class=EventClass.HARD_FAULT, start=start, stop=stop, peak=start, size_nats=None, sigmas=None
    )


def rows(*values: tuple[int, int, str, float]) -> NDArray[np.void]:
    """Of (step, rank, name, value)."""
    made = np.zeros(len(values), TELEMETRY_ROW)
    made["slot"] = -1
    for place, (step, rank, name, value) in enumerate(values):
        made[["step", "rank", "name", "value"]][place] = (step, rank, name.encode(), value)
    return made


def losses(odd: dict[tuple[int, int], float], *, ranks: int = 4, steps: range = range(4, 9)) -> NDArray[np.void]:
    return rows(
        *((step, rank, "loss", odd.get((step, rank), 2.0 + 0.01 * rank)) for step in steps for rank in range(ranks))
    )


def test_one_rank_and_all_of_them_a_step_later() -> None:
    """Rank 2 is first at step 6; its gradient made the weights of all NaN, and step 7 says nothing of ranks."""
    seen = losses({(6, 2): NAN, **{(7, rank): NAN for rank in range(4)}})
    answer, rank, texts = finite_of(seen, event(6, 9))
    assert (answer, rank) == (Finite.ONE_RANK, 2)
    assert "step 6: loss of rank 2 is nan" in texts
    late, none, _ = finite_of(seen, event(8, 9))  # an event that was noticed late is asked from the step before
    assert (late, none) == (Finite.SEVERAL_RANKS, None)


def test_labels_that_begin_with_one() -> None:
    seen = losses({(6, 2): math.inf})
    assert finite_of(seen, event(7, 8), first_label=1)[:2] == (Finite.ONE_RANK, 2)
    assert any(text.startswith("step 7: ") for text in finite_of(seen, event(7, 8), first_label=1)[2])


def test_several_ranks_and_none() -> None:
    assert finite_of(losses({(6, 1): NAN, (6, 3): NAN}), event(6, 7))[0] is Finite.SEVERAL_RANKS
    assert finite_of(losses({}), event(6, 7))[0] is Finite.EVERYWHERE


def test_a_loss_that_was_reduced_says_nothing_of_ranks() -> None:
    reduced = rows(*((step, rank, "loss", NAN if step == 6 else 2.0) for step in range(4, 8) for rank in range(4)))
    answer, _, texts = finite_of(reduced, event(6, 7))
    assert answer is Finite.UNKNOWN
    assert any("reduced before it was logged" in text for text in texts)
    own = rows(*((6, rank, "local_grad_norm/blocks.3", NAN if rank == 1 else 1.0) for rank in range(4)))
    assert finite_of(np.concatenate([reduced, own]), event(6, 7))[:2] == (Finite.ONE_RANK, 1)


def test_values_after_the_reduction_do_not_count() -> None:
    after = rows(*((6, rank, "grad_norm", NAN) for rank in range(4)))
    assert finite_of(np.concatenate([losses({(6, 3): NAN}), after]), event(6, 7))[:2] == (Finite.ONE_RANK, 3)


def test_ranks_that_logged_nothing_could_be_the_odd_one() -> None:
    two = losses({(6, 1): NAN}, ranks=2)
    answer, rank, texts = finite_of(two, event(6, 7), world_size=8)
    assert (answer, rank) == (Finite.UNKNOWN, 1)
    assert any("6 of 8 ranks logged nothing" in text for text in texts)
    assert finite_of(losses({}, ranks=2), event(6, 7), world_size=8)[0] is Finite.UNKNOWN
    assert finite_of(losses({(6, 0): NAN, (6, 1): NAN}, ranks=2), event(6, 7), world_size=8)[0] is Finite.SEVERAL_RANKS


def test_nothing_logged_is_unknown_and_samples_are_no_ranks() -> None:
    assert finite_of(rows(), event(6, 7))[0] is Finite.UNKNOWN
    samples = losses({(6, 2): NAN})
    samples["slot"] = 5
    assert finite_of(samples, event(6, 7))[0] is Finite.UNKNOWN
