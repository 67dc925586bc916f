"""Slots against a look at each one by itself."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.core.address import Geometry
from dataguard.core.manifest import ManifestSet
from dataguard.errors import NotInRun
from dataguard.plan.plan import Plan
from dataguard.plan.slots import MAX_DRAWS, Exempted, PlannedSlots, SlotStatus, next_substitute, plan_slots
from dataguard.plan.steps import StepBatch
from dataguard.plan.withheld import Withheld, WithheldSet
from tests.plan.small import ONE, first_attempt, skip, small_manifest

OLD = small_manifest(
    {"code": {"k": [6, 6]}, "web": {"a": [5, 4], "b": [7], "c": [6]}}, rejected={"web/a": [2, 6], "code/k": [0]}
)
NEW = small_manifest({"code": {"k": [6, 6]}, "web": {"a": [5, 4], "d": [8]}}, rejected={"web/a": [2, 6], "code/k": [0]})
PLAN = Plan(OLD, seed=3, global_batch=8, lanes=2).amended(20, manifest=NEW)
STREAM = PLAN.stream()
SHARDS = sorted({STREAM.manifest_set.shard_name(shard) for shard in range(STREAM.manifest_set.num_shards)})
NOTHING = WithheldSet.of([], STREAM.manifest_set)

entries = st.lists(
    st.builds(
        lambda shard, row, event: Withheld(shard=shard, row=row, event=event, reason="damaged"),
        st.sampled_from(SHARDS),
        st.none() | st.integers(0, 5),
        st.integers(1, 5),
    ),
    max_size=6,
)


def some_batch(positions: list[int], skipped: list[bool] | None = None) -> StepBatch:
    return StepBatch(
        step=0,
        attempt=1,
        batch=0,
        size=len(positions),
        positions=np.array(positions, dtype=np.int64),
        skipped=np.array(skipped or [False] * len(positions)),
        first_position=min(positions),
        stop_position=max(positions) + 1,
    )


def is_held(held: list[Withheld], position: int, shard: int, row: int, *, generation: int, source: str) -> int:
    """Earliest event, -1 for a shard that a later mixture removed, 0 where the row may be trained on."""
    name = STREAM.manifest_set.shard_name(shard)
    events = [each.event for each in held if each.shard == name and each.row in (None, row)]
    if events:
        return min(events)
    gone = position >= 20 and generation == 0 and source == "web" and name in ("web/b", "web/c")
    return -1 if gone else 0


@settings(max_examples=150)
@given(
    entries,
    st.sampled_from(["mask", "substitute"]),
    st.integers(0, 90),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(1, 4),
    st.dictionaries(st.integers(0, 98), st.integers(-1, 7), max_size=12),
)
def test_each_slot_holds_what_the_rules_say(held, fill, start, skipped, end_position, epochs, draws) -> None:
    withheld = WithheldSet.of(held, STREAM.manifest_set)
    batch = some_batch(list(range(start, start + 8)), skipped)
    samples = STREAM.samples(batch.positions)
    exceptions = {}
    for position, draw in draws.items():
        shard, row = -1, -1
        if draw >= 0 and start <= position < start + 8:
            i = position - start
            _, shard, row = STREAM.substitute(position, int(samples.source[i]), int(samples.generation[i]), draw)
        exceptions[position] = Exempted(reason="unreadable", draw=draw if shard >= 0 else -1, shard=shard, row=row)
    planned = plan_slots(
        batch,
        STREAM,
        withheld,
        fill=fill,
        end_position=end_position,
        epochs=epochs,
        exceptions=exceptions,
    )
    assert len(planned) == 8
    for i in range(8):
        position, shard, row = start + i, int(samples.shard[i]), int(samples.row[i])
        source, generation = STREAM.source_names[samples.source[i]], int(samples.generation[i])
        reason = is_held(held, position, shard, row, generation=generation, source=source)
        delivered, draw, event = (int(samples.block[i]), shard, row), -1, max(reason, 0)
        status = SlotStatus.LIVE
        ended = (end_position is not None and position >= end_position) or (
            epochs is not None and int(samples.epoch[i]) >= epochs
        )
        if skipped[i] or ended:
            status = SlotStatus.SKIPPED if skipped[i] else SlotStatus.ENDED
            delivered, event = (-1, -1, -1), 0
        elif position in exceptions and exceptions[position].shard >= 0:
            each = exceptions[position]
            status, draw = SlotStatus.SUBSTITUTED, each.draw
            delivered = STREAM.substitute(position, int(samples.source[i]), generation, draw)
            assert delivered[1:] == (each.shard, each.row)
        elif reason or position in exceptions:
            status = {0: SlotStatus.UNREADABLE, -1: SlotStatus.REMOVED}.get(reason, SlotStatus.QUARANTINED)
            delivered = (-1, -1, -1)
            if fill == "substitute" and position not in exceptions:
                for number in range(8):
                    drawn = STREAM.substitute(position, int(samples.source[i]), generation, number)
                    if not is_held(held, position, drawn[1], drawn[2], generation=generation, source=source):
                        status, draw, delivered = SlotStatus.SUBSTITUTED, number, drawn
                        break
        assert (planned.slot[i], planned.position[i], planned.shard[i], planned.row[i]) == (i, position, shard, row)
        assert SlotStatus(planned.status[i]) == status
        assert (planned.delivered_block[i], planned.delivered_shard[i], planned.delivered_row[i]) == delivered
        assert (planned.draw[i], planned.event[i]) == (draw, event)


@given(entries, st.sampled_from(["mask", "substitute"]), st.integers(0, 90))
def test_quarantine_never_changes_which_sample_an_address_names(held, fill, start) -> None:
    batch = some_batch(list(range(start, start + 8)))
    clean = plan_slots(batch, STREAM, NOTHING, fill=fill)
    ours = plan_slots(batch, STREAM, WithheldSet.of(held, STREAM.manifest_set), fill=fill)
    for name in ("slot", "position", "source", "generation", "epoch", "shard", "row", "block"):
        assert getattr(ours, name).tolist() == getattr(clean, name).tolist(), name


@pytest.mark.parametrize(
    ("world_size", "microbatch_size"),
    [(world, size) for world in (1, 2, 4, 8, 16) for size in (1, 2, 4, 8, 16) if world * size <= 16],
)
def test_every_geometry_delivers_the_same_global_batch(world_size, microbatch_size) -> None:
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    plan = Plan(OLD, seed=9, global_batch=16)
    stream, steps = plan.stream(), plan.steps([plan.first_attempt(geometry)])
    withheld = WithheldSet.of([Withheld(shard="web/a", event=2, reason="x")], stream.manifest_set)
    whole = plan_slots(steps.batch(3), stream, withheld, fill="substitute")
    assert SlotStatus.SUBSTITUTED in whole.status.tolist()
    seen = []
    for rank in range(world_size):
        for microbatch in range(geometry.num_microbatches(16)):
            slots = geometry.slots(global_batch=16, rank=rank, microbatch=microbatch)
            part = plan_slots(steps.batch(3), stream, withheld, fill="substitute", slots=slots)
            for field in fields(PlannedSlots):
                expected = getattr(whole.part(slots.start, slots.stop), field.name)
                assert getattr(part, field.name).tolist() == expected.tolist()
                assert getattr(part, field.name).dtype == expected.dtype
            seen += part.slot.tolist()
    assert seen == list(range(16))


def test_rows_of_removed_shards_are_withheld_and_never_drawn() -> None:
    batch = some_batch(list(range(20, 120)))
    masked = plan_slots(batch, STREAM, NOTHING, fill="mask")
    removed = masked.status == SlotStatus.REMOVED
    assert 0 < removed.sum() < 20
    names = {STREAM.manifest_set.shard_name(shard) for shard in masked.shard[removed].tolist()}
    assert names <= {"web/b", "web/c"}
    assert (masked.event == 0).all()
    drawn = plan_slots(batch, STREAM, NOTHING, fill="substitute")
    substituted = drawn.status == SlotStatus.SUBSTITUTED
    assert substituted.sum() > removed.sum() / 2
    assert (substituted <= removed).all()
    names = {STREAM.manifest_set.shard_name(shard) for shard in drawn.delivered_shard[substituted].tolist()}
    assert names == {"web/a"}, "of the old generation, only this shard is left"


def test_eight_draws_that_are_all_withheld_mask_the_slot() -> None:
    held = [Withheld(shard=shard, event=6, reason="x") for shard in SHARDS if shard.startswith("web/")]
    withheld = WithheldSet.of(held, STREAM.manifest_set)
    planned = plan_slots(some_batch(list(range(16))), STREAM, withheld, fill="substitute")
    web = planned.source == STREAM.source_names.index("web")
    assert (planned.status[web] == SlotStatus.QUARANTINED).all()
    assert (planned.delivered_row[web] == -1).all()
    assert (planned.event[web] == 6).all()
    assert (planned.status[~web] == SlotStatus.LIVE).all()


def test_a_substitute_that_cannot_be_read_is_drawn_again_up_to_eight_times() -> None:
    kwargs = {"position": 5, "source": 1, "generation": 0}
    draws, after = [], -1
    while (found := next_substitute(STREAM, NOTHING, **kwargs, after_draw=after)) is not None:
        assert (found.block, found.shard, found.row) == STREAM.substitute(5, 1, 0, found.draw)
        draws.append(found.draw)
        after = found.draw
    assert draws == list(range(MAX_DRAWS))
    first = STREAM.substitute(5, 1, 0, 0)
    name = STREAM.manifest_set.shard_name(first[1])
    withheld = WithheldSet.of([Withheld(shard=name, row=first[2], event=1, reason="x")], STREAM.manifest_set)
    second = next_substitute(STREAM, withheld, **kwargs)
    assert second is not None
    assert second.draw > 0
    assert (second.shard, second.row) != first[1:]


def test_copies_and_parts_are_what_they_say() -> None:
    planned = plan_slots(some_batch(list(range(8))), STREAM, NOTHING, fill="mask")
    copied = planned.copy()
    copied.status[2] = SlotStatus.UNREADABLE
    copied.delivered_row[2] = -1
    assert planned.status[2] == SlotStatus.LIVE
    assert planned.delivered_row[2] == planned.row[2]
    assert planned.part(2, 5).slot.tolist() == [2, 3, 4]
    for start, stop in ((-1, 2), (3, 9), (5, 4)):
        with pytest.raises(NotInRun):
            planned.part(start, stop)
    for slots in (range(9), range(-1, 2), range(0, 8, 2)):
        with pytest.raises(NotInRun):
            plan_slots(some_batch(list(range(8))), STREAM, NOTHING, fill="mask", slots=slots)


def test_a_batchs_arrays_are_not_shared_with_its_slots() -> None:
    batch = some_batch(list(range(8)))
    planned = plan_slots(batch, STREAM, NOTHING, fill="mask")
    planned.position[0] = 99
    assert batch.positions[0] == 0


def test_padding_of_a_hole_keeps_its_planned_sample_in_sight() -> None:
    plan = Plan(OLD, seed=3, global_batch=8, lanes=2, skip_mode="hole")
    steps = plan.steps([first_attempt((0, 8), skips=[skip(10, 13)], geometry=ONE)])
    planned = plan_slots(steps.batch(1), plan.stream(), NOTHING, fill="substitute")
    padded = planned.status == SlotStatus.SKIPPED
    assert sorted(planned.position[padded].tolist()) == [10, 11, 12]
    assert (planned.delivered_shard[padded] == -1).all()
    unskipped = plan_slots(plan.steps().batch(1), plan.stream(), NOTHING, fill="substitute")
    assert planned.row.tolist() == unskipped.row.tolist()


def test_windows_of_tokens_are_substituted_by_windows() -> None:
    tokens = small_manifest({"t": {"a": [40, 24], "b": [32]}}, kinds={"t": "tokens"})
    plan = Plan(tokens, seed=1, global_batch=4, form="window", seq_len=8, lanes=1)
    stream = plan.stream()
    withheld = WithheldSet.of([Withheld(shard="t/a", event=2, reason="x")], ManifestSet([tokens]))
    planned = plan_slots(plan.steps().batch(0), stream, withheld, fill="substitute")
    again = {int(p): Exempted(reason="io", draw=0, shard=1, row=3) for p in planned.position}
    replayed = plan_slots(plan.steps().batch(0), stream, withheld, fill="substitute", exceptions=again)
    assert replayed.delivered_block.tolist() == [2] * 4
    assert (planned.delivered_shard != 0).all()
