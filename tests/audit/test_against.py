"""Is evaluation data in the corpus? What a dictionary over everything finds, whatever is held in memory at a time."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.audit.against import overlap_reasons
from dataguard.audit.duplicates import DuplicateFinder
from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.job import Job
from dataguard.audit.overlap import OVERLAP_KEY, Side, shared, write_overlap
from dataguard.audit.tasks import Task
from dataguard.cli.main import main
from dataguard.core.digests import sample_digest
from dataguard.corpus.build import build_manifest_file
from dataguard.errors import EnvironmentFailed, UsageError
from tests.audit.making import PROSE, audit, audit_all, contents, corpus, rows_of
from tests.corpus.making import jsonl, npy, parquet
from tests.twins.overlap import Told, naive_overlap

# ---- the join, against its twin ----

SOURCES = [0, 1, 70]
"""Of shards 0, 1, 2: further apart than one word of bits."""


def side_of(folder: Path, name: str, told: Told, *, run_samples: int, merge_bytes: int) -> Side:
    finder = DuplicateFinder(folder / name, run_samples=run_samples, merge_bytes=merge_bytes)
    for digest, kind, shard, row in told:
        places = (np.array([shard]), np.array([row]), np.array([5]))
        finder.add(np.frombuffer(digest, "V16"), *places, kind=kind)
    return Side(
        name=name,
        finder=finder,
        source_of=np.array(SOURCES),
        sources=[f"{name} {i}" for i in range(71)],
        against=[f"{name}.parquet"] * 71,
        shards=["a", "b", "c"],
    )


def digest_of(number: int) -> bytes:
    """Few different first halves, so that the second one decides."""
    return (number % 3).to_bytes(8, "big") + (number // 3).to_bytes(8, "big")


TOLD = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), st.integers(0, 2)), max_size=60)


@given(ours=TOLD, theirs=TOLD, run_samples=st.integers(1, 20), at_once=st.integers(1, 7))
def test_the_join_finds_what_a_dictionary_finds(tmp_path_factory, ours, theirs, run_samples, at_once) -> None:
    folder = tmp_path_factory.mktemp("join")
    samples = []
    for told in (ours, theirs):
        by_shard = sorted(told, key=lambda each: each[2])
        samples.append([(digest_of(n), kind, shard, row) for row, (n, kind, shard) in enumerate(by_shard)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dataguard.audit.overlap._AT_ONCE", at_once)
        sides = [
            side_of(folder, name, told, run_samples=run_samples, merge_bytes=1)
            for name, told in zip(("audited", "evaluation"), samples, strict=True)
        ]
        for which, (side, other) in enumerate((sides, sides[::-1])):
            found = {}
            for entries, _, bits in shared(side, other):
                assert len(entries) <= at_once
                for entry, words in zip(entries, bits, strict=True):
                    held = {i for i in range(71) if int(words[i // 64]) >> (i % 64) & 1}
                    if held:
                        found[int(entry["shard"]), int(entry["row"])] = held
            wanted = naive_overlap(samples[which], samples[1 - which], SOURCES)
            assert found == wanted
        counts = write_overlap(io.BytesIO(), sides[0], sides[1])
    both = {each[:2] for each in samples[0]} & {each[:2] for each in samples[1]}
    assert [each.contents for each in counts] == [len(both)] * 2
    wanted = [naive_overlap(samples[0], samples[1], SOURCES), naive_overlap(samples[1], samples[0], SOURCES)]
    assert [int(each.records.sum()) for each in counts] == [len(each) for each in wanted]
    for each, places in zip(counts, wanted, strict=True):
        assert int(each.pairs.sum()) == sum(map(len, places.values()))
        assert int(each.content_bytes.sum()) == 5 * len(places)
    for side in sides:
        side.finder.__exit__(None, None, None)


# ---- audits ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and evaluation data of text and of ids that are in it in part."""
    folder = corpus(tmp_path_factory.mktemp("corpus"))
    jsonl(folder / "valid/v.jsonl", [PROSE[0], "seen nowhere else", "", PROSE[70], PROSE[70], None, PROSE[399]])
    parquet(folder / "test/t.parquet", [PROSE[70], "nor this one", PROSE[3]])
    ids = [i * 31 % 997 for i in range(1000)]
    npy(folder / "held/h.npy", [*ids[64:128], *range(64), *ids[:32]])
    build_manifest_file([f"tokens={folder / 'held'}"], folder / "held.parquet", num_workers=1)
    return folder


def against_all(out: Path, folder: Path, **asked):
    named = tuple(str(folder / name) for name in ("valid", "test", "held.parquet"))
    return audit_all(out, folder, against=named, **asked)


