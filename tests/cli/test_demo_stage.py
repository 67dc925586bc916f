"""The stage of the demo: long answers are shortened, and nothing that goes wrong is hidden."""

from __future__ import annotations

import io

import msgspec
import pytest

from dataguard.cli.demo.answers import DemoAnswer, DemoEvent, DemoLosses, DemoShard
from dataguard.cli.demo.command import _render
from dataguard.cli.demo.stage import NotAsTold, Stage

LONG = "import sys; print('\\n'.join(str(i) for i in range(30))); print('worry', file=sys.stderr); sys.exit({})"


def test_of_a_long_answer_the_first_lines_are_shown_and_all_are_kept(tmp_path, capfd) -> None:
    stage = Stage(tmp_path, to_stderr=False, kept=True)
    stage.run("python", "-c", LONG.format(0), most=4)
    shown = capfd.readouterr()
    lines = shown.out.splitlines()
    assert lines[-7:-1] == ["0", "1", "2", "3", "  ... 26 more lines", "[-c.txt has all 30 lines]"]
    assert "worry" in shown.err
    assert (tmp_path / "-c.txt").read_text().splitlines() == [str(i) for i in range(30)]


def test_where_nothing_is_kept_it_is_said_how(tmp_path, capfd) -> None:
    Stage(tmp_path, to_stderr=False).run("python", "-c", LONG.format(0), most=4)
    assert "[shortened; with --keep DIR, -c.txt has all 30 lines]" in capfd.readouterr().out


def test_what_ends_otherwise_is_shown_whole(tmp_path, capfd) -> None:
    stage = Stage(tmp_path, to_stderr=False)
    with pytest.raises(NotAsTold, match="did not end as it should"):
        stage.run("python", "-c", LONG.format(3), most=4)
    shown = capfd.readouterr()
    assert set(map(str, range(30))) <= set(shown.out.splitlines())
    assert "more lines" not in shown.out
    assert "[exit code 3, and 0 was expected]" in shown.out
    assert "worry" in shown.err


def test_a_stream_that_cannot_hold_a_character_shows_which_it_was(tmp_path, monkeypatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Stage(tmp_path, to_stderr=False).tell("\u2518")
    assert raw.getvalue() == b"\\u2518\n"


def document(**changes) -> DemoAnswer:
    made = DemoAnswer(
        story="poisoned",
        seed=7,
        folder="my demo",
        report="my demo/report.html",
        commands=(),
        checks=(),
        shard=DemoShard(shard="code/odd", num_records=9, poisoned=True, rank=1, start=10, stop=20),
        event=DemoEvent(
            event_class="transient_spike", start=10, stop=20, peak=11, size_nats=2.81, needed_nats=1.03, rank=1,
            shard="code/odd",
        ),
        verdict="bad_data",
        losses=DemoLosses(before=2.36, peak=5.07, end=2.11, num_steps=24),
        all_as_expected=True,
        seconds=60.0,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def test_it_ends_with_the_story_in_short_and_with_what_to_type_next() -> None:
    text = "\n".join(_render(document()))
    for said in ("code/odd", "step 11", "2.81 nats", "needs 1.03", "bad_data", "before 2.36, at the peak 5.07", "2.11"):
        assert said in text
    assert "after  cd 'my demo'" in text
    typed = [line.split("#")[0].split() for line in _render(document()) if line.startswith("  dataguard")]
    assert [words[1] for words in typed] == ["inspect", "where", "log"]


def test_what_is_not_so_is_not_said() -> None:
    assert "In short" not in "\n".join(_render(document(all_as_expected=False)))
    clean = "\n".join(_render(document(story="clean", event=None, losses=None, verdict="no_incident")))
    assert "nothing was planted, and nothing was found (no_incident)" in clean
    assert "to try next" not in clean
    removed = "\n".join(_render(document(folder=None, report=None)))
    assert "removed again" in removed
    assert "to try next" not in removed
    assert "In short" not in "\n".join(_render(document(story="fast", shard=None, event=None, losses=None)))
