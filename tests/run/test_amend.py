"""Amendments: what they write, what they say, and what the next attempt makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.core.manifest import Manifest
from dataguard.errors import AttemptError, NotInRun, RunDamaged, SpanError, UsageError
from dataguard.plan.plan import Plan
from dataguard.run.amend import quarantine, release, revoke, skip
from dataguard.run.amended import Amended
from dataguard.run.events import Proposed, Quarantined, Released, Revoked, SkipAdded
from dataguard.run.run import Run
from tests.run.small import WEB, begin, make_manifest, make_plan, make_run


def last_event(run: Run) -> object:
    return run.read().entries[-1].event


def delivered(run: Run, attempt: int, steps: range) -> list[int]:
    laid = run.steps_of(attempt)
    return [int(p) for step in steps for p in np.sort(laid.batch(step).positions)]


# -- skip


def test_a_skip_is_translated_written_and_echoed(tmp_path: Path) -> None:
    run = make_run(tmp_path, first_label=1)
    begin(run)
    answer = skip(run, 41, 46, reason="spike", by="bob@desk")
    assert answer == Amended(
        kind="skip",
        event=3,
        dry_run=False,
        reason="spike",
        attempt=1,
        steps=(41, 46),
        batches=(41, 46),
        positions=(320, 360),
        num_positions_skipped=40,
    )
    assert last_event(run) == SkipAdded(
        start=320, stop=360, steps=(41, 46), batches=(41, 46), asked="steps", attempt=1, reason="spike"
    )
    assert run.read().entries[-1].by == "bob@desk"
    # It applies to the next attempt, and to none before.
    begin(run, fork_step=35)
    assert not set(range(320, 360)) & set(delivered(run, 2, range(35, 60)))
    assert delivered(run, 1, range(40, 41)) == list(range(320, 328))


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    (tmp_path / "list.csv").write_text("shard,row\nweb/a.jsonl,3\nweb/b.jsonl,\n")
    skip(run, 3, 4, reason="x")
    quarantine(run, "code/a.jsonl", reason="x")
    before = sorted(path for path in run.path.rglob("*") if path.is_file())
    calls: list[Callable[[bool], Amended]] = [
        lambda dry: skip(run, 40, 45, reason="spike", dry_run=dry),
        lambda dry: quarantine(run, "web/a.jsonl:7", reason="damaged", dry_run=dry),
        lambda dry: quarantine(run, withhold_file=tmp_path / "list.csv", reason="audit", dry_run=dry),
        lambda dry: release(run, "code/a.jsonl", dry_run=dry),
        lambda dry: revoke(run, 3, dry_run=dry),
    ]
    dry = [call(True) for call in calls]
    assert sorted(path for path in run.path.rglob("*") if path.is_file()) == before
    for call, said in zip(calls, dry, strict=True):
        assert (said.dry_run, said.event) == (True, None)
        done = call(False)
        assert done.event == run.head().number
        assert msgspec.structs.replace(done, dry_run=True, event=None) == said
        revoke(run, done.event)


def test_a_skip_by_batches_means_the_grid(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 40, 45, reason="spike")
    begin(run, fork_step=30)
    by_step = skip(run, 42, 43, reason="x", dry_run=True)
    assert (by_step.steps, by_step.batches, by_step.positions) == ((42, 43), (47, 48), (376, 384))
    by_batch = skip(run, 47, 48, reason="x", batches=True, dry_run=True)
    assert (by_batch.steps, by_batch.batches, by_batch.positions) == ((42, 43), (47, 48), (376, 384))
    # In the lineage of attempt 1 nothing was jumped.
    first = skip(run, 47, 48, reason="x", attempt=1, dry_run=True)
    assert (first.attempt, first.steps, first.positions) == (1, (47, 48), (376, 384))
    skipped = skip(run, 41, 43, reason="x", batches=True)
    assert (skipped.steps, skipped.positions, skipped.num_positions_skipped) == (None, (328, 344), 0)
    assert skipped.notes == ("16 of 16 positions are skipped already, by event 3",)
    assert last_event(run) == SkipAdded(
        start=328, stop=344, steps=None, batches=(41, 43), asked="batches", attempt=2, reason="x"
    )


def test_a_skip_before_any_attempt_is_translated_by_the_plan(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    answer = skip(run, 0, 2, reason="warm-up")
    assert (answer.attempt, answer.steps, answer.positions, answer.notes) == (0, (0, 2), (0, 16), ())
    begin(run)
    assert delivered(run, 1, range(1)) == list(range(16, 24))


def test_an_overlapping_skip_says_what_is_skipped_already(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 40, 45, reason="a")
    skip(run, 50, 52, reason="b")
    answer = skip(run, 44, 51, reason="c")
    assert answer.num_positions_skipped == 5 * 8
    assert answer.notes == ("16 of 56 positions are skipped already, by events 3, 4",)


@pytest.mark.parametrize(
    ("stands", "notes"),
    [
        (40, ()),
        (42, ("takes effect only from position 336 on in an attempt that goes on at step 42",)),
        (100, ("has no effect on an attempt that goes on at step 100",)),
    ],
)
def test_a_skip_of_what_was_delivered_says_so(tmp_path: Path, stands: int, notes: tuple[str, ...]) -> None:
    run = make_run(tmp_path)
    begin(run)
    assert skip(run, 40, 45, reason="spike", next_step=stands).notes == tuple(
        f"this {note}, where attempt 1 stands; to pass over all of it, fork at step 40" for note in notes
    )


def test_example_a_jump_before_the_start_changes_nothing_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=100)
    answer = skip(run, 40, 45, reason="spike")
    assert "has no effect on an attempt that goes on at step 100" in answer.notes[0]
    begin(run, fork_step=100)
    assert delivered(run, 3, range(100, 102)) == list(range(800, 816))


def test_a_range_past_a_later_mixture_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=10, weights={"web": 1, "code": 1})
    answer = skip(run, 8, 12, reason="spike", dry_run=True, next_step=0)
    assert any("reaches past position 80" in note for note in answer.notes)
    assert not any("reaches past" in note for note in skip(run, 8, 10, reason="x", dry_run=True).notes)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda run: skip(run, 40, 40, reason="x"), SpanError, "is empty"),
        (lambda run: skip(run, 45, 40, reason="x"), SpanError, "45:40"),
        (lambda run: skip(run, 0, 4, reason="x"), NotInRun, "steps count from 1"),
        (lambda run: skip(run, 0, 4, reason="x", batches=True), NotInRun, "batches count from 1"),
        (lambda run: skip(run, 1, 4, reason="x", attempt=7), NotInRun, "attempt 7 is not in this run"),
        (lambda run: skip(run, 1, 4, reason=" "), UsageError, "needs a reason"),
        (lambda run: quarantine(run, "web/a.jsonl", reason=""), UsageError, "needs a reason"),
        (lambda run: quarantine(run, reason="x"), UsageError, "a shard or a file"),
        (lambda run: quarantine(run, "web/a.jsonl", withhold_file="f", reason="x"), UsageError, "a shard or a file"),
        (lambda run: quarantine(run, "web/a.json", reason="x"), NotInRun, "the nearest web/a.jsonl"),
        (lambda run: quarantine(run, "a.jsonl", reason="x"), NotInRun, "2 shards are called 'a.jsonl'"),
        (lambda run: quarantine(run, "web/a.jsonl:100", reason="x"), NotInRun, "allowed: 0:100"),
        (lambda run: quarantine(run, "web/a.jsonl:", reason="x"), UsageError, "without a row"),
        (lambda run: release(run, "web/a.jsonl"), NotInRun, "nothing is quarantined in this run"),
        (lambda run: release(run, "web/zzz.jsonl"), NotInRun, "no shard is called"),
        (lambda run: revoke(run, 9), NotInRun, "allowed: 1 to 2"),
        (lambda run: revoke(run, 1), AttemptError, "it is of kind run-created"),
        (lambda run: revoke(run, 2), AttemptError, "it is of kind attempt-begun"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_nothing_is_written(
    tmp_path: Path, call: Callable[[Run], Any], error: type[Exception], says: str
) -> None:
    run = make_run(tmp_path, first_label=1)
    begin(run)
    with pytest.raises(error) as caught:
        call(run)
    assert says in str(caught.value)
    assert run.head().number == 2
    assert not (run.path / "withheld").exists()


def test_nothing_is_amended_in_a_damaged_journal_not_even_dry(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 3, 4, reason="x")
    run.layout.journal_event(2).unlink()
    opened = Run.open(run.path)
    for dry in (True, False):
        with pytest.raises(RunDamaged, match="event 2 is missing"):
            skip(opened, 3, 4, reason="x", attempt=None, dry_run=dry)


# -- quarantine and release


def test_a_shard_is_withheld_from_the_next_attempt_on(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    answer = quarantine(run, "b.jsonl", reason="spam", evidence="audit/report.html")
    assert last_event(run) == Quarantined(shard="web/b.jsonl", reason="spam", evidence="audit/report.html")
    assert (answer.shard, answer.row, answer.num_samples) == ("web/b.jsonl", None, 60)
    assert (answer.withheld_more, answer.num_withheld_more, answer.num_withheld_less) == (("web/b.jsonl",), 1, 0)
    begin(run, fork_step=3)
    for attempt, event in ((1, 0), (2, 3)):
        manifest_set = run.stream_of(attempt).manifest_set
        [shard] = manifest_set.find_shards("web/b.jsonl")
        assert run.withheld_of(attempt).event_of(shard, 5) == event


def test_a_row_is_found_in_the_stream(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    answer = quarantine(run, "web/a.jsonl:7", reason="damaged", next_step=4)
    assert answer.num_samples == 1
    stream, steps = run.stream_of(1), run.steps_of(1)
    samples = stream.samples(np.arange(32, 400))
    [shard] = stream.manifest_set.find_shards("web/a.jsonl")
    holding = [int(p) for p in samples.position[(samples.shard == shard) & (samples.row == 7)]]
    assert [place.position for place in answer.places] == [p for p in holding if p <= answer.places[-1].position]
    assert [(place.step, place.batch) for place in answer.places] == [
        (steps.locate(place.position).step, place.position // 8)
        for place in answer.places  # type: ignore[union-attr]
    ]


def test_a_list_is_kept_and_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    (tmp_path / "list.jsonl").write_text(
        "".join(f'{{"shard": "web/a.jsonl", "row": {row}}}\n' for row in range(30)) + '{"shard": "code/a.jsonl"}\n'
    )
    answer = quarantine(run, withhold_file=tmp_path / "list.jsonl", reason="audit")
    (tmp_path / "list.jsonl").unlink()
    assert (answer.num_samples, answer.num_withheld_more, len(answer.withheld_more)) == (70, 31, 20)
    assert answer.withheld_more[:3] == ("code/a.jsonl", "web/a.jsonl:0", "web/a.jsonl:1")
    assert len(Run.open(run.path).pending().withheld) == 31
    released = release(run, "web/a.jsonl:4", reason="it is fine")
    assert (released.withheld_less, released.num_withheld_less) == (("web/a.jsonl:4",), 1)
    assert last_event(run) == Released(shard="web/a.jsonl", row=4, reason="it is fine")
    revoked = revoke(run, answer.event or 0)
    assert (revoked.num_withheld_less, revoked.num_withheld_more, revoked.withheld) == (30, 0, answer.withheld)


def test_what_is_withheld_already_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    quarantine(run, "web/a.jsonl", reason="x")
    for name in ("web/a.jsonl", "web/a.jsonl:3"):
        answer = quarantine(run, name, reason="x", dry_run=True)
        assert answer.notes[0] == "it is withheld already, by event 3"
    assert quarantine(run, "web/a.jsonl", reason="x", dry_run=True).num_withheld_more == 0
    (tmp_path / "list.csv").write_text("shard,row\nweb/a.jsonl,3\nweb/b.jsonl,\n")
    answer = quarantine(run, withhold_file=tmp_path / "list.csv", reason="x", dry_run=True)
    assert answer.notes[0] == "1 of 2 are withheld already, by event 3"


def test_releases_free_what_is_held_and_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    quarantine(run, "web/a.jsonl:3", reason="x")
    quarantine(run, "web/a.jsonl:5", reason="x")
    with pytest.raises(NotInRun, match=r"web/a.jsonl:4 is not quarantined\n  found: quarantined: web/a.jsonl"):
        release(run, "web/a.jsonl:4")
    assert release(run, "web/a.jsonl", dry_run=True).withheld_less == ("web/a.jsonl:3", "web/a.jsonl:5")
    quarantine(run, "web/a.jsonl", reason="x")
    with pytest.raises(NotInRun, match="its whole shard is, by event 4") as caught:
        release(run, "web/a.jsonl:4")
    assert "dataguard release RUN web/a.jsonl" in str(caught.value)
    answer = release(run, "web/a.jsonl:3")
    assert answer.notes == ("web/a.jsonl:3 stays withheld with its whole shard, by event 4",)
    assert release(run, "web/a.jsonl").num_withheld_less == 2
    assert run.pending().withheld == ()


def test_what_delivers_nothing_anyway_is_said(tmp_path: Path) -> None:
    manifest = make_manifest(WEB)
    blocks = manifest.blocks.copy()
    blocks["num_rejected"][0] = 1
    rejected = np.array([(0, 2, 0)], manifest.rejected.dtype)
    manifest = Manifest(
        sources=manifest.sources, shards=manifest.shards, blocks=blocks, rejected=rejected, codes=("not-an-object",)
    )
    run = Run.create(tmp_path / "run", Plan(manifest, seed=7, global_batch=8, lanes=2, weights={"code": 1, "web": 0}))
    begin(run)
    assert quarantine(run, "code/a.jsonl:2", reason="x").notes == (
        "it holds no sample: what was rejected when the manifest was built is never delivered",
    )
    assert quarantine(run, "code/a.jsonl", reason="x").num_samples == 39
    assert quarantine(run, "web/a.jsonl", reason="x").notes == (
        "it belongs to a source without weight, which delivers nothing",
    )
    begin(run, fork_step=3, manifest=make_manifest({"code/b.jsonl": 50}))
    answer = quarantine(run, "code/a.jsonl", reason="x", dry_run=True)
    assert "it is not read by the mixture in force: nothing changes for its stream" in answer.notes
    assert quarantine(run, "code/b.jsonl", reason="x").num_samples == 50


def test_rows_of_token_shards_are_windows(tmp_path: Path) -> None:
    manifest = make_manifest({"tok/a.npy": 100, "tok/b.npy": 203}, kind="tokens")
    plan = Plan(manifest, seed=7, global_batch=8, lanes=1, form="window", seq_len=8)
    run = Run.create(tmp_path / "run", plan)
    assert quarantine(run, "tok/a.npy", reason="x").num_samples == 12
    assert quarantine(run, "tok/a.npy:11", reason="x").num_samples == 1
    with pytest.raises(NotInRun, match=r"window 12 is not in shard tok/a\.npy"):
        quarantine(run, "tok/a.npy:12", reason="x")


# -- revoke


def test_a_revoked_skip_says_who_keeps_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    written = skip(run, 40, 45, reason="spike")
    begin(run, fork_step=30)
    answer = revoke(run, 3, reason="not the cause")
    assert (answer.revokes, answer.steps, answer.batches, answer.positions) == (
        3, written.steps, written.batches, written.positions,
    )  # fmt: skip
    assert answer.num_positions_skipped == -40
    assert answer.notes == ("attempt 2 began with event 3 and keeps it",)
    assert last_event(run) == Revoked(event=3, reason="not the cause")
    begin(run, fork_step=30)
    assert delivered(run, 2, range(40, 41)) == list(range(360, 368))
    assert delivered(run, 3, range(40, 41)) == list(range(320, 328))


def test_nothing_is_revoked_twice_and_a_revocation_can_be_taken_back(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    quarantine(run, "web/a.jsonl", reason="x")
    revoke(run, 3)
    with pytest.raises(AttemptError, match=r"event 3 is revoked already\n  found: event 4 of .* by ada@host") as caught:
        revoke(run, 3)
    assert "dataguard revoke RUN 4" in str(caught.value)
    assert revoke(run, 4).withheld_more == ("web/a.jsonl",)
    assert revoke(run, 3).withheld_less == ("web/a.jsonl",)


def test_a_proposal_or_a_list_of_the_creation_is_no_amendment(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("shard\nweb/b.jsonl\n")
    run = Run.create(tmp_path / "run", make_plan(), withhold_file=tmp_path / "list.csv")
    run.journal.append(Proposed(proposal="skip", attempt=1, reason="x"))
    with pytest.raises(AttemptError, match="it is of kind proposed"):
        revoke(run, 2)
    with pytest.raises(AttemptError, match="release what the run withholds since its creation"):
        revoke(run, 1)
    assert release(run, "web/b.jsonl").withheld_less == ("web/b.jsonl",)
    assert begin(run).withheld == ()


def test_an_amendment_is_checked_where_it_lands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two people revoke the same event: the later one is told, although it looked fine when it was asked."""
    run, other = make_run(tmp_path), Run.open(tmp_path / "run")
    begin(run)
    skip(run, 3, 4, reason="x")
    really, raced = Run.pending, []

    def pending(self: Run, *args: Any) -> Any:
        answer = really(self, *args)
        if self is run and not raced:
            raced.append(True)
            revoke(other, 3)
        return answer

    monkeypatch.setattr(Run, "pending", pending)
    with pytest.raises(AttemptError, match="revoked already"):
        revoke(run, 3)
    assert run.head().number == 4