def test_what_is_on_both_sides_is_told_by_source_and_row_by_row(folder: Path, tmp_path: Path) -> None:
    summary = against_all(tmp_path / "out", folder)
    overlap = summary.overlap
    assert overlap
    assert overlap.compared == "whole texts and windows of 64 tokens from the beginning of each shard"
    told = {
        each.source: (each.records, each.compared, each.blank, each.rejected, each.overlapping)
        for each in overlap.evaluation
    }
    assert told == {"valid": (7, 5, 1, 1, 3), "test": (3, 3, 0, 0, 2), "tokens": (3, 3, 0, 0, 1)}
    pairs = {(p.source, p.evaluation_source): (p.records, p.evaluation_records) for p in overlap.by_source}
    # PROSE[0] stands twice in the corpus, PROSE[3] too; PROSE[70] stands twice in valid
    assert pairs == {("web", "valid"): (3, 3), ("web", "test"): (3, 2), ("ids", "tokens"): (1, 1)}
    assert (overlap.records, overlap.evaluation_records, overlap.contents) == (6, 6, 4)
    table = pq.read_table(tmp_path / "out/overlap.parquet")
    assert table.schema.metadata[OVERLAP_KEY] == b"1"
    rows = sorted(rows_of(table, ["side", "source", "shard", "row"]))
    assert rows == [
        ("audited", "ids", "ids/e.npy", 1),
        ("audited", "web", "web/a.jsonl", 0),
        ("audited", "web", "web/a.jsonl", 3),
        ("audited", "web", "web/a.jsonl", 65),
        ("audited", "web", "web/b.jsonl.gz", 10),
        ("audited", "web", "web/d.parquet", 41),
        ("evaluation", "test", "test/t.parquet", 0),
        ("evaluation", "test", "test/t.parquet", 2),
        ("evaluation", "tokens", "tokens/h.npy", 0),
        ("evaluation", "valid", "valid/v.jsonl", 0),
        ("evaluation", "valid", "valid/v.jsonl", 3),
        ("evaluation", "valid", "valid/v.jsonl", 4),
    ]
    digests = {row["digest"] for row in table.to_pylist() if row["shard"] == "web/b.jsonl.gz"}
    assert digests == {sample_digest(PROSE[70].encode())}
    assert {row["against"] for row in table.to_pylist() if row["side"] == "audited"} == {None}
    assert not (tmp_path / "out/work").exists()


def test_an_audit_without_it_writes_what_it_always_wrote(folder: Path, tmp_path: Path) -> None:
    plain = audit_all(tmp_path / "plain", folder)
    held = against_all(tmp_path / "held", folder)
    first, second = contents(tmp_path / "plain"), contents(tmp_path / "held")
    assert set(second) - set(first) == {"overlap.parquet", *(f"against/{i:03d}.parquet" for i in range(3))}
    assert {name for name in first if first[name] != second[name]} == {"audit.json", "summary.json"}
    documents = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("plain", "held")]
    assert "overlap" not in documents[0]
    assert "against" not in json.loads((tmp_path / "plain/audit.json").read_text())
    del documents[1]["overlap"]
    documents[1]["remarks"] = [each for each in documents[1]["remarks"] if "evaluation data" not in each]
    assert documents[0] == documents[1]
    assert plain.exit_code == held.exit_code


def test_it_fails_where_that_is_asked_for(folder: Path, tmp_path: Path) -> None:
    jsonl(tmp_path / "clean/c.jsonl", PROSE[:20])
    jsonl(tmp_path / "other/o.jsonl", ["another text"])
    jsonl(tmp_path / "same/s.jsonl", [PROSE[4]])
    for name, fail_on, code in (("same", ("overlap",), 1), ("same", (), 0), ("other", ("overlap",), 0)):
        out = tmp_path / f"{name} {len(fail_on)}"
        summary = audit(out, tmp_path / "clean", against=(str(tmp_path / name),), fail_on=fail_on)
        assert summary.exit_code == code, summary.reasons
        told = any("1 records are in the evaluation data" in each for each in (*summary.reasons, *summary.remarks))
        assert told == (name == "same")


def test_nothing_that_could_be_compared_is_never_a_pass(folder: Path, tmp_path: Path) -> None:
    jsonl(tmp_path / "clean/c.jsonl", PROSE[:20])
    summary = audit(tmp_path / "out", tmp_path / "clean", against=(str(folder / "held.parquet"),))
    assert summary.exit_code == 3
    assert "nothing of the evaluation data could be compared" in summary.reasons
    assert any("it is tokens, of which the corpus has none" in remark for remark in summary.remarks)
    assert overlap_reasons(None, fail=True).failed == ()


