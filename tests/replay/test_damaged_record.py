"""Where journal or index are damaged, no answer pretends to be whole: it names the damage and ends with 3."""

from __future__ import annotations

import json

import pytest

from dataguard.cli.main import main
from dataguard.errors import NotInRun, RunDamaged
from dataguard.loader.rehearse import continued_geometry
from dataguard.replay.inspect import inspect_step
from dataguard.replay.lookup import Lookup
from dataguard.replay.seen import seen_before
from dataguard.replay.where import where_record
from dataguard.run.run import Run
from dataguard.run.tidy import compact_run, seal_run
from tests.replay.conftest import roots_of


@pytest.mark.parametrize("command", ["inspect", "replay"])
def test_a_lost_file_of_the_index_is_no_success(copy, command, capsysbinary) -> None:
    story = copy()
    seal_run(story.run)
    compact_run(story.run)
    asked = [command, str(story.run.path), "--step", "40", "--attempt", "2", "--json"]
    if command == "replay":
        asked += [word for name, root in roots_of(story).items() for word in ("--root", f"{name}={root}")]
    assert main(asked) == 0
    whole = json.loads(capsysbinary.readouterr().out)
    assert whole["damage"] == []
    for path in (story.run.path / "index").rglob("*.parquet"):
        path.unlink()
    assert main(asked) == 3
    answer = json.loads(capsysbinary.readouterr().out)
    assert answer["damage"]
    assert set(answer["damage"]) <= set(answer["notes"])


def test_an_attempt_whose_event_is_damaged_is_not_said_never_to_have_begun(copy) -> None:
    story = copy()
    for event in sorted((story.run.path / "journal").iterdir())[1:]:
        event.write_bytes(event.read_bytes().replace(b'"attempt', b'"attemqt'))
    lookup = Lookup(Run.open(story.run.path))
    for ask in (
        lambda: inspect_step(lookup, 5),
        lambda: seen_before(lookup, 5),
        lambda: where_record(lookup, "code/d.parquet", 5),
        lambda: lookup.labels_of_batch(5),
        lambda: lookup.lineage(2),
    ):
        with pytest.raises(RunDamaged, match="the journal is damaged, so it cannot be told") as caught:
            ask()
        assert "journal/000002.json" in str(caught.value.found)
    with pytest.raises(RunDamaged, match="the attempts of this run cannot be read"):
        continued_geometry(lookup.run, world_size=None, microbatch_size=None, global_batch=None)


def test_with_a_whole_journal_what_is_not_there_is_no_damage(story) -> None:
    with pytest.raises(NotInRun, match="attempt 99 is not in this run"):
        Lookup(story.run).lineage(99)
