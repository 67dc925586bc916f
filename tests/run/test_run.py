"""Creating and opening runs: one run a folder, one plan a run, and nothing read that was not asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dataguard.errors import AttemptError, InputError, NotInRun, PlanError, RunDamaged, UsageError
from dataguard.plan.plan import Plan
from dataguard.run.events import Quarantined, SkipAdded
from dataguard.run.layout import Layout
from dataguard.run.manifests import keep_manifest
from dataguard.run.run import Run
from tests.run.small import WEB, begin, make_manifest, make_plan, make_run


def test_a_run_is_created_with_copies_of_all_it_names(tmp_path: Path) -> None:
    plan = make_plan(first_label=1, skip_mode="hole", fill="substitute")
    run = Run.create(tmp_path / "a" / "run", plan, roots={"web": "/data/web"})
    layout = Layout(tmp_path / "a" / "run")
    assert run.document.plan == plan.digest
    assert (run.document.skip_mode, run.document.fill, run.first_label) == ("hole", "substitute", 1)
    assert run.document.roots == {"web": "/data/web"}
    assert layout.plan(plan.digest).is_file()
    assert layout.manifest(plan.root.manifest).is_file()
    assert layout.journal_event(1).is_file()
    assert list(layout.tmp.iterdir()) == []
    assert len(run.run_id) == 32
    assert (run.label(0), run.step(1)) == (1, 0)


def test_an_opened_run_is_the_created_one(tmp_path: Path) -> None:
    created = make_run(tmp_path)
    opened = Run.open(tmp_path / "run")
    assert opened.document == created.document
    assert opened.plan == make_plan()
    assert list(opened.manifests) == [make_manifest(WEB).digest]
    assert opened.manifest(make_manifest(WEB).digest) == make_manifest(WEB)
    assert opened.problems() == ()
    assert len(opened.attempts()) == 0
    with pytest.raises(NotInRun, match="no attempt of this run has begun"):
        opened.newest_leaf()


def test_open_creates_where_a_plan_is_given_and_opens_where_it_is_the_same(tmp_path: Path) -> None:
    first = Run.open(tmp_path / "run", make_plan())
    again = Run.open(tmp_path / "run", make_plan())
    assert again.run_id == first.run_id
    assert again.read().head.number == 1


def test_nothing_there_and_no_plan_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match="no run stands at") as caught:
            Run.open(path)
        assert "rehearse" in str(caught.value)
    assert not (tmp_path / "nothing").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "theirs", "ours"),
    [
        ({"seed": 8}, "seed 8", "seed 7"),
        ({"global_batch": 16}, "global batch 16", "global batch 8"),
        ({"lanes": 4}, "lanes 4", "lanes 2"),
        ({"weights": {"web": 3, "code": 1}}, "weights code=1, web=3", "weights code=1, web=4"),
        ({"fill": "substitute"}, "fill substitute", "fill mask"),
        ({"skip_mode": "hole"}, "skip_mode hole", "skip_mode jump"),
        ({"first_label": 1}, "first_label 1", "first_label 0"),
    ],
)
def test_another_plan_is_refused_and_both_are_shown(
    tmp_path: Path, change: dict[str, object], theirs: str, ours: str
) -> None:
    make_run(tmp_path)
    with pytest.raises(AttemptError, match="created from another plan") as caught:
        Run.open(tmp_path / "run", make_plan(**change))
    assert f"the plan given has {theirs}" in str(caught.value)
    assert f"the run has {ours}" in str(caught.value)


def test_another_corpus_is_another_plan(tmp_path: Path) -> None:
    make_run(tmp_path)
    other = Plan(make_manifest(WEB, salt=1), seed=7, global_batch=8, lanes=2)
    with pytest.raises(AttemptError, match=f"manifest {other.root.manifest}"):
        Run.open(tmp_path / "run", other)


def test_a_run_is_not_made_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"not empty\n  found: thesis.tex"):
        Run.create(tmp_path, make_plan())
    with pytest.raises(UsageError, match="it is a file"):
        Run.create(tmp_path / "thesis.tex", make_plan())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_an_interrupted_creation_left_is_completed(tmp_path: Path) -> None:
    make_run(tmp_path)
    shutil.rmtree(tmp_path / "run" / "journal")
    (tmp_path / "run" / "tmp" / "000001.json.abc").write_bytes(b"{")
    with pytest.raises(UsageError, match="a folder without a journal"):
        Run.open(tmp_path / "run")
    run = Run.open(tmp_path / "run", make_plan())
    assert run.read().head.number == 1


@pytest.mark.parametrize("seeds", [(7, 7, 7, 7), (7, 8, 7, 8)])
def test_of_creators_at_once_one_wins_and_the_others_open_the_same_plan(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    for turn in range(5):
        path = tmp_path / f"new {turn}" / "run"
        start = threading.Barrier(len(seeds))
        got: list[tuple[int, str]] = []

        def create(seed: int, path: Path = path, start: threading.Barrier = start, got: list[Any] = got) -> None:
            plan = make_plan(seed=seed)
            start.wait()
            try:
                got.append((seed, Run.open(path, plan).run_id))
            except AttemptError as error:
                got.append((seed, error.asked))

        threads = [threading.Thread(target=create, args=(seed,)) for seed in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seed for seed, _ in got) == sorted(seeds)
        run = Run.open(path)
        assert run.read().head.number == 1
        assert list(run.layout.tmp.iterdir()) == []
        for seed, answer in got:
            assert answer == run.run_id if seed == run.plan.root.seed else "created from another plan" in answer


def test_a_damaged_first_event_is_told(tmp_path: Path) -> None:
    make_run(tmp_path)
    path = Layout(tmp_path / "run").journal_event(1)
    raw = path.read_bytes()
    path.write_bytes(raw[:-20])
    with pytest.raises(RunDamaged, match=r"first event cannot be read\n  found: journal/000001.json"):
        Run.open(tmp_path / "run")
    path.unlink()
    Layout(tmp_path / "run").journal_event(2).write_bytes(raw)
    with pytest.raises(RunDamaged, match="event 1 is missing"):
        Run.open(tmp_path / "run")


def test_a_changed_plan_or_manifest_copy_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    plan_path, manifest_path = run.layout.plan(run.document.plan), run.layout.manifest(run.document.manifests[0])
    document = json.loads(plan_path.read_bytes())
    document["root"]["seed"] = 8
    plan_path.write_text(json.dumps(document))
    with pytest.raises(RunDamaged, match="another plan than its name says"):
        _ = Run.open(tmp_path / "run").plan
    raw = manifest_path.read_bytes()
    manifest_path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(RunDamaged, match="copy of manifest"):
        Run.open(tmp_path / "run").manifest(run.document.manifests[0])
    other = keep_manifest(Layout(tmp_path / "elsewhere"), make_manifest(WEB, salt=1))
    manifest_path.write_bytes(Layout(tmp_path / "elsewhere").manifest(other).read_bytes())
    with pytest.raises(RunDamaged, match="another manifest than its name says"):
        Run.open(tmp_path / "run").manifest(run.document.manifests[0])
    manifest_path.unlink()
    with pytest.raises(RunDamaged, match="copy of manifest"):
        Run.open(tmp_path / "run").manifest(run.document.manifests[0])


def test_a_manifest_file_is_copied_byte_for_byte_and_checked(tmp_path: Path) -> None:
    manifest = make_manifest(WEB)
    keep_manifest(Layout(tmp_path / "elsewhere"), manifest)
    file = Layout(tmp_path / "elsewhere").manifest(manifest.digest)
    run = Run.create(tmp_path / "run", make_plan(), manifest_files={manifest.digest: file})
    assert run.layout.manifest(manifest.digest).read_bytes() == file.read_bytes()
    other = make_manifest({"web/z.jsonl": 9})
    keep_manifest(Layout(tmp_path / "elsewhere"), other)
    with pytest.raises(InputError, match="not the manifest that the plan was made from"):
        Run.create(
            tmp_path / "again",
            make_plan(),
            manifest_files={manifest.digest: Layout(tmp_path / "elsewhere").manifest(other.digest)},
        )


# -- withheld from the beginning


def test_a_list_given_at_creation_is_withheld_by_the_first_attempt(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("shard,row,why\nweb/b.jsonl,,spam\nweb/a.jsonl,3,empty\nweb/a.jsonl,3,empty\n")
    run = Run.create(tmp_path / "run", make_plan(), withhold_file=tmp_path / "bad.csv")
    (tmp_path / "bad.csv").unlink()
    attempt = begin(run)
    assert [(entry.shard, entry.row, entry.event) for entry in attempt.withheld] == [
        ("web/a.jsonl", 3, 1),
        ("web/b.jsonl", None, 1),
    ]
    withheld = run.withheld_of(1)
    names = [run.stream_of(1).manifest_set.shard_name(shard) for shard in range(3)]
    assert withheld.event_of(names.index("web/a.jsonl"), 3) == 1
    assert withheld.event_of(names.index("web/a.jsonl"), 4) == 0
    assert withheld.event_of(names.index("web/b.jsonl"), 59) == 1


def test_opening_with_another_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("shard\nweb/b.jsonl\n")
    (tmp_path / "same.jsonl").write_text('{"shard": "b.jsonl"}\n')
    (tmp_path / "other.csv").write_text("shard\nweb/a.jsonl\n")
    Run.create(tmp_path / "run", make_plan(), withhold_file=tmp_path / "bad.csv")
    Run.open(tmp_path / "run", make_plan(), withhold_file=tmp_path / "same.jsonl")
    Run.open(tmp_path / "run", make_plan())
    with pytest.raises(AttemptError, match="withholds another list"):
        Run.open(tmp_path / "run", make_plan(), withhold_file=tmp_path / "other.csv")


# -- what is derived from the journal


def test_plans_streams_and_steps_of_an_attempt(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=30, global_batch=16)
    assert run.newest_leaf() == 2
    assert run.plan_of(1).global_batch == 8
    assert [(size.start, size.size) for size in run.plan_of(2).document.batch_sizes] == [(0, 8), (240, 16)]
    assert run.plan_of().digest == run.plan_of(2).digest
    steps = run.steps_of(2)
    assert steps.batch(29).size == 8
    assert steps.batch(30).size == 16
    assert sorted(steps.batch(30).positions) == list(range(240, 256))
    assert run.steps_of(1).batch(30).size == 8
    assert run.stream_of(1).samples(steps.batch(3).positions).position.tolist() == steps.batch(3).positions.tolist()
    assert run.begun(2).parent == 1
    with pytest.raises(NotInRun, match=r"attempt 3 is not in this run\n  found: attempts 1, 2"):
        run.plan_of(3)


def test_another_process_sees_the_same_attempts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.journal.append(
        SkipAdded(start=320, stop=360, steps=(40, 45), batches=(40, 45), asked="steps", attempt=0, reason="spike")
    )
    run.journal.append(Quarantined(shard="web/b.jsonl", row=7, reason="damaged"))
    begun = [begin(run), begin(run, fork_step=30, global_batch=16)]
    assert [begun[0], begun[1]] == [Run.open(tmp_path / "run").attempts().attempt(number) for number in (1, 2)]


def test_an_attempt_that_is_not_what_it_was_is_damage(tmp_path: Path) -> None:
    """A whole event edited, its check and the whole chain after it made again: what it decided still does not fit."""
    run = make_run(tmp_path)
    run.journal.append(Quarantined(shard="web/b.jsonl", row=7, reason="damaged"))
    begin(run)
    forged = Run.create(tmp_path / "forged", make_plan())
    for entry in run.read().entries[1:]:
        event = entry.event
        if isinstance(event, Quarantined):
            event = Quarantined(shard="web/b.jsonl", row=8, reason="damaged")
        forged.journal.append(event)
    assert forged.read().problems == ()
    with pytest.raises(RunDamaged, match="withheld rows are not those it began with"):
        forged.attempts()


def test_a_damaged_journal_leaves_out_what_cannot_be_trusted_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=10)
    begin(run, fork_step=20)
    path = run.layout.journal_event(3)
    path.write_bytes(path.read_bytes().replace(b"launch", b"lunch"))
    opened = Run.open(tmp_path / "run")
    assert opened.attempts().numbers == (1,)
    told = " | ".join(opened.problems())
    assert "000003.json" in told
    assert "attempt 3 is left out: its parent, attempt 2, cannot be read" in told


def test_roots_are_remembered_and_may_be_given_anew(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", make_plan(), roots={"web": "/old/web", "code": "/old/code"})
    assert run.roots() == {"web": "/old/web", "code": "/old/code"}
    assert run.roots(override={"web": "/new/web"}) == {"web": "/new/web", "code": "/old/code"}
    with pytest.raises(UsageError, match="no source is called 'wbe'"):
        run.roots(override={"wbe": "/x"})


def test_a_plan_made_by_other_algorithms_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    document = run.plan_document()
    old = type(document)(
        root=type(document.root)(**{**{n: getattr(document.root, n) for n in document.root.__struct_fields__},
                                    "algorithms": {"keys": 0}}),
        mixtures=document.mixtures,
        batch_sizes=document.batch_sizes,
    )  # fmt: skip
    with pytest.raises(PlanError, match="other versions"):
        run.plan_from(old)


def test_looking_at_the_journal_reads_neither_manifest_nor_heavy_libraries(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    shutil.rmtree(tmp_path / "run" / "manifest")
    code = (
        "import sys\n"
        "from dataguard.run.run import Run\n"
        f"run = Run.open({str(tmp_path / 'run')!r})\n"
        "assert run.attempts().numbers == (1,)\n"
        "assert run.steps_of().batch(3).size == 8\n"
        "assert run.pending().skips == ()\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'pyarrow', 'polars', 'numba', 'datasets', 'fsspec', 'torch', 'rich'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