def test_evaluation_data_that_cannot_be_read_is_told_and_read_again(tmp_path: Path) -> None:
    jsonl(tmp_path / "clean/c.jsonl", PROSE[:20])
    jsonl(tmp_path / "valid/v.jsonl", PROSE[10:30])
    build_manifest_file([str(tmp_path / "valid")], tmp_path / "V.parquet", num_workers=1)
    shutil.move(tmp_path / "valid/v.jsonl", tmp_path / "gone")
    asked = {"against": (str(tmp_path / "V.parquet"),)}
    missed = audit(tmp_path / "out", tmp_path / "clean", **asked)
    assert missed.exit_code == 3
    assert missed.overlap
    assert [(each.shard, each.effect) for each in missed.overlap.unread] == [("valid/v.jsonl", "unreadable")]
    assert missed.overlap.evaluation[0].unreadable == 20
    shutil.move(tmp_path / "gone", tmp_path / "valid/v.jsonl")
    mended = audit(tmp_path / "out", tmp_path / "clean", resume=True, **asked)
    assert mended.overlap
    assert (mended.exit_code, mended.overlap.records, mended.overlap.unread) == (0, 10, ())
    assert audit(tmp_path / "out", tmp_path / "clean", resume=True, **asked) == mended


class Dying(LocalEngine):
    """Gives up after some tasks."""

    def __init__(self, left: int) -> None:
        super().__init__(1)
        self.left = left

    def run(self, job: Job, tasks: tuple[Task, ...], keep) -> None:  # type: ignore[override]
        def counted(task: Task, content) -> None:
            if not self.left:
                raise EnvironmentFailed("the machine went away")
            self.left -= 1
            keep(task, content)

        super().run(job, tasks, counted)


def test_interrupted_anywhere_it_goes_on_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    small = {"task_bytes": 3000}
    against_all(tmp_path / "whole", folder, **small)
    wanted = contents(tmp_path / "whole")
    out, tasks = tmp_path / "out", 0
    for left in range(0, 60, 7):
        try:
            against_all(out, folder, resume=left > 0, engine=Dying(left % 5), **small)
            break
        except EnvironmentFailed:
            tasks += left % 5
            assert (
                len(list((out / "work").rglob("parts/**/*.parquet")))
                + len(list((out / "work/against").rglob("*.parquet")))
                == tasks
            )
    against_all(out, folder, resume=True, **small)
    assert contents(out) == wanted
    with pytest.raises(UsageError, match="of something else: against"):
        audit_all(out, folder, resume=True, against=(str(folder / "valid"),), **small)
    with pytest.raises(UsageError, match="of something else: against"):
        audit_all(out, folder, resume=True, **small)


def test_many_threads_and_small_memory_change_no_byte(folder: Path, tmp_path: Path, monkeypatch) -> None:
    against_all(tmp_path / "one", folder, task_bytes=3000)
    monkeypatch.setattr("dataguard.audit.overlap._AT_ONCE", 7)
    against_all(tmp_path / "many", folder, task_bytes=3000, workers=4)
    first, second = contents(tmp_path / "one"), contents(tmp_path / "many")
    assert {name for name in first if first[name] != second[name]} <= {"overlap.parquet"}  # other row groups
    tables = [pq.read_table(tmp_path / name / "overlap.parquet").to_pylist() for name in ("one", "many")]
    assert tables[0] == tables[1]


def test_roots_go_to_the_corpus_they_name(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "held", tmp_path / "moved")
    build_manifest_file([f"ids={folder / 'ids'}"], tmp_path / "M.parquet", num_workers=1)
    asked = {"roots": {"tokens": str(tmp_path / "moved")}, "against": (str(folder / "held.parquet"),)}
    summary = audit(tmp_path / "out", tmp_path / "M.parquet", **asked)
    assert summary.overlap
    assert summary.overlap.evaluation_records == 1
    with pytest.raises(UsageError, match="no source is called 'nowhere'"):
        audit(tmp_path / "other", tmp_path / "M.parquet", roots={"nowhere": "/"}, against=asked["against"])


def test_the_command_and_the_page_say_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["audit", str(folder / "web"), "-o", str(out), "--against", str(folder / "valid"), "--fail-on", "overlap"]
    assert main([*words, "--workers", "1"]) in {1, 3}
    said = capsys.readouterr().out
    assert "3 records" in said
    assert "web has 3 records of valid, which has 3 of its" in said
    page = (out / "report.html").read_text()
    assert 'id="overlap"' in page
    assert "overlap.parquet has every record of both sides" in page


@pytest.mark.parametrize(("what", "option"), [("overlap", "--against"), ("drift", "--baseline")])
def test_an_audit_cannot_fail_on_what_it_is_not_held_against(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, option: str
) -> None:
    assert main(["audit", str(folder / "web"), "-o", str(tmp_path / "out"), "--fail-on", what]) == 2
    assert option in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