def test_answers_are_documents(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    for answer in (
        skip(run, 3, 4, reason="x"),
        quarantine(run, "web/a.jsonl:3", reason="x"),
        release(run, "web/a.jsonl:3"),
        revoke(run, 3),
    ):
        assert msgspec.json.decode(msgspec.json.encode(answer), type=Amended) == answer


@settings(max_examples=12)
@given(
    spans=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    fork=st.integers(0, 6),
    mode=st.sampled_from(["jump", "hole"]),
)
def test_skips_in_any_order_and_overlap_give_the_same_attempt(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], order: Any, fork: int, mode: str
) -> None:
    shuffled = list(spans)
    order.shuffle(shuffled)
    got = []
    for each in (spans, shuffled):
        run = make_run(tmp_path_factory.mktemp("run"), skip_mode=mode)
        begin(run)
        for start, length in each:
            skip(run, start, start + length, reason="x", attempt=1)
        begin(run, fork_step=fork)
        steps = run.steps_of(2)
        laid, step = [], fork
        for _ in range(6):
            step = steps.next_delivered(step)
            batch = steps.batch(step)
            laid.append((step, batch.positions[~batch.skipped].tolist()))
            step += 1
        got.append(laid)
        skipped = {p for start, length in spans for p in range(start * 8, (start + length) * 8)}
        assert not skipped & {p for _, positions in laid for p in positions}
    assert got[0] == got[1]
