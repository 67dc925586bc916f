"""The tree of attempts: who owns, who holds, and what a delivery is to a lineage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.address import Geometry
from dataguard.errors import AttemptError, GeometryError, NotInRun, PlanError, SpanError
from dataguard.plan.attempts import AttemptPlan, AttemptTree, amend, attempt_digest, check_fork, in_force
from dataguard.plan.document import ALGORITHMS, BatchSize, Mixture, PlanDocument, Root
from dataguard.plan.steps import Steps
from dataguard.plan.withheld import Withheld
from tests.plan.small import MIXTURES, ONE, first_attempt, skip

ROOT = Root(
    manifest="m",
    seed=7,
    form="document",
    seq_len=None,
    lanes=4,
    window_blocks=256,
    shuffle="blocks",
    algorithms=ALGORITHMS,
)


def fork(number: int, parent: AttemptPlan, step: int, **lists) -> AttemptPlan:
    """A fork from a root attempt of batches of 8."""
    return replace(parent, number=number, parent=parent.number, fork_step=step, start_position=8 * step, **lists)


@pytest.fixture
def tree() -> AttemptTree:
    """Attempt 1 runs 0:60; 2 forks from it at 35 and runs to 70; 3 forks from it at 30 and dies at 33."""
    first = first_attempt((0, 8))
    return AttemptTree([first, fork(2, first, 35), fork(3, first, 30)])


NEXT_STEPS = {1: 60, 2: 70, 3: 33}


def test_the_newest_lineage_lacks_a_step_that_others_hold(tree) -> None:
    assert tree.newest == 3
    assert [each.number for each in tree.lineage()] == [1, 3]
    assert [each.number for each in tree.lineage(2)] == [1, 2]
    assert tree.children(1) == (2, 3)
    assert tree.children(3) == ()
    assert tree.holders(50, NEXT_STEPS) == (1, 2)
    with pytest.raises(NotInRun) as refused:
        tree.holder(50, NEXT_STEPS)
    assert str(refused.value) == (
        "step 50 was not delivered on the lineage of attempt 3\n"
        "  found: there it belongs to attempt 3, which holds steps 30:33; delivered by attempts 1, 2\n"
        "  next: ask with --attempt 2"
    )
    assert tree.holder(32, NEXT_STEPS) == 3
    assert tree.holder(29, NEXT_STEPS) == 1


def test_a_step_delivered_twice_is_live_once(tree) -> None:
    assert tree.holders(40, NEXT_STEPS) == (1, 2)
    assert tree.label(2, 40, NEXT_STEPS, leaf=2) == "live"
    assert tree.label(1, 40, NEXT_STEPS, leaf=2) == "abandoned"
    assert tree.label(1, 40, NEXT_STEPS, leaf=1) == "live"
    assert tree.label(1, 40, NEXT_STEPS) == "abandoned"
    assert tree.label(2, 40, NEXT_STEPS) == "abandoned"
    assert tree.label(1, 29, NEXT_STEPS) == "live"
    assert tree.label(1, 30, NEXT_STEPS) == "abandoned"


def test_what_a_dead_attempt_did_not_complete_is_unfinished(tree) -> None:
    assert tree.label(3, 32, NEXT_STEPS) == "live"
    assert tree.label(3, 33, NEXT_STEPS) == "unfinished"
    assert tree.label(1, 60, NEXT_STEPS, leaf=1) == "unfinished"
    assert tree.label(2, 35, {}, leaf=2) == "unfinished"
    assert tree.holders(33, NEXT_STEPS) == (1,)


def test_messages_speak_in_the_trainers_labels() -> None:
    first = first_attempt((0, 8))
    tree = AttemptTree([first, fork(2, first, 35)], first_label=1)
    with pytest.raises(NotInRun) as refused:
        tree.holder(59, {1: 50, 2: 40})
    assert "step 60 was not delivered" in str(refused.value)
    assert "holds steps 36:41; no attempt has delivered it" in str(refused.value)
    with pytest.raises(AttemptError, match="attempt 2 cannot have delivered step 35"):
        tree.label(2, 34, {1: 50, 2: 40})
    with pytest.raises(NotInRun, match="step 0 lies before the first step, 1"):
        tree.owner(-1)


def test_a_step_skipped_whole_is_held_by_nobody_in_mode_hole() -> None:
    first = first_attempt((0, 8), skips=[skip(16, 32)])
    assert [AttemptTree([first], skip_mode="hole").holders(step, {1: 9}) for step in (1, 2, 3, 4)] == [
        (1,),
        (),
        (),
        (1,),
    ]
    assert AttemptTree([first], skip_mode="jump").holders(2, {1: 9}) == (1,)


@given(st.integers(0, 2**32))
def test_owners_and_lineages_are_those_of_the_parent_links(seed) -> None:
    attempts = [first_attempt((0, 8))]
    for number in range(2, 9):
        seed, parent = divmod(seed, len(attempts))
        attempts.append(fork(number, attempts[parent], attempts[parent].fork_step + seed % 5))
    tree = AttemptTree(attempts)
    by_number = {attempt.number: attempt for attempt in attempts}
    for leaf in by_number:
        path = [leaf]
        while by_number[path[-1]].parent is not None:
            path.append(by_number[path[-1]].parent)
        assert [each.number for each in tree.lineage(leaf)] == path[::-1]
        steps = Steps(tree.lineage(leaf), lanes=1)
        for step in range(40):
            owner = next(number for number in path if by_number[number].fork_step <= step)
            assert tree.owner(step, leaf) == owner == steps.batch(step).attempt
            for number, attempt in by_number.items():
                if step >= attempt.fork_step:
                    expected = "live" if number == owner else "abandoned"
                    assert tree.label(number, step, dict.fromkeys(by_number, 99), leaf) == expected


def test_a_tree_that_does_not_hang_together_is_refused() -> None:
    first = first_attempt((0, 8))
    second = fork(2, first, 3)
    with pytest.raises(AttemptError, match="attempt 1 is there twice"):
        AttemptTree([first, first])
    with pytest.raises(AttemptError, match="forks from attempt 2, which is not there"):
        AttemptTree([first, fork(3, second, 4)])
    with pytest.raises(AttemptError, match="one root a run"):
        AttemptTree([first, replace(first, number=2)])
    with pytest.raises(NotInRun, match="no attempt of this run has begun"):
        _ = AttemptTree([]).newest
    with pytest.raises(NotInRun) as refused:
        AttemptTree([first, second]).attempt(7)
    assert "found: attempts 1, 2" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"number": 0}, "attempts count from 1"),
        ({"epochs": 0}, "of 0 epochs cannot be"),
        ({"fork_step": 3, "start_position": 24}, "has no parent"),
        ({"number": 2, "parent": 2}, "cannot fork from attempt 2"),
        ({"number": 2, "parent": 1, "fork_step": -1}, "begins at step -1"),
        ({"number": 2, "parent": 1, "fork_step": 9, "start_position": 8}, "no lower than the step"),
    ],
)
def test_an_attempt_that_cannot_be_is_refused(change, says) -> None:
    with pytest.raises(AttemptError) as refused:
        replace(first_attempt((0, 8)), **change)
    assert says in str(refused.value)


def test_lists_by_position_start_at_0_and_rise() -> None:
    for sizes in ((), ((1, 8),), ((0, 8), (0, 9)), ((0, 8), (9, 1), (5, 2))):
        with pytest.raises(PlanError, match="batch size list"):
            first_attempt(*sizes)
    with pytest.raises(PlanError, match="mixture list"):
        replace(first_attempt((0, 8)), mixtures=())


def test_world_size_and_microbatch_size_divide_every_batch_planned() -> None:
    geometry = Geometry(world_size=4, microbatch_size=2)
    first_attempt((0, 16), (160, 24), geometry=geometry)
    with pytest.raises(GeometryError) as refused:
        first_attempt((0, 16), (160, 20), geometry=geometry)
    assert "20 cannot be cut" in str(refused.value)
    late = replace(
        first_attempt((0, 10), (80, 16)), number=2, parent=1, fork_step=8, start_position=80, geometry=geometry
    )
    assert [entry.size for entry in late.planned_batch_sizes] == [16]


@pytest.mark.parametrize(
    ("position", "starts"), [(0, [0, 8, 20]), (7, [0, 8, 20]), (8, [8, 20]), (19, [8, 20]), (20, [20]), (99, [20])]
)
def test_the_entry_in_force_and_all_later_ones_are_kept(position, starts) -> None:
    entries = tuple(BatchSize(start=start, size=1) for start in (0, 8, 20))
    assert [entry.start for entry in in_force(entries, position)] == starts


def test_an_amendment_replaces_only_what_starts_where_it_does() -> None:
    entries = tuple(Mixture(start=start, manifest="m", weights={"web": 1}) for start in (0, 8, 20))
    for start, starts in ((8, [0, 8, 20]), (9, [0, 8, 9, 20]), (30, [0, 8, 20, 30])):
        amended = amend(entries, Mixture(start=start, manifest="new", weights={"web": 1}))
        assert [entry.start for entry in amended] == starts
        assert [entry.start for entry in amended if entry.manifest == "new"] == [start]


def test_a_fork_may_begin_from_its_parents_start_to_its_next_step() -> None:
    parent = fork(2, first_attempt((0, 8)), 35)
    for step in (35, 36, 60):
        check_fork(parent, step, 60)
    for step in (34, 61):
        with pytest.raises(AttemptError, match=f"no attempt can begin at step {step} from attempt 2"):
            check_fork(parent, step, 60)


def test_a_skip_names_a_range_and_an_event() -> None:
    with pytest.raises(SpanError, match="is empty"):
        skip(4, 4)
    with pytest.raises(AttemptError, match="event 0"):
        skip(4, 5, event=0)
    attempt = first_attempt((0, 8), skips=[skip(0, 9, event=5), skip(4, 12, event=2), skip(40, 50, event=3)])
    assert [each.event for each in attempt.skips_over(8, 10)] == [2, 5]
    assert [each.event for each in attempt.skips_over(9, 40)] == [2]
    assert attempt.skips_over(12, 40) == ()
    assert attempt.spans.spans == ((0, 12), (40, 50))


def test_the_digest_covers_what_decides_and_nothing_else() -> None:
    entries = (Withheld(shard="web/a", event=3, reason="x"), Withheld(shard="web/b", row=4, event=4, reason="y"))
    base = replace(first_attempt((0, 8), skips=[skip(5, 9), skip(20, 30, event=2)]), withheld=entries)
    digest = attempt_digest(ROOT, base)
    same = [
        replace(base, skips=(skip(20, 30, event=7, reason="other"), skip(5, 7), skip(6, 9))),
        replace(base, withheld=entries[::-1]),
        replace(base, withheld=(*entries, Withheld(shard="web/a", event=9, reason="again"))),
        replace(base, number=4, parent=1, fork_step=2, start_position=16),
    ]
    assert {attempt_digest(ROOT, each) for each in same} == {digest}
    other = [
        replace(base, skips=(skip(5, 9),)),
        replace(base, withheld=entries[:1]),
        replace(base, withheld=(entries[0], replace(entries[1], row=None))),
        replace(base, geometry=Geometry(world_size=2, microbatch_size=1)),
        replace(base, batch_sizes=(BatchSize(start=0, size=16),)),
        replace(base, epochs=1),
        replace(base, epochs=2),
        replace(base, mixtures=(Mixture(start=0, manifest="m", weights={"web": 1, "code": 1}),)),
    ]
    digests = {attempt_digest(ROOT, each) for each in other}
    assert len(digests | {digest}) == len(other) + 1


def test_the_first_attempt_takes_the_plans_lists() -> None:
    document = PlanDocument(root=ROOT, mixtures=MIXTURES, batch_sizes=(BatchSize(start=0, size=8),))
    first = AttemptPlan.first(document, geometry=ONE, skips=[skip(1, 2)])
    assert (first.number, first.parent, first.fork_step, first.start_position) == (1, None, 0, 0)
    assert (first.mixtures, first.batch_sizes) == (document.mixtures, document.batch_sizes)
    assert first.spans.spans == ((1, 2),)
