"""Quarantine withholds slots and moves nothing: shard, row and list, both fills, released and revoked."""

from __future__ import annotations

import pytest

from dataguard.run import amend
from tests.support.corpora import place_of
from tests.support.runs import deliver, make_run

START, STEPS = 3, 12


def quarantined(run, what: str, one: tuple[str, int], tmp_path) -> set[tuple[str, int]]:
    """Quarantine something; the rows that it is about. `one` is a record that is delivered later on."""
    if what == "shard":
        amend.quarantine(run, "web/b.jsonl.gz", reason="damaged")
        return {("web/b.jsonl.gz", row) for row in range(30)}
    if what == "row":
        amend.quarantine(run, f"{one[0]}:{one[1]}", reason="damaged")
        return {one}
    path = tmp_path / "list.csv"
    path.write_text(f"shard,row\n{one[0]},{one[1]}\nweb/c.jsonl.zst,\n")
    amend.quarantine(run, withhold_file=path, reason="listed")
    return {one, *(("web/c.jsonl.zst", row) for row in range(20))}


@pytest.mark.parametrize("fill", ["mask", "substitute"])
@pytest.mark.parametrize("what", ["shard", "row", "list"])
def test_quarantine_withholds_and_moves_nothing(tmp_path, documents, unbroken, fill, what) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4, fill=fill)
    deliver(run, microbatch_size=8, steps=START)
    rows = quarantined(run, what, place_of(unbroken[START + 2][5]), tmp_path)
    batches = deliver(run, world_size=2, microbatch_size=2, from_step=START, steps=STEPS)
    assert list(batches) == list(range(START, START + STEPS))
    num_withheld = 0
    for step, batch in batches.items():
        for slot, planned in zip(batch, unbroken[step], strict=True):
            if place_of(planned) not in rows:
                assert slot == planned
                continue
            num_withheld += 1
            if fill == "mask":
                assert slot is None
            else:
                assert place_of(slot) not in rows
                assert place_of(slot)[0].split("/")[0] == place_of(planned)[0].split("/")[0], "of the same source"
    assert num_withheld > 0


def test_a_substitute_is_the_same_in_every_attempt_and_topology(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4, fill="substitute")
    deliver(run, microbatch_size=8, steps=START)
    amend.quarantine(run, "web/b.jsonl.gz", reason="damaged")
    first = deliver(run, microbatch_size=8, from_step=START, steps=4)
    assert deliver(run, world_size=4, microbatch_size=1, num_threads=2, from_step=START, steps=4) == first


def test_where_a_whole_source_is_quarantined_nothing_can_stand_in(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4, fill="substitute")
    deliver(run, microbatch_size=8, steps=START)
    amend.quarantine(run, "code/d.parquet", reason="all of it")
    batches = deliver(run, microbatch_size=8, from_step=START, steps=STEPS)
    for step, batch in batches.items():
        wanted = [None if place_of(slot)[0] == "code/d.parquet" else slot for slot in unbroken[step]]
        assert batch == wanted


@pytest.mark.parametrize("back", ["release", "revoke"])
def test_what_is_released_or_revoked_is_delivered_again(tmp_path, documents, unbroken, back) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    deliver(run, microbatch_size=8, steps=START)
    event = amend.quarantine(run, "web/a.parquet", reason="damaged").event
    assert event is not None
    assert deliver(run, microbatch_size=8, from_step=START, steps=2) != {s: unbroken[s] for s in (START, START + 1)}
    if back == "release":
        amend.release(run, "web/a.parquet")
    else:
        amend.revoke(run, event)
    batches = deliver(run, microbatch_size=8, from_step=START, steps=2)
    assert batches == {s: unbroken[s] for s in (START, START + 1)}
