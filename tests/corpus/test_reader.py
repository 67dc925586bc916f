"""Rows and windows: the same bytes as a naive reader, and every trouble told in its place."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.problems import Retry, RowProblem
from dataguard.corpus.reader import RowReader
from dataguard.corpus.storage import LocalRoot
from dataguard.errors import NotInRun, UsageError
from tests.corpus.making import flip, jsonl, npy, parquet
from tests.twins import rows as twin

NO_SLEEP = {"sleep": lambda _seconds: None}


def corpus_of(tmp_path: Path, *sources: str, **options: int) -> Corpus:
    path = tmp_path / f"M{len(list(tmp_path.glob('M*.parquet')))}.parquet"
    build_manifest_file([f"{tmp_path}/{name}" for name in sources], path, options=ScanOptions(**options))
    return Corpus.open(path)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    texts = [f"text {i} " + "x" * (i * 37 % 200) if i % 7 else "" for i in range(200)]
    jsonl(tmp_path / "web/a.jsonl", [*texts, None, 7, "f\u00fcr \u2028 \U0001f600"])
    jsonl(tmp_path / "web/b.jsonl.gz", texts)
    jsonl(tmp_path / "web/c.jsonl.zst", texts[::-1])
    parquet(tmp_path / "web/d.parquet", [*texts[:50], None, *texts[50:]], group=20)
    jsonl(tmp_path / "web/e.jsonl", [None, None])
    jsonl(tmp_path / "web/f.jsonl", [])
    return tmp_path


def every_row(corpus: Corpus) -> tuple[np.ndarray, np.ndarray, list[bytes | None]]:
    """(blocks, rows, naive texts) of all stored rows."""
    blocks, rows, texts = [], [], []
    manifest = corpus.manifest
    for shard, entry in enumerate(manifest.shards):
        source = manifest.sources[entry.source].name
        for row, text in enumerate(twin.texts(Path(corpus.roots[source], entry.path))):
            blocks.append(manifest.block_of(shard, row))
            rows.append(row)
            texts.append(text)
    return np.array(blocks), np.array(rows), texts


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("cache_bytes", [0, 3000, 1 << 20])
def test_rows_are_those_of_a_naive_reader_in_any_order(web: Path, threads: int, cache_bytes: int) -> None:
    corpus = corpus_of(web, "web", block_bytes=1000)
    blocks, rows, texts = every_row(corpus)
    order = np.array(random.Random(threads).choices(range(len(rows)), k=2 * len(rows)))
    with corpus.reader(threads=threads, cache_bytes=cache_bytes, cache_folder=str(web / "cache")) as reader:
        answers = reader.read(blocks[order], rows[order])
    for index, answer in zip(order, answers, strict=True):
        expected = texts[index]
        if expected is None:
            assert isinstance(answer, RowProblem)
            assert (answer.kind, answer.row) == ("rejected", rows[index])
        else:
            assert answer == expected
    assert len(texts) == sum(shard.num_rows for shard in corpus.manifest.shards)


def test_an_empty_question_has_an_empty_answer(web: Path) -> None:
    assert corpus_of(web, "web").reader().read([], []) == []


def test_each_block_is_decoded_once(web: Path) -> None:
    corpus = corpus_of(web, "web", block_bytes=1000)
    blocks, rows, _ = every_row(corpus)
    with corpus.reader(threads=2, cache_folder="") as reader:
        for _ in range(3):
            reader.read(blocks, rows)
        assert reader.counts.num_blocks == len(np.unique(blocks))
        assert reader.counts.content_bytes == corpus.manifest.blocks["content_bytes"].sum()


def test_plain_shards_cost_their_bytes_once(web: Path) -> None:
    corpus = corpus_of(web, "web/a.jsonl", block_bytes=1000)
    blocks, rows, _ = every_row(corpus)
    with corpus.reader() as reader:
        reader.read(blocks, rows)
        size_bytes = (web / "web/a.jsonl").stat().st_size
        assert size_bytes <= reader.counts.storage_bytes <= 1.1 * size_bytes


def test_several_manifests_are_numbered_through(web: Path) -> None:
    npy(web / "ids/t.npy", range(100))
    first, second = corpus_of(web, "web/e.jsonl", "web/d.parquet"), corpus_of(web, "web/a.jsonl")
    start = len(first.manifest.blocks)
    with RowReader([first, second]) as reader:
        assert reader.read([start, 0, start], [1, 1, 2]) == [
            twin.texts(web / "web/a.jsonl")[1], twin.texts(web / "web/d.parquet")[1],
            twin.texts(web / "web/a.jsonl")[2],
        ]  # fmt: skip
        with pytest.raises(NotInRun, match="in no manifest"):
            reader.read([start + 1], [0])


@pytest.mark.parametrize(("block", "row"), [(0, 200_000), (0, -1), (-1, 0), (10**6, 0)])
def test_questions_the_manifest_cannot_answer_are_refused(web: Path, block: int, row: int) -> None:
    with pytest.raises(NotInRun):
        corpus_of(web, "web").reader().read([block], [row])
    with pytest.raises(NotInRun):
        corpus_of(web, "web").reader().read_fields(block, row)


def test_questions_of_two_lengths_are_refused(web: Path) -> None:
    with pytest.raises(UsageError, match="2 blocks and 1 rows"):
        corpus_of(web, "web").reader().read([0, 0], [0])


@pytest.mark.parametrize("kind", ["<u2", ">u2", "<i4", "<u4", "<i8", "<u1"])
def test_windows_are_those_of_a_naive_reader(tmp_path: Path, kind: str) -> None:
    top = min(int(np.iinfo(np.dtype(kind)).max), 2**40)
    ids = [(i * 7919) % top for i in range(1003)]
    npy(tmp_path / "ids/a.npy", ids, kind)
    npy(tmp_path / "ids/b.npy", ids[::-1], kind)
    corpus = corpus_of(tmp_path, "ids", block_tokens=64)
    manifest = corpus.manifest
    for seq_len in (1, 10, 64, 100, 500):
        expected, blocks, windows = [], [], []
        for shard, name in enumerate(("a.npy", "b.npy")):
            found = twin.windows(tmp_path / "ids" / name, seq_len)
            expected += found
            windows += list(range(len(found)))
            blocks += [manifest.block_of(shard, w * seq_len) for w in range(len(found))]
        order = random.Random(seq_len).sample(range(len(windows)), k=min(60, len(windows)))
        with corpus.reader(threads=2) as reader:
            read, problems = reader.read_windows(np.array(blocks)[order], np.array(windows)[order], seq_len)
        assert problems == {}
        assert read.tolist() == [expected[i] for i in order]
        assert read.dtype == (np.int64 if kind in {"<u4", "<i8"} else np.int32)


def test_windows_outside_a_shard_are_refused(tmp_path: Path) -> None:
    npy(tmp_path / "ids/a.npy", range(100))
    reader = corpus_of(tmp_path, "ids").reader()
    for window in (10, -1):
        with pytest.raises(NotInRun, match="window"):
            reader.read_windows([0], [window], 10)
    with pytest.raises(UsageError):
        reader.read_windows([0], [0], 0)


def test_other_fields_are_there_for_previews(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["x", "y"], url="u", n=3)
    parquet(tmp_path / "web/b.parquet", ["x", "y", "z", "w"])
    reader = corpus_of(tmp_path, "web").reader()
    assert reader.read_fields(0, 1) == {"url": "u", "n": 3}
    assert reader.read_fields(2, 3) == {"id": 3}


# ---- trouble --------------------------------------------------------------------------------------------------------


def digests(problem: RowProblem) -> tuple[bool, bool]:
    """(block digests differ, shard digests differ), all four given."""
    assert problem.expected_digest
    assert problem.expected_shard_digest
    assert problem.found_shard_digest
    return problem.expected_digest != problem.found_digest, problem.expected_shard_digest != problem.found_shard_digest


def test_a_changed_block_is_withheld_with_both_digests_and_others_are_read(web: Path) -> None:
    corpus = corpus_of(web, "web/a.jsonl", block_bytes=1000)
    blocks, rows, texts = every_row(corpus)
    content = (web / "web/a.jsonl").read_bytes()
    flip(web / "web/a.jsonl", content.index(b"text 9 ") + 5)
    answers = corpus.reader().read(blocks, rows)
    wrong = int(blocks[9])
    for block, row, text, answer in zip(blocks, rows, texts, answers, strict=True):
        if block == wrong:
            assert isinstance(answer, RowProblem)
            assert (answer.kind, answer.shard, answer.row, answer.content) == ("changed", "a/a.jsonl", row, None)
            assert digests(answer) == (True, True)
        elif text is not None:
            assert answer == text
    told = corpus.reader(verify="tell").read([wrong, wrong], [9, 8])
    assert [problem.content for problem in told if isinstance(problem, RowProblem)] == [
        texts[9].replace(b"text 9", b"text 8"), texts[8],
    ]  # fmt: skip


def test_a_changed_window_is_withheld_or_told(tmp_path: Path) -> None:
    path = npy(tmp_path / "ids/a.npy", range(100))
    corpus = corpus_of(tmp_path, "ids", block_tokens=30)
    flip(path, 128 + 2 * 35)
    ids, problems = corpus.reader().read_windows([0] * 10, range(10), 10)
    assert sorted(problems) == [3, 4, 5]
    assert ids[3:6].tolist() == [[0] * 10] * 3
    assert ids[2].tolist() == list(range(20, 30))
    assert digests(problems[3]) == (True, True)
    ids, problems = corpus.reader(verify="tell").read_windows([0] * 10, range(10), 10)
    assert sorted(problems) == [3, 4, 5]
    assert ids[3].tolist() == [30, 31, 32, 33, 34, 34, 36, 37, 38, 39]


def test_a_shard_cut_short_is_changed_where_it_is_cut(web: Path) -> None:
    corpus = corpus_of(web, "web/a.jsonl", "web/d.parquet", block_bytes=1000)
    for name in ("a.jsonl", "d.parquet"):
        os.truncate(web / "web" / name, (web / "web" / name).stat().st_size // 2)
    blocks, rows, texts = every_row_of(corpus, web)
    answers = corpus.reader().read(blocks, rows)
    kinds = {answer.kind for answer in answers if isinstance(answer, RowProblem)}
    assert kinds == {"changed"}
    assert answers[:5] == texts[:5]
    last = answers[-1]
    assert isinstance(last, RowProblem)
    assert last.expected_shard_digest != last.found_shard_digest


def every_row_of(corpus: Corpus, web: Path) -> tuple[np.ndarray, np.ndarray, list[bytes | None]]:
    """Deliverable rows by the manifest alone, with the first texts by heart."""
    manifest = corpus.manifest
    blocks, rows = [], []
    bad = {(int(entry["block"]), int(entry["row"])) for entry in manifest.rejected}
    for number, entry in enumerate(manifest.blocks):
        for row in range(int(entry["first_row"]), int(entry["first_row"] + entry["num_rows"])):
            if (number, row) not in bad:
                blocks.append(number)
                rows.append(row)
    texts = [f"text {i} ".encode() + b"x" * (i * 37 % 200) if i % 7 else b"" for i in range(5)]
    return np.array(blocks), np.array(rows), texts


def test_a_touched_or_copied_shard_is_no_finding(web: Path) -> None:
    corpus = corpus_of(web, "web", block_bytes=1000)
    blocks, rows, texts = every_row(corpus)
    for path in (web / "web").iterdir():
        copy = path.with_suffix(".copy")
        shutil.copy(path, copy)
        copy.replace(path)
        os.utime(path, ns=(0, 0))
    answers = corpus.reader(cache_folder=str(web / "cache")).read(blocks, rows)
    assert [answer for answer in answers if isinstance(answer, bytes)] == [text for text in texts if text is not None]


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet"])
def test_same_size_and_mtime_do_not_hide_a_change(web: Path, name: str) -> None:
    corpus = corpus_of(web, f"web/{name}", block_bytes=1000)
    blocks, rows, texts = every_row(corpus)
    path = web / "web" / name
    status = path.stat()
    with corpus.reader(cache_folder=str(web / "cache"), cache_bytes=0) as reader:
        before = reader.read(blocks, rows)
        changed = twin.texts(path)
        index = next(i for i, text in enumerate(changed) if text and b"text 1" in text)
        new = [text.decode() if text is not None else None for text in changed]
        new[index] = str(new[index]).replace("text", "tent")
        if name == "d.parquet":
            parquet(path, new, group=20)
        else:
            jsonl(path, new)
        content = path.read_bytes()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert path.read_bytes() == content
        assert path.stat().st_mtime_ns == status.st_mtime_ns
        after = reader.read(blocks, rows)
    assert before[index] == texts[index]
    problem = after[index]
    assert isinstance(problem, RowProblem)
    assert problem.kind == "changed"
    assert digests(problem) == (True, True)


def test_a_missing_shard_is_told_and_tried_again(web: Path) -> None:
    corpus = corpus_of(web, "web/a.jsonl", block_bytes=1000)
    slept: list[float] = []
    (web / "web/a.jsonl").rename(web / "aside")
    reader = corpus.reader(retry=Retry(attempts=3, first_seconds=0.5, factor=3), sleep=slept.append)
    (problem,) = reader.read([0], [1])
    assert isinstance(problem, RowProblem)
    assert problem.kind == "missing"
    assert str(web / "web/a.jsonl") in problem.detail
    assert slept == [0.5, 1.5]
    reader.read([0, 1], [1, int(corpus.manifest.blocks["first_row"][1])])
    assert slept == [0.5, 1.5]  # known to fail: asked once, without sleeping
    (web / "aside").rename(web / "web/a.jsonl")
    assert reader.read([0], [1]) == [twin.texts(web / "web/a.jsonl")[1]]


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "d.parquet"])
def test_storage_that_comes_back_within_the_retries_is_no_problem(
    web: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(web, f"web/{name}", block_bytes=1000)
    opened, failures = LocalRoot.open, [OSError(5, "Input/output error"), TimeoutError("slow")]

    def flaky(self: LocalRoot, path: str) -> Any:
        if failures:
            raise failures.pop()
        return opened(self, path)

    monkeypatch.setattr(LocalRoot, "open", flaky)
    slept: list[float] = []
    reader = corpus.reader(sleep=slept.append, cache_folder=str(web / "cache"))
    assert reader.read([0], [1]) == [twin.texts(web / "web" / name)[1]]
    assert slept == [0.1, 0.4]


def test_storage_that_fails_for_good_is_unreadable(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_of(web, "web/a.jsonl")

    def failing(self: LocalRoot, path: str) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalRoot, "open", failing)
    (problem,) = corpus.reader(**NO_SLEEP).read([0], [1])
    assert isinstance(problem, RowProblem)
    assert (problem.kind, problem.row) == ("unreadable", 1)
    assert "Input/output error" in str(problem)


# ---- threads, processes ---------------------------------------------------------------------------------------------


def test_threads_that_want_one_block_share_one_load(web: Path) -> None:
    corpus = corpus_of(web, "web/a.jsonl")
    expected = twin.texts(web / "web/a.jsonl")
    with corpus.reader() as reader:
        barrier = threading.Barrier(8)

        def ask(row: int) -> bytes | RowProblem:
            barrier.wait(timeout=20)
            return reader.read([0], [row])[0]

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(8))) == expected[:8]
        assert reader.counts.num_blocks == 1


def test_prefetched_blocks_are_at_hand(web: Path) -> None:
    corpus = corpus_of(web, "web/a.jsonl", block_bytes=1000)
    num_blocks = len(corpus.manifest.blocks)
    with corpus.reader(threads=2) as reader:
        reader.prefetch(range(num_blocks))
        first = corpus.manifest.blocks["first_row"]
        reader.read(range(num_blocks), first)
        assert reader.counts.num_blocks == num_blocks
        reader.close()
        assert reader.read([0], [1]) == [twin.texts(web / "web/a.jsonl")[1]]


def test_a_forked_process_reads_with_locks_of_its_own(web: Path) -> None:
    corpus = corpus_of(web, "web", block_bytes=1000)
    blocks, rows, texts = every_row(corpus)
    expected = [text for text in texts if text is not None]
    reader = corpus.reader(threads=2, cache_folder=str(web / "cache"))
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            reader.read(blocks[:50], rows[:50])

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if not child:
                code = 1
                try:
                    answers = reader.read(blocks, rows)
                    code = 0 if [a for a in answers if isinstance(a, bytes)] == expected else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
        reader.close()


def test_a_reader_can_be_pickled(web: Path) -> None:
    corpus = corpus_of(web, "web", block_bytes=1000)
    reader = corpus.reader(threads=2, cache_folder=str(web / "cache"))
    first = reader.read([0], [1])
    again = pickle.loads(pickle.dumps(reader))
    assert again.counts.storage_bytes == 0
    assert again.read([0], [1]) == first


def test_the_golden_story_of_remote_storage(tmp_path: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    local = jsonl(tmp_path / "b.jsonl.gz", [f"row {i}" for i in range(300)])
    system.pipe_file("/reader/b.jsonl.gz", local.read_bytes())
    build_manifest_file(["r=memory://reader"], tmp_path / "M.parquet", options=ScanOptions(block_bytes=500))
    corpus = Corpus.open(tmp_path / "M.parquet")
    blocks, rows = np.repeat(np.arange(len(corpus.manifest.blocks)), corpus.manifest.blocks["num_rows"]), np.arange(300)
    with corpus.reader(cache_folder=str(tmp_path / "cache"), **NO_SLEEP) as reader:
        assert reader.read(blocks, rows) == [f"row {i}".encode() for i in range(300)]
        system.rm("/reader/b.jsonl.gz")
    with corpus.reader(cache_folder="", **NO_SLEEP) as reader:
        (problem,) = reader.read([0], [0])
        assert isinstance(problem, RowProblem)
        assert problem.kind == "missing"
    moved = Corpus.open(tmp_path / "M.parquet", {"r": str(tmp_path)})
    assert moved.reader().read([0], [7]) == [b"row 7"]


def test_roots_of_unknown_sources_are_refused(web: Path) -> None:
    corpus_of(web, "web")
    with pytest.raises(UsageError, match="no source is called 'wob'"):
        Corpus.open(web / "M0.parquet", {"wob": "/x"})
