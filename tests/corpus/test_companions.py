"""Is a shard of several files one shard everywhere: when it is found, counted, hashed, verified, read and kept?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus import Corpus, Retry, RowProblem, build_manifest, build_manifest_file, verify_shards
from dataguard.corpus.formats.tokens import Boundaries
from dataguard.corpus.manifest_read import read_header
from dataguard.corpus.shard_file import ByteCounter, StoredShard, shard_digest
from dataguard.corpus.storage import open_root
from dataguard.errors import NotInRun, UsageError
from dataguard.report import manifest_documents
from dataguard.report.manifest import render_shown
from tests.corpus.making import jsonl, megatron, npy, put

SEQUENCES = [[1, 2, 3], [], [4, 5]]


def built(*sources: str | Path) -> Any:
    return build_manifest([str(source) for source in sources])


def state_of(result: Any) -> list[tuple[str, str, int, list[str]]]:
    """(path, effect, rows, codes) of every shard."""
    found = result.details.shard_findings
    return [
        (shard.path, shard.effect, shard.num_rows, [finding.code for finding in found.get(i, ())])
        for i, shard in enumerate(result.manifest.shards)
    ]


def stored(folder: Path, path: str) -> StoredShard:
    return StoredShard(
        open_root(str(folder)),
        name=f"x/{path}",
        path=path,
        size_bytes=0,
        compression="none",
        counter=ByteCounter(),
        format_name="megatron",
    )


def test_a_pair_is_one_shard_named_by_its_bin(tmp_path: Path) -> None:
    path = megatron(tmp_path / "data/a", SEQUENCES)
    result = built(tmp_path / "data")
    (shard,) = result.manifest.shards
    assert state_of(result) == [("a.bin", "clean", 5, [])]
    assert (shard.format, shard.item_type, result.ignored) == ("megatron", "<u2", ())
    assert shard.size_bytes == path.stat().st_size + path.with_suffix(".idx").stat().st_size
    assert shard.digest == shard_digest(stored(tmp_path / "data", "a.bin"))[0]


@pytest.mark.parametrize("spelled", ["a.bin", "a.idx", "*.bin", "*.idx", "a.*", "*", ""])
def test_however_a_pair_is_named_it_is_the_same(tmp_path: Path, spelled: str) -> None:
    megatron(tmp_path / "data/a", SEQUENCES)
    whole = built(f"x={tmp_path / 'data'}").manifest
    result = built(f"x={tmp_path / 'data' / spelled}")
    assert result.manifest.digest == whole.digest
    assert result.ignored == ()


def test_both_halves_named_one_by_one(tmp_path: Path) -> None:
    megatron(tmp_path / "data/a", SEQUENCES)
    result = built(f"x={tmp_path / 'data/a.idx'}", f"x={tmp_path / 'data/a.bin'}")
    assert state_of(result) == [("a.bin", "clean", 5, [])]


def test_shards_stay_in_byte_order_and_beside_others(tmp_path: Path) -> None:
    for name in ("b", "a-", "a"):
        megatron(tmp_path / "data" / name, SEQUENCES)
    assert [shard.path for shard in built(tmp_path / "data").manifest.shards] == ["a-.bin", "a.bin", "b.bin"]


@pytest.mark.parametrize("gone", [".bin", ".idx"])
def test_a_missing_half_is_named(tmp_path: Path, gone: str) -> None:
    megatron(tmp_path / "data/a", SEQUENCES)
    megatron(tmp_path / "data/sub/b", SEQUENCES).with_suffix(gone).unlink()
    result = built(tmp_path / "data")
    assert state_of(result) == [("a.bin", "clean", 5, []), ("sub/b.bin", "excluded", 0, ["missing-half"])]
    detail = result.details.shard_findings[1][0].detail
    assert f"sub/b{gone} is missing" in detail
    assert result.ignored == ()


@pytest.mark.parametrize(("name", "gone"), [("x", ".bin"), ("x_text_document", ".idx"), ("x_text_sentence", ".idx")])
def test_a_half_that_shows_what_it_is_counts_alone(tmp_path: Path, name: str, gone: str) -> None:
    path = megatron(tmp_path / "data" / name, SEQUENCES)
    path.with_suffix(gone).unlink()
    assert state_of(built(tmp_path / "data")) == [(f"{name}.bin", "excluded", 0, ["missing-half"])]


def test_a_bin_alone_is_of_unknown_kind(tmp_path: Path) -> None:
    put(tmp_path / "text/model.bin", bytes(100))
    jsonl(tmp_path / "text/a.jsonl", ["one"])
    result = built(tmp_path / "text")
    assert [(item.path, item.reason) for item in result.ignored] == [("model.bin", "unknown kind")]
    with pytest.raises(UsageError, match="unknown kind"):
        built(tmp_path / "text/model.bin")


def test_an_idx_of_something_else_is_none(tmp_path: Path) -> None:
    put(tmp_path / "text/pack.idx", b"\xfftOc" + bytes(50))
    jsonl(tmp_path / "text/a.jsonl", ["one"])
    assert [(item.path, item.reason) for item in built(tmp_path / "text").ignored] == [("pack.idx", "unknown kind")]


def test_an_idx_whose_beginning_is_lost_still_has_its_bin(tmp_path: Path) -> None:
    path = megatron(tmp_path / "data/a", SEQUENCES)
    path.with_suffix(".idx").write_bytes(b"")
    assert state_of(built(tmp_path / "data")) == [("a.bin", "excluded", 0, ["bad-idx"])]


def test_a_bin_that_looks_like_a_gzip_stream_is_no_stream(tmp_path: Path) -> None:
    megatron(tmp_path / "data/a", [[0x8B1F, 0x0008, 3]])
    assert state_of(built(tmp_path / "data")) == [("a.bin", "clean", 3, [])]


@pytest.mark.parametrize("changed", [".bin", ".idx"])
def test_verify_sees_a_change_of_either_file(tmp_path: Path, changed: str) -> None:
    path = megatron(tmp_path / "data/a", SEQUENCES)
    build_manifest_file([str(tmp_path / "data")], tmp_path / "M.parquet")
    corpus = Corpus.open(tmp_path / "M.parquet")
    assert [check.state for check in verify_shards(corpus)] == ["same"]
    victim = path.with_suffix(changed)
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (check,) = verify_shards(corpus)
    assert (check.state, check.found_bytes) == ("changed", check.expected_bytes)
    victim.unlink()
    (check,) = verify_shards(corpus)
    assert (check.state, check.where) == ("missing", str(victim))


def test_bytes_that_move_from_one_file_to_the_other_change_the_digest(tmp_path: Path) -> None:
    put(tmp_path / "a.bin", b"12")
    put(tmp_path / "a.idx", b"34")
    before = shard_digest(stored(tmp_path, "a.bin"))
    put(tmp_path / "a.bin", b"123")
    put(tmp_path / "a.idx", b"4")
    after = shard_digest(stored(tmp_path, "a.bin"))
    assert before[1] == after[1] == 4
    assert before[0] != after[0]


def test_stamps_cover_every_file(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", SEQUENCES)
    shard = stored(tmp_path, "a.bin")
    before, size = shard.stamp(), shard.size_now()
    with path.with_suffix(".idx").open("ab") as file:
        file.write(b"!")
    assert shard.stamp() != before
    assert shard.size_now() == size + 1
    assert shard.changed_ns() == path.with_suffix(".idx").stat().st_ctime_ns
    path.unlink()
    assert shard.missing() == ["a.bin"]


def test_windows_of_a_pair_and_what_becomes_of_them(tmp_path: Path) -> None:
    path = megatron(tmp_path / "data/a", SEQUENCES)
    build_manifest_file([str(tmp_path / "data")], tmp_path / "M.parquet")
    with Corpus.open(tmp_path / "M.parquet").reader() as reader:
        ids, problems = reader.read_windows([0, 0], [1, 0], 2)
        assert (ids.tolist(), problems) == ([[3, 4], [1, 2]], {})
    moved = path.with_suffix(".idx").rename(tmp_path / "away.idx")
    with Corpus.open(tmp_path / "M.parquet").reader(retry=Retry(attempts=1)) as reader:
        problem = reader.read_windows([0], [0], 2)[1][0]
        assert isinstance(problem, RowProblem)
        assert problem.kind == "missing"
        assert "a.idx" in problem.detail
    moved.rename(path.with_suffix(".idx"))
    path.write_bytes(b"\x09" + path.read_bytes()[1:])
    with Corpus.open(tmp_path / "M.parquet").reader() as reader:
        assert reader.read_windows([0], [0], 2)[1][0].kind == "changed"


def test_an_interrupted_build_takes_a_kept_scan_only_where_no_file_changed(tmp_path: Path) -> None:
    path = megatron(tmp_path / "data/a", SEQUENCES)
    kept = tmp_path / "kept"
    kept.mkdir()
    first = build_manifest([str(tmp_path / "data")], partial_dir=kept).manifest
    assert build_manifest([str(tmp_path / "data")], partial_dir=kept).manifest == first
    megatron(tmp_path / "data/a", SEQUENCES, [0, 3])  # another index over the same .bin
    assert path.stat().st_size == 10
    second = build_manifest([str(tmp_path / "data")], partial_dir=kept).manifest
    assert second.shards[0].digest != first.shards[0].digest


def test_documents_and_sequences_are_counted_apart(tmp_path: Path) -> None:
    megatron(tmp_path / "a/x", SEQUENCES, [0, 1, 1, 3])
    megatron(tmp_path / "a/y", SEQUENCES)
    npy(tmp_path / "b/z.npy", [1, 2, 3])
    sources = [str(tmp_path / "a"), str(tmp_path / "b")]
    result, header = build_manifest_file(sources, tmp_path / "M.parquet")
    assert [(source.num_documents, source.num_sequences) for source in header.sources] == [(6, 6), (None, None)]
    shown = manifest_documents.shown(
        result.manifest, result.account, read_header(tmp_path / "M.parquet"), path="M", damaged=iter(())
    )
    assert [(source.num_documents, source.num_sequences) for source in shown.sources] == [(6, 6), (None, None)]
    assert "documents in a: 6 of 6 sequences" in list(render_shown(shown))
    assert result.manifest.blocks["group"].tolist() == [3, 3, -1]  # documents that begin in each block


def test_documents_of_tokens_are_told_through_the_reader(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a/x", SEQUENCES, [0, 1, 1, 3])
    npy(tmp_path / "b/z.npy", [1, 2, 3])
    build_manifest_file([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "M.parquet")
    with Corpus.open(tmp_path / "M.parquet").reader(retry=Retry(attempts=1)) as reader:
        found = reader.boundaries(0, 2, 4)
        assert isinstance(found, Boundaries)
        assert (found.first_document, found.documents.tolist()) == (0, [[0, 3], [3, 3], [3, 5]])
        assert reader.boundaries(1, 0, 3) is None
        for block, first, stop in ((0, 4, 6), (0, -1, 2), (0, 2, 2), (9, 0, 1)):
            with pytest.raises(NotInRun):
                reader.boundaries(block, first, stop)
        path.with_suffix(".idx").unlink()
        problem = reader.boundaries(0, 0, 2)
        assert isinstance(problem, RowProblem)
        assert problem.kind == "missing"
