"""Steps of random lineages against a walk over every position, and the examples that must come out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.core.address import Geometry
from dataguard.errors import AttemptError, GeometryError, NotInRun, PlanError, SpanError
from dataguard.plan.attempts import AttemptPlan, Skip
from dataguard.plan.document import BatchSize, Mixture
from dataguard.plan.skips import SkippedBy, SkipRange
from dataguard.plan.stages import LARGEST_POSITION
from dataguard.plan.steps import Located, Steps, label_of_step, step_of_label
from tests.plan.small import MIXTURES, ONE, first_attempt, skip
from tests.twins.steps import grid, in_slots, is_skipped, walk

FAR = 30  # steps walked beyond the last fork


def spans(event: int) -> st.SearchStrategy[Skip]:
    return st.builds(
        lambda start, length, event: skip(start, start + length, event=event, reason=f"reason {event}"),
        st.integers(0, 200),
        st.integers(1, 50),
        st.integers(event, event + 2),
    )


@st.composite
def lineages(draw: st.DrawFn) -> tuple[list[AttemptPlan], int, str]:
    """A random lineage out of a random tree: (attempts root first, lanes, skip mode)."""
    lanes = draw(st.sampled_from([1, 2, 4, 8]))
    mode = draw(st.sampled_from(["jump", "hole"]))
    starts = sorted({0, *draw(st.lists(st.integers(1, 150), max_size=3))})
    sizes = [(start, draw(st.integers(1, 16))) for start in starts]
    chains = [[first_attempt(*sizes, skips=draw(st.lists(spans(1), max_size=3)))]]
    for number in range(2, draw(st.integers(2, 6))):
        parents = draw(st.sampled_from(chains))
        fork_step = parents[-1].fork_step + draw(st.integers(0, 8))
        child = Steps(parents, lanes=lanes, skip_mode=mode).fork(
            number=number,
            fork_step=fork_step,
            parent_next_step=fork_step + draw(st.integers(0, 3)),
            geometry=ONE,
            skips=draw(st.lists(spans(number), max_size=3)),
            global_batch=draw(st.none() | st.integers(1, 16)),
        )
        chains.append([*parents, child])
    return chains[-1], lanes, mode


@settings(max_examples=150)
@given(lineages())
def test_every_question_has_the_answer_of_the_walk(lineage) -> None:
    attempts, lanes, mode = lineage
    steps = Steps(attempts, lanes=lanes, skip_mode=mode)
    stop_step = attempts[-1].fork_step + FAR
    found = walk(attempts, mode, stop_step)
    cells = grid(attempts[-1].batch_sizes, found.walked)
    assert [found.starts[each.number] for each in attempts] == [each.start_position for each in attempts]

    delivered: dict[int, tuple[int, int]] = {}
    stop = 0
    for step in range(stop_step):
        positions = found.steps[step]
        padding = [position in found.skipped for position in positions]
        assert steps.start_of(step) == stop
        assert steps.size_of(step) == len(positions)
        stop = positions[-1] + 1
        if all(padding):
            assert mode == "hole"
            refusal = steps.skipped(step)
            assert refusal is not None
            assert refusal.positions == (positions[0], stop)
            with pytest.raises(NotInRun, match="skipped"):
                steps.batch(step)
            continue
        assert steps.skipped(step) is None
        batch = steps.batch(step)
        assert batch.positions.tolist() == in_slots(positions, lanes)
        assert batch.positions.dtype == np.int64
        assert batch.skipped.tolist() == [p in found.skipped for p in batch.positions.tolist()]
        assert (batch.step, batch.attempt, batch.size) == (step, found.attempt_of[step], len(positions))
        assert (batch.first_position, batch.stop_position) == (positions[0], stop)
        assert batch.batch == cells[positions[0]]
        for slot, position in enumerate(batch.positions.tolist()):
            if position not in found.skipped:
                assert position not in delivered, "no position is delivered twice"
                delivered[position] = (step, slot)

    for position in range(found.walked):
        answer = steps.locate(position)
        assert steps.batch_index(position) == cells[position]
        if position in found.skipped:
            assert isinstance(answer, SkippedBy)
            owner = next(each for each in attempts if each.number == found.skipped[position])
            assert answer.attempt == owner.number
            assert answer.events == tuple(
                sorted({each.event for each in owner.skips if each.start <= position < each.stop})
            )
            assert position not in delivered
        else:
            assert isinstance(answer, Located)
            assert (answer.step, answer.slot) == delivered[position], "every position lies in one step or in a skip"
            assert (answer.attempt, answer.position) == (found.attempt_of[answer.step], position)
            assert answer.batch == steps.batch(answer.step).batch


@settings(max_examples=60)
@given(lineages(), st.integers(0, 30), st.integers(1, 8))
def test_ranges_of_steps_and_batches_are_those_of_the_walk(lineage, start, length) -> None:
    attempts, lanes, mode = lineage
    steps = Steps(attempts, lanes=lanes, skip_mode=mode)
    stop_step = max(attempts[-1].fork_step, start + length) + FAR
    found = walk(attempts, mode, stop_step)
    cells = grid(attempts[-1].batch_sizes, found.walked)

    first, last = found.steps[start][0], found.steps[start + length - 1][-1]
    by_steps = steps.skip_of_steps(start, start + length)
    assert by_steps.positions == steps.span_of_steps(start, start + length) == (first, last + 1)
    assert by_steps.steps == (start, start + length)
    assert by_steps.batches == (cells[first], cells[last] + 1)

    owner_of = {position: step for step, all_of in found.steps.items() for position in all_of}
    if start + length <= cells[-1]:
        by_batches = steps.skip_of_batches(start, start + length)
        inside = [p for p, cell in enumerate(cells) if start <= cell < start + length]
        assert by_batches.positions == (inside[0], inside[-1] + 1)
        assert by_batches.batches == (start, start + length)
        holding = {owner_of[p] for p in inside if p not in found.skipped}
        assert by_batches.steps == ((min(holding), max(holding) + 1) if holding else None)
    for batch in range(start, min(start + length, cells[-1])):
        inside = [p for p, cell in enumerate(cells) if cell == batch]
        assert steps.positions_of_batch(batch) == (inside[0], inside[-1] + 1)
        holding = sorted({owner_of[p] for p in inside if p not in found.skipped})
        answer = steps.steps_of_batch(batch)
        if holding:
            assert answer == range(holding[0], holding[-1] + 1)
        else:
            assert isinstance(answer, SkippedBy)
            assert answer.events


@settings(max_examples=60)
@given(lineages())
def test_the_next_delivered_step_is_the_first_with_an_unskipped_position(lineage) -> None:
    attempts, lanes, mode = lineage
    steps = Steps(attempts, lanes=lanes, skip_mode=mode)
    found = walk(attempts, mode, attempts[-1].fork_step + 120)
    alive = [step for step, all_of in found.steps.items() if not all(p in found.skipped for p in all_of)]
    for step in range(alive[-1]):
        assert steps.next_delivered(step) == min(each for each in alive if each >= step)


@settings(max_examples=60)
@given(lineages(), st.randoms(use_true_random=False))
def test_order_and_overlap_of_skips_do_not_matter(lineage, random) -> None:
    attempts, lanes, mode = lineage
    other = []
    for attempt in attempts:
        pieces = []
        for each in attempt.skips:
            if each.stop > each.start + 1:
                cut = random.randrange(each.start + 1, each.stop)
                pieces += [replace(each, stop=cut), replace(each, start=cut)]
        pieces += list(attempt.skips)
        random.shuffle(pieces)
        other.append(replace(attempt, skips=tuple(pieces)))
        assert all(is_skipped(attempt, p) == is_skipped(other[-1], p) for p in range(260))
    ours, theirs = (Steps(chain, lanes=lanes, skip_mode=mode) for chain in (attempts, other))
    for step in range(attempts[-1].fork_step + FAR):
        if ours.skipped(step) is not None:
            assert theirs.skipped(step) is not None
            continue
        assert ours.batch(step).positions.tolist() == theirs.batch(step).positions.tolist()
        assert ours.batch(step).skipped.tolist() == theirs.batch(step).skipped.tolist()


@settings(max_examples=60)
@given(lineages())
def test_an_attempt_on_the_lineage_keeps_what_it_planned(lineage) -> None:
    attempts, lanes, mode = lineage
    steps = Steps(attempts, lanes=lanes, skip_mode=mode)
    for i, attempt in enumerate(attempts):
        alone = Steps(attempts[: i + 1], lanes=lanes, skip_mode=mode)
        assert steps.up_to(attempt.number).attempts == alone.attempts
        for position in range(attempt.start_position, attempt.start_position + 60):
            assert steps.locate(position, attempt=attempt.number) == alone.locate(position)


def test_a_fork_with_another_batch_size_and_a_skip() -> None:
    first = first_attempt((0, 8))
    steps = Steps([first], lanes=1)
    assert steps.span_of_steps(40, 45) == (320, 360)
    second = steps.fork(
        number=2, fork_step=30, parent_next_step=40, geometry=ONE, skips=[skip(320, 360)], global_batch=16
    )
    assert second.start_position == 240
    steps = Steps([first, second], lanes=1)
    assert steps.batch(34).positions.tolist() == list(range(304, 320))
    assert steps.batch(35).positions.tolist() == list(range(360, 376))


def test_a_skip_before_an_attempts_start_changes_nothing() -> None:
    first = first_attempt((0, 8))
    range_skipped = Steps([first], lanes=1).skip_of_steps(40, 45)
    assert range_skipped.positions == (320, 360)
    second = Steps([first], lanes=1).fork(
        number=2, fork_step=100, parent_next_step=100, geometry=ONE, skips=[skip(320, 360)]
    )
    steps = Steps([first, second], lanes=1)
    assert range_skipped.effect_from(second.start_position) == "none"
    assert range_skipped.effect_from(320) == "all"
    assert range_skipped.effect_from(359) == "part"
    assert steps.batch(100).positions.tolist() == list(range(800, 808))
    assert steps.batch(40).positions.tolist() == list(range(320, 328))
    assert isinstance(steps.locate(330), Located)


def test_four_ranks_resume_at_35_and_jump_over_five_steps() -> None:
    geometry = Geometry(world_size=4, microbatch_size=2)
    first = first_attempt((0, 16), geometry=geometry)
    asked = Steps([first], lanes=4).skip_of_steps(40, 45)
    assert asked == SkipRange(attempt=1, steps=(40, 45), batches=(40, 45), positions=(640, 720))
    spike = skip(*asked.positions, event=4, reason="loss spike")
    second = Steps([first], lanes=4).fork(
        number=2,
        fork_step=35,
        parent_next_step=60,
        geometry=Geometry(world_size=2, microbatch_size=2),
        skips=[spike],
    )
    steps = Steps([first, second], lanes=4)
    assert [steps.batch(step).batch for step in (34, 35, 39, 40, 42)] == [34, 35, 39, 45, 47]
    assert steps.batch(42).attempt == 2
    assert steps.up_to(1).batch(42).batch == 42
    answer = steps.steps_of_batch(42)
    assert isinstance(answer, SkippedBy)
    assert (answer.events, answer.reasons) == ((4,), ("loss spike",))
    assert str(answer) == "positions 672:688 skipped in attempt 2 by event 4, because: loss spike"
    where = steps.locate(700)
    assert isinstance(where, SkippedBy)
    assert str(where) == "position 700 skipped in attempt 2 by event 4, because: loss spike"
    assert steps.steps_of_batch(47) == range(42, 43)
    again = steps.skip_of_batches(40, 45)
    assert again.steps is None
    assert again.positions == (640, 720)
    assert steps.skip_of_steps(38, 42).positions == (608, 752), "an earlier skip between its steps is part of a range"


def test_holes_keep_the_step_numbers_of_what_follows() -> None:
    first = first_attempt((0, 8), skips=[skip(8, 16, event=2), skip(20, 26, event=3, reason="odd"), skip(30, 34)])
    steps = Steps([first], lanes=2, skip_mode="hole", first_label=1)
    assert [steps.next_delivered(step) for step in range(4)] == [0, 2, 2, 3]
    with pytest.raises(NotInRun) as refused:
        steps.batch(1)
    assert str(refused.value) == (
        "step 2 was not delivered: all its positions are skipped\n"
        "  found: positions 8:16 skipped in attempt 1 by event 2, because: spike\n"
        "  next: the next step that is delivered is 3"
    )
    assert steps.batch(2).positions.tolist() == [16, 18, 20, 22, 17, 19, 21, 23]
    assert steps.batch(2).skipped.tolist() == [False, False, True, True, False, False, True, True]
    where = steps.locate(22)
    assert isinstance(where, SkippedBy)
    assert where.reasons == ("odd",)
    assert steps.batch(4).positions.tolist() == [32, 34, 36, 38, 33, 35, 37, 39]


def test_a_batch_size_that_changes_inside_a_batch_waits_for_the_next() -> None:
    steps = Steps([first_attempt((0, 8), (10, 3), (14, 5))], lanes=1)
    assert [steps.batch(step).positions.tolist()[0] for step in range(4)] == [0, 8, 16, 21]
    assert [steps.batch(step).size for step in range(4)] == [8, 8, 5, 5]


def test_a_range_that_reaches_past_a_later_mixture_says_so() -> None:
    mixtures = (*MIXTURES, Mixture(start=100, manifest="m", weights={"web": 2, "code": 1}))
    steps = Steps([replace(first_attempt((0, 10)), mixtures=mixtures)], lanes=1)
    assert steps.skip_of_steps(8, 11).later_mixtures == (100,)
    assert steps.skip_of_steps(8, 10).later_mixtures == ()
    assert steps.skip_of_steps(10, 12).later_mixtures == ()


def test_a_fork_takes_its_parents_lists_and_amends_them_at_its_start() -> None:
    first = replace(first_attempt((0, 8), (160, 32), (640, 64)))
    steps = Steps([first], lanes=1)
    second = steps.fork(
        number=2,
        fork_step=10,
        parent_next_step=12,
        geometry=ONE,
        global_batch=16,
        mixture=("m2", {"code": 3}),
    )
    assert [(each.start, each.size) for each in second.batch_sizes] == [(0, 8), (80, 16), (160, 32), (640, 64)]
    assert [(each.start, each.manifest) for each in second.mixtures] == [(0, "m"), (80, "m2")]
    third = Steps([first, second], lanes=1).fork(
        number=3, fork_step=10, parent_next_step=10, geometry=ONE, global_batch=4
    )
    assert [(each.start, each.size) for each in third.batch_sizes] == [(0, 8), (80, 4), (160, 32), (640, 64)]
    assert Steps([first, second, third], lanes=1).batch(10).attempt == 3


@pytest.mark.parametrize(("fork_step", "fits"), [(34, False), (35, True), (60, True), (61, False)])
def test_a_fork_lies_between_its_parents_start_and_next_step(fork_step, fits) -> None:
    first = first_attempt((0, 8))
    second = Steps([first], lanes=1).fork(number=2, fork_step=35, parent_next_step=50, geometry=ONE)
    steps = Steps([first, second], lanes=1, first_label=1)
    if fits:
        third = steps.fork(number=3, fork_step=fork_step, parent_next_step=60, geometry=ONE)
        assert third.start_position == 8 * fork_step
        return
    with pytest.raises(AttemptError) as refused:
        steps.fork(number=3, fork_step=fork_step, parent_next_step=60, geometry=ONE)
    assert f"step {fork_step + 1} from attempt 2" in str(refused.value)
    assert "allowed: a step from 36 to 61, both included" in str(refused.value)
    assert ("resume from a state of attempt 1" in str(refused.value)) == (fork_step < 35)


def test_a_geometry_must_divide_every_batch_size_still_to_come() -> None:
    first = first_attempt((0, 9), (90, 16), geometry=ONE)
    steps = Steps([first], lanes=1)
    with pytest.raises(GeometryError, match="9 cannot be cut into 2 ranks"):
        steps.fork(number=2, fork_step=5, parent_next_step=20, geometry=Geometry(world_size=2, microbatch_size=1))
    with pytest.raises(GeometryError, match="16 cannot be cut into 3 ranks"):
        steps.fork(number=2, fork_step=5, parent_next_step=20, geometry=Geometry(world_size=3, microbatch_size=1))
    steps.fork(number=2, fork_step=10, parent_next_step=20, geometry=Geometry(world_size=2, microbatch_size=4))


def test_what_is_no_lineage_is_refused() -> None:
    first = first_attempt((0, 8))
    second = Steps([first], lanes=1).fork(number=2, fork_step=5, parent_next_step=9, geometry=ONE)
    third = Steps([first, second], lanes=1).fork(number=3, fork_step=7, parent_next_step=9, geometry=ONE)
    with pytest.raises(AttemptError, match="no attempts"):
        Steps([], lanes=1)
    with pytest.raises(AttemptError, match="begins with the root"):
        Steps([second], lanes=1)
    with pytest.raises(AttemptError, match="attempt 3 does not follow attempt 1"):
        Steps([first, third], lanes=1)
    with pytest.raises(AttemptError) as refused:
        Steps([first, replace(second, start_position=48)], lanes=1)
    assert "attempt 2 cannot begin at position 48" in str(refused.value)
    assert "allowed: position 40" in str(refused.value)
    with pytest.raises(PlanError, match="power of two"):
        Steps([first], lanes=3)
    with pytest.raises(NotInRun, match="attempt 9 is not on the lineage"):
        Steps([first, second], lanes=1).up_to(9)


def test_what_lies_outside_the_run_is_refused() -> None:
    steps = Steps([first_attempt((0, 8))], lanes=1, first_label=1)
    for ask in (steps.batch, steps.start_of, steps.skipped, steps.next_delivered):
        with pytest.raises(NotInRun, match="step 0 is not in this run"):
            ask(-1)
    for ask in (steps.locate, steps.batch_index):
        with pytest.raises(NotInRun, match="position -1"):
            ask(-1)
    with pytest.raises(NotInRun, match="batch -1"):
        steps.positions_of_batch(-1)
    with pytest.raises(SpanError, match="is empty"):
        steps.span_of_steps(4, 4)
    with pytest.raises(SpanError, match="runs backwards"):
        steps.skip_of_batches(4, 3)
    assert steps.batch((LARGEST_POSITION // 8) - 1).stop_position == LARGEST_POSITION
    with pytest.raises(NotInRun, match="beyond the largest position"):
        steps.batch(LARGEST_POSITION // 8)


def test_labels_are_turned_into_steps_and_back() -> None:
    assert [step_of_label(label, 1) for label in (1, 2)] == [0, 1]
    assert [label_of_step(step, 1) for step in (0, 1)] == [1, 2]
    assert step_of_label(0, 0) == 0
    with pytest.raises(NotInRun, match="steps count from 1"):
        step_of_label(0, 1)


def test_far_steps_are_exact_and_reached_without_a_walk() -> None:
    sizes = tuple(BatchSize(start=i * 1_000_003, size=7 + i) for i in range(50))
    skips = [skip(i * 5_000_011 + 3, i * 5_000_011 + 1_000, event=i + 1) for i in range(1_000)]
    attempt = AttemptPlan(number=1, geometry=ONE, mixtures=MIXTURES, batch_sizes=sizes, skips=tuple(skips))
    steps = Steps([attempt], lanes=8)
    for step in (10**15, 10**15 + 1, 10**12, 3):
        batch = steps.batch(step)
        assert steps.start_of(step + 1) == batch.stop_position
        for slot in (0, batch.size - 1):
            where = steps.locate(int(batch.positions[slot]))
            assert isinstance(where, Located)
            assert (where.step, where.slot) == (step, slot), "and a walk over 10^15 steps would not end"
