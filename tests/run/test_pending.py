"""The fold of all events: held against a slow twin that keeps nothing but sets, for any order of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.run.events import Event, Proposed, Quarantined, Released, Revoked, RunCreated, SkipAdded
from dataguard.run.journal import Entry
from dataguard.run.pending import Pending, fold, revoked_events, withholding_event

DIGEST = "0123456789abcdef" * 4
LISTS: dict[str, list[tuple[str, int | None]]] = {
    DIGEST: [("a", 1), ("a", 2), ("b", None)],
    DIGEST[::-1]: [("b", 1), ("c", 0)],
}


def entries_of(*events: Event) -> list[Entry]:
    """Entries 1, 2, ...; the fold looks at numbers and events alone."""
    return [
        Entry(number=number, event=event, time="", by="", dataguard="", sha256="")
        for number, event in enumerate(events, start=1)
    ]


def folded(*events: Event) -> Pending:
    return fold(entries_of(*events), LISTS.__getitem__)


def skip(start: int, stop: int) -> SkipAdded:
    return SkipAdded(start=start, stop=stop, steps=None, batches=(start, stop), attempt=0, reason=f"{start}")


def created(withheld: str | None = None) -> RunCreated:
    return RunCreated(
        run="a", plan=DIGEST, root=DIGEST, manifests=(DIGEST,), skip_mode="jump", fill="mask", first_label=0,
        withheld=withheld,
    )  # fmt: skip


def held(pending: Pending) -> dict[tuple[str, int | None], int]:
    return {(entry.shard, entry.row): entry.event for entry in pending.withheld}


def test_nothing_happened() -> None:
    assert folded() == folded(created()) == Pending()


def test_skips_stand_until_revoked() -> None:
    pending = folded(created(), skip(40, 45), skip(3, 9), Revoked(event=2), skip(40, 45))
    assert [(each.start, each.stop, each.event) for each in pending.skips] == [(3, 9, 3), (40, 45, 5)]
    assert pending.revoked == {2}


def test_a_revocation_can_be_revoked() -> None:
    events: list[Event] = [created(), skip(0, 8), Revoked(event=2)]
    assert folded(*events).skips == ()
    events.append(Revoked(event=3))
    assert [each.event for each in folded(*events).skips] == [2]
    events.append(Revoked(event=4))
    assert folded(*events).skips == ()
    assert folded(*events).revoked == {2, 4}
    # A second revocation of the same event stands by itself: revoking one of them brings nothing back.
    both = folded(created(), skip(0, 8), Revoked(event=2), Revoked(event=2), Revoked(event=3))
    assert both.skips == ()
    assert both.revoked == {2, 3}


def test_quarantine_and_release_of_shards_and_rows() -> None:
    events: list[Event] = [
        created(),
        Quarantined(shard="a", row=3, reason="x"),
        Quarantined(shard="a", reason="y"),
        Quarantined(shard="b", row=0, reason="z"),
    ]
    assert held(folded(*events)) == {("a", None): 3, ("a", 3): 2, ("b", 0): 4}
    # One row goes, its shard stays.
    assert held(folded(*events, Released(shard="a", row=3))) == {("a", None): 3, ("b", 0): 4}
    # A row that is not held by itself is not freed from its shard.
    assert held(folded(*events, Released(shard="a", row=4))) == held(folded(*events))
    # A shard takes its rows along, and no other shard's.
    assert held(folded(*events, Released(shard="a"))) == {("b", 0): 4}
    # What is quarantined after a release is quarantined.
    assert held(folded(*events, Released(shard="a"), Quarantined(shard="a", row=3, reason="again"))) == {
        ("a", 3): 6,
        ("b", 0): 4,
    }


def test_revoking_a_release_brings_back_what_it_freed() -> None:
    events: list[Event] = [created(), Quarantined(shard="a", reason="x"), Released(shard="a"), Revoked(event=3)]
    assert held(folded(*events)) == {("a", None): 2}


def test_the_earliest_event_that_still_stands_is_named() -> None:
    events: list[Event] = [created(), Quarantined(shard="a", reason="first"), Quarantined(shard="a", reason="second")]
    assert held(folded(*events)) == {("a", None): 2}
    assert folded(*events, Revoked(event=2)).withheld[0].reason == "second"


def test_lists_count_as_their_rows() -> None:
    pending = folded(created(withheld=DIGEST), Quarantined(withheld=DIGEST[::-1], reason="audit"))
    assert held(pending) == {("a", 1): 1, ("a", 2): 1, ("b", None): 1, ("b", 1): 2, ("c", 0): 2}
    assert list(held(pending)) == [("a", 1), ("a", 2), ("b", None), ("b", 1), ("c", 0)]
    assert "created" in pending.withheld[0].reason
    assert held(folded(created(withheld=DIGEST), Released(shard="a", row=1))) == {("a", 2): 1, ("b", None): 1}


def test_what_withholds_a_target_by_itself() -> None:
    pending = folded(created(), Quarantined(shard="a", reason="x"), Quarantined(shard="b", row=1, reason="y"))
    found = [withholding_event(pending, *target) for target in (("a", None), ("a", 1), ("b", 1), ("b", None))]
    assert [entry.event if entry else None for entry in found] == [2, None, 3, None]


# -- against a twin

amendments = st.one_of(
    st.builds(skip, st.integers(0, 20), st.integers(21, 40)),
    st.builds(Quarantined, shard=st.sampled_from("abc"), row=st.none() | st.integers(0, 2), reason=st.just("r")),
    st.builds(Quarantined, withheld=st.sampled_from(sorted(LISTS)), reason=st.just("r")),
    st.builds(Released, shard=st.sampled_from("abc"), row=st.none() | st.integers(0, 2)),
    st.builds(Revoked, event=st.integers(1, 12)),
    st.builds(Proposed, proposal=st.just("skip"), attempt=st.just(1), reason=st.just("r")),
)


def twin(events: list[Event]) -> tuple[set[tuple[int, int, int]], set[tuple[str, int | None]], set[int]]:
    """Skips, withheld targets and revoked events, by asking of each event whether it stands, recursively."""

    def stands(number: int) -> bool:
        return not any(
            isinstance(event, Revoked) and event.event == number and later > number and stands(later)
            for later, event in enumerate(events, start=1)
        )

    skips: set[tuple[int, int, int]] = set()
    targets: set[tuple[str, int | None]] = set()
    for number, event in enumerate(events, start=1):
        if not stands(number):
            continue
        if isinstance(event, SkipAdded):
            skips.add((event.start, event.stop, number))
        if isinstance(event, Quarantined):
            targets |= set(LISTS[event.withheld]) if event.withheld else {(event.shard or "", event.row)}
        if isinstance(event, Released):
            targets = {t for t in targets if t[0] != event.shard or (event.row is not None and t[1] != event.row)}
    return skips, targets, {number for number in range(1, len(events) + 1) if not stands(number)}


@given(st.lists(amendments, max_size=12))
def test_the_fold_is_what_the_twin_says(events: list[Event]) -> None:
    pending = folded(*events)
    skips, targets, revoked = twin(events)
    assert {(each.start, each.stop, each.event) for each in pending.skips} == skips
    assert set(held(pending)) == targets
    assert set(pending.revoked) == revoked == set(revoked_events(entries_of(*events)))


@given(
    st.lists(st.builds(skip, st.integers(0, 20), st.integers(21, 40)), max_size=6), st.randoms(use_true_random=False)
)
def test_skips_in_any_order_hold_the_same_positions(skips: list[SkipAdded], random: Any) -> None:
    shuffled = list(skips)
    random.shuffle(shuffled)
    positions = [
        {p for each in folded(*order).skips for p in range(each.start, each.stop)} for order in (skips, shuffled)
    ]
    assert positions[0] == positions[1]


@given(st.lists(amendments, max_size=10), st.integers(0, 9))
def test_revoking_an_event_is_as_if_it_had_never_been(events: list[Event], which: int) -> None:
    events = [event for event in events if not isinstance(event, Revoked)]
    if not events:
        return
    number = which % len(events) + 1
    # In its place something without effect, so that the numbers of the others stay.
    without = [*events]
    without[number - 1] = Proposed(proposal="skip", attempt=1, reason="nothing")
    revoked, never = folded(*events, Revoked(event=number)), folded(*without)
    assert (revoked.skips, revoked.withheld) == (never.skips, never.withheld)


def test_an_unknown_list_is_not_swallowed() -> None:
    with pytest.raises(KeyError):
        folded(created(withheld="f" * 64))
