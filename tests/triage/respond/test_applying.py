"""Commands run as printed; --apply writes what they would, once, and refuses only what no longer holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dataguard.core.evidence import Verdict
from dataguard.errors import AttemptError
from dataguard.run.amend import quarantine, release, revoke, skip
from dataguard.run.events import CheckpointSaved, Proposed, Quarantined, SkipAdded
from dataguard.run.run import Run
from dataguard.triage.respond import Response, Suspect, apply_response, plan_response
from dataguard.triage.respond.shell import command
from tests.run.small import begin, make_run
from tests.triage.respond.spikes import spike

ODD = 'it\'s "base64" & $HOME `x`; rm -rf /\n\x1b[31m -- é \u202e'


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = tmp_path / "it's a run, $HOME"
    folder.mkdir()
    made = make_run(folder)
    begin(made)
    made.journal.append(CheckpointSaved(attempt=1, next_step=30, path="/ckpt/30"))
    return made


def planned(run: Run, verdict: Verdict = Verdict.BAD_DATA) -> Response:
    shards = [
        Suspect(shard="web/a.jsonl", reason=ODD, evidence="-z 9.1"),
        Suspect(shard="web/b.jsonl", row=3, reason="-starts like an option"),
    ]
    return plan_response(run, spike(50), verdict=verdict, shards=shards)


def amendments(run: Run) -> list[object]:
    return [entry.event for entry in run.read().entries if isinstance(entry.event, SkipAdded | Quarantined)]


def files(run: Run) -> Iterator[tuple[str, bytes]]:
    for path in sorted(run.path.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(run.path)), path.read_bytes()


def test_the_commands_run_as_printed_and_are_what_apply_writes(run: Run, tmp_path: Path) -> None:
    response = planned(run)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run.path), str(copy)], check=True, timeout=60)
    applied = apply_response(Run.open(copy), response)
    assert [line.split()[0] for line in applied.done] == ["skip", "quarantine", "quarantine"]
    shell = f"dataguard() {{ '{sys.executable}' -m dataguard \"$@\"; }}\n"
    typed = [each.text for each in response.commands if each.applies]
    done = subprocess.run(
        ["bash", "-c", shell + "set -e\n" + "\n".join(typed)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert amendments(run) == amendments(Run.open(copy))
    first, second, third = amendments(run)
    assert isinstance(first, SkipAdded)
    assert first.steps == (40, 51)
    assert second == Quarantined(shard="web/a.jsonl", reason=ODD, evidence="-z 9.1")
    assert third == Quarantined(shard="web/b.jsonl", row=3, reason="-starts like an option")


def test_words_that_look_like_options_stand_behind_dashes() -> None:
    made = command("quarantine", "-run", "-s/a", options=("--reason", "x"), why="")
    assert made.text == "dataguard quarantine --reason x -- -run -s/a"
    assert all(letter.isprintable() for letter in command("skip", ODD, "1:2", why="").text)


def test_apply_writes_skips_and_quarantines_and_nothing_else(run: Run) -> None:
    before = dict(files(run))
    response = planned(run)
    dry = apply_response(run, response, dry_run=True)
    assert dict(files(run)) == before
    assert (dry.written, len(dry.done)) == ((), 3)
    applied = apply_response(run, response, by="ada@desk")
    after = dict(files(run))
    new = sorted(set(after) - set(before))
    assert new == [f"journal/{number:06d}.json" for number in applied.written]
    assert {name: after[name] for name in before} == before
    assert {entry.by for entry in run.read().entries[-3:]} == {"ada@desk"}
    assert response.resume is not None
    assert applied.left == (response.resume.text,)


def test_a_second_apply_writes_nothing_and_says_what_stands(run: Run) -> None:
    response = planned(run)
    first = apply_response(run, response)
    again = apply_response(run, response)
    assert (again.written, again.done) == ((), ())
    assert len(again.already) == 3
    for number, line in zip(first.written, again.already, strict=True):
        assert line.endswith(f"already, by event {number}")
    replanned = planned(run)
    assert [each.argv[1] for each in replanned.commands] == ["verify"]
    assert apply_response(run, replanned).written == ()


def test_a_shorter_skip_by_hand_does_not_pass_for_the_whole(run: Run) -> None:
    response = planned(run)
    skip(run, 45, 51, reason="by hand")
    applied = apply_response(run, response)
    assert applied.done[0].startswith("skip 40:51")
    assert run.pending().skips[0].start == 320


def test_a_journal_that_moved_is_refused_only_where_it_matters(run: Run) -> None:
    response = planned(run)
    # Other amendments, and an attempt that forks from the one in question, change nothing of what is meant.
    skip(run, 80, 90, reason="another")
    quarantine(run, "code/a.jsonl", reason="another")
    begin(run, fork_step=30)
    applied = apply_response(run, response)
    assert len(applied.written) == 3
    # What somebody took back since is not written over their heads.
    response = planned(run)
    release(run, "web/a.jsonl", reason="it is fine")
    with pytest.raises(AttemptError, match=r"web/a.jsonl was released after"):
        apply_response(run, response)


def test_a_skip_that_was_taken_back_since_is_not_written_again(run: Run) -> None:
    event = skip(run, 44, 48, reason="by hand").event
    assert event is not None
    response = planned(run)
    revoke(run, event)
    before = run.head()
    with pytest.raises(AttemptError, match="taken back after"):
        apply_response(run, response)
    assert run.head() == before
    assert len(apply_response(run, planned(run)).written) == 3  # planned anew, it knows


def test_a_response_of_another_journal_or_of_steps_that_changed_is_refused(run: Run, tmp_path: Path) -> None:
    response = planned(run)
    other = msgspec.structs.replace(response, journal=(response.journal[0], "0" * 64))
    with pytest.raises(AttemptError, match="another journal"):
        apply_response(run, other)
    fresh = make_run(tmp_path)
    early = plan_response(fresh, spike(50), verdict=Verdict.DATA_AND_STATE)
    begin(fresh)
    with pytest.raises(AttemptError, match="an attempt has begun since"):
        apply_response(fresh, early)


def test_what_was_proposed_is_applied_with_its_evidence(run: Run) -> None:
    proposal = run.journal.append(Proposed(proposal="quarantine", attempt=1, shard="web/b.jsonl", reason="truncated"))
    response = plan_response(run, None, verdict=Verdict.NO_INCIDENT)
    applied = apply_response(run, response)
    assert applied.done == ("quarantine web/b.jsonl",)
    assert amendments(run) == [
        Quarantined(shard="web/b.jsonl", reason="truncated", evidence=f"proposal of event {proposal.number}")
    ]


def test_a_document_of_it_can_be_read_back(run: Run) -> None:
    response = planned(run)
    assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response
