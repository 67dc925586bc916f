"""What is wrong with a shard is said so that somebody can mend it."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dataguard.corpus.build import BuildResult, build_manifest
from dataguard.corpus.formats import ArrowIpc, Parquet
from tests.corpus.formats.support import MemoryShard, look
from tests.corpus.making import megatron, put

CHAT = pa.table({"id": [1], "messages": [[{"role": "user", "content": "hi"}, {"role": "bot", "content": "ho"}]]})


def findings(result: BuildResult) -> list[tuple[str, str, str]]:
    """(shard, code, detail) of every finding about a whole shard."""
    return [
        (result.manifest.shards[shard].path, finding.code, finding.detail)
        for shard, found in result.details.shard_findings.items()
        for finding in found
    ]


def _written(table: pa.Table, how: str) -> MemoryShard:
    sink = io.BytesIO()
    if how == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return MemoryShard(sink.getvalue(), f"x.{how}")


@pytest.mark.parametrize("how", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_a_path_through_a_list_of_structs_says_what_is_allowed(how: str, kind: Any) -> None:
    inner = pa.struct([("role", pa.string()), ("content", pa.string())])
    table = CHAT.set_column(1, "messages", CHAT.column("messages").cast(kind(inner)))
    seen = look({"parquet": Parquet, "arrow": ArrowIpc}[how](), _written(table, how), text_field="messages.content")
    (finding,) = seen.end.findings
    assert finding.code == "missing-column"
    assert "'messages' is a list of structs (role, content)" in finding.detail
    assert "to a list of strings" in finding.detail
    struct_of_list = pa.table({"chat": [{"messages": [{"content": "hi"}]}]})
    seen = look(Parquet(), _written(struct_of_list, "parquet"), text_field="chat.messages.content")
    assert "'chat.messages' is a list of structs (content)" in seen.end.findings[0].detail
    seen = look(Parquet(), _written(CHAT, "parquet"), text_field="messages")
    assert seen.codes == ["not-a-text-column"]
    seen = look(Parquet(), _written(CHAT, "parquet"), text_field="id.content")
    assert "there are: id, messages" in seen.end.findings[0].detail


@pytest.mark.parametrize(("ending", "pack"), [(".zst", zstandard.ZstdCompressor().compress), (".gz", gzip.compress)])
def test_a_pair_whose_bin_is_compressed_is_told_as_such(tmp_path: Path, ending: str, pack: Any) -> None:
    megatron(tmp_path / "t/a", [[1, 2, 3], [4]])
    content = (tmp_path / "t/a.bin").read_bytes()
    put(tmp_path / "t" / f"a.bin{ending}", pack(content))
    (tmp_path / "t/a.bin").unlink()
    (told,) = findings(build_manifest([f"{tmp_path}/t"]))
    assert told[:2] == ("a.bin", "compressed-container")
    assert told[2].startswith(f"there is a.bin{ending} instead of a.bin: decompress it")
    (tmp_path / f"t/a.bin{ending}").unlink()
    assert [finding[1] for finding in findings(build_manifest([f"{tmp_path}/t"]))] == ["missing-half"]


def test_a_pair_whose_idx_is_compressed_is_told_as_such(tmp_path: Path) -> None:
    megatron(tmp_path / "t/a_document", [[1, 2, 3], [4]])
    put(tmp_path / "t/a_document.idx.zst", zstandard.compress((tmp_path / "t/a_document.idx").read_bytes()))
    (tmp_path / "t/a_document.idx").unlink()
    told = findings(build_manifest([f"{tmp_path}/t"]))
    assert ("a_document.bin", "compressed-container") in [finding[:2] for finding in told]


def _with_footer_of(front: pa.Table, back: pa.Table) -> bytes:
    """The messages of one file and the footer of another, whose messages lie at the same places."""
    one, other = (_written(table, "arrow").content for table in (front, back))
    (size,) = struct.unpack("<i", other[-10:-6])
    (own,) = struct.unpack("<i", one[-10:-6])
    return one[: len(one) - 10 - own] + other[len(other) - 10 - size :]


def test_an_arrow_footer_with_another_schema_is_told() -> None:
    front = pa.table({"text": ["one", "two"]})
    for back, words in (
        (pa.table({"test": ["one", "two"]}), "the footer says test: string; the message in front says text: string"),
        (pa.table({"text": pa.array([b"one", b"two"], pa.binary())}), "the footer says text: binary"),
    ):
        content = _with_footer_of(front, back)
        seen = look(ArrowIpc(), MemoryShard(content, "x.arrow"))
        assert (seen.effect, seen.codes, seen.documents) == ("flagged", ["footer-disagrees"], [b"one", b"two"])
        assert words in seen.end.findings[0].detail
    assert look(ArrowIpc(), MemoryShard(_with_footer_of(front, front), "x.arrow")).effect == "clean"


def test_a_footer_whose_schema_cannot_be_read_is_told() -> None:
    content = bytearray(_written(pa.table({"text": ["one"], "number": [7]}), "arrow").content)
    at = content.rindex(b"number")
    seen: set[str] = set()
    for place in range(at - 60, at):
        changed = bytearray(content)
        changed[place] ^= 0x55
        found = look(ArrowIpc(), MemoryShard(bytes(changed), "x.arrow"))
        assert found.documents == [b"one"]
        seen |= set(found.codes)
    assert "footer-disagrees" in seen
