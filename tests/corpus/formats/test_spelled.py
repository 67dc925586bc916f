"""A few kilobytes that stand for gigabytes: counted before they are spelled out, in every type that can do it."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.formats import ArrowIpc, ScanOptions
from dataguard.corpus.formats.columns import text_of_column
from dataguard.corpus.formats.spelled import may_repeat, spelled_bytes
from dataguard.errors import ShardDamaged
from tests.corpus.formats.support import MemoryShard, look
from tests.corpus.making import put

ROOT = Path(__file__).parents[3]
BIG = 50_000
LONG = 100_000


def arrow_file(column: pa.Array, name: str = "text") -> bytes:
    sink = io.BytesIO()
    table = pa.table({name: column})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def views(texts: list[bytes], which: list[int]) -> pa.Array:
    """Strings of more than 12 bytes as views of one buffer."""
    starts = np.cumsum([0, *map(len, texts)])
    entries = b"".join(
        np.array([len(texts[i])], "<i4").tobytes() + texts[i][:4] + np.array([0, starts[i]], "<i4").tobytes()
        for i in which
    )
    buffers = [None, pa.py_buffer(entries), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string_view(), len(which), buffers)


def bombs() -> dict[str, pa.Array]:
    """Each stands for 5 GB in less than a megabyte."""
    value = pa.array(["x" * LONG])
    zeros = pa.array(np.zeros(BIG, np.int32))
    dictionary = pa.DictionaryArray.from_arrays(zeros, value)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(BIG + 1, dtype=np.int32)), dictionary)
    list_view = pa.ListViewArray.from_arrays(zeros, pa.array(np.ones(BIG, np.int32)), value)
    return {
        "dictionary": dictionary,
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([BIG], pa.int32()), value),
        "views": views([b"x" * LONG], [0] * BIG),
        "lists of a dictionary": lists,
        "lists that overlap": list_view,
        "separators": pa.ListViewArray.from_arrays(
            zeros, pa.array(np.full(BIG, LONG, np.int32)), pa.array([""] * LONG)
        ),
        "struct": pa.StructArray.from_arrays([dictionary], names=["body"]),
    }


def test_it_is_told_before_it_is_spelled_out(tmp_path: Path) -> None:
    words = []
    for how, column in bombs().items():
        content = arrow_file(column)
        assert len(content) < 1_000_000
        words += [str(put(tmp_path / f"{how}.arrow", content)), "text.body" if how == "struct" else "text"]
        seen = look(ArrowIpc(), MemoryShard(content, "x.arrow"), text_field=words[-1])
        assert (how, seen.effect, seen.codes) == (how, "excluded", ["expands-too-much"])
    script = """
        import sys
        import dataguard.corpus.formats.registry
        from dataguard.corpus.build import build_manifest
        from dataguard.corpus.formats import ScanOptions
        from tests.support.memory import peak_bytes
        before, num_excluded = peak_bytes(), 0
        for path, field in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            result = build_manifest([path], options=ScanOptions(text_field=field), num_workers=1)
            num_excluded += result.account.total("num_excluded")
        print(num_excluded, peak_bytes() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *words],
        capture_output=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    num_excluded, grown = map(int, done.stdout.split())
    assert num_excluded == len(bombs())
    assert grown < 100 << 20


def test_what_no_row_names_counts_once() -> None:
    unused = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), bombs()["dictionary"])
    assert spelled_bytes(unused) == BIG * LONG


def test_a_batch_that_was_harmless_and_is_not_any_more_is_not_read() -> None:
    small = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9, np.int32)), ["x" * 100])
    shard = MemoryShard(arrow_file(small), "x.arrow")
    (block, _) = ArrowIpc().scan(shard, ScanOptions())
    assert ArrowIpc().read(shard, block.place, ScanOptions()).text is not None  # type: ignore[union-attr]
    with pytest.raises(ShardDamaged, match="spell out to 900 bytes of text, allowed are "):
        ArrowIpc().read(MemoryShard(shard.content, "x.arrow"), block.place, ScanOptions(  # type: ignore[union-attr]
            max_expansion=1, free_expansion_bytes=1))  # fmt: skip


def test_many_rows_of_a_fair_dictionary_are_read() -> None:
    texts = [f"category {i % 7}" for i in range(10_000)]
    seen = look(ArrowIpc(), MemoryShard(arrow_file(pa.array(texts).dictionary_encode()), "x.arrow"))
    assert (seen.effect, seen.documents) == ("clean", [text.encode() for text in texts])


_TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=8)


def _made(how: str, texts: list[str | None], which: list[int]) -> Any:
    values = pa.array(texts, pa.string())
    named = pa.array([i % len(texts) for i in which], pa.int64())
    if how == "dictionary":
        return pa.DictionaryArray.from_arrays(named, values)
    if how == "runs":
        return pa.RunEndEncodedArray.from_arrays(np.cumsum([i % 3 + 1 for i in range(len(texts))]), values)
    kind = {"string": pa.string(), "large": pa.large_string(), "view": pa.string_view(), "binary": pa.binary()}[how]
    return values.take(named).cast(kind)


@given(
    st.sampled_from(["dictionary", "runs", "string", "large", "view", "binary"]),
    _TEXTS, st.lists(st.integers(0, 99), min_size=1, max_size=12), st.integers(0, 5), st.integers(1, 9),
)  # fmt: skip
def test_the_count_is_the_length_of_what_is_read(
    how: str, texts: list[str | None], which: list[int], start: int, size: int
) -> None:
    array = _made(how, texts, which).slice(start, size)
    read = text_of_column(pa.chunked_array([array]), ["x"], 1 << 30).text.to_pylist()
    spelled = sum(len(text) for text in read if text is not None)
    unnamed = sum(len((text or "").encode()) for text in texts)
    assert spelled <= spelled_bytes(array) <= spelled + (unnamed if may_repeat(array.type) else 0)


@given(st.lists(st.one_of(st.none(), st.lists(st.text(max_size=5), max_size=4)), min_size=1, max_size=8))
def test_lists_count_a_separator_for_each_string(lists: list[list[str] | None]) -> None:
    for kind in (pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_view(pa.string())):
        expected = sum(len(text.encode()) + 1 for entry in lists for text in entry or [])
        assert spelled_bytes(pa.array(lists, kind)) == expected


def test_what_points_out_of_itself_is_refused() -> None:
    indices = pa.array([0, 7], pa.int32())
    wild = pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()), 2, [None, indices.buffers()[1]], pa.array(["a"])
    )
    with pytest.raises(IndexError, match="outside"):
        spelled_bytes(wild)
    lost = pa.Array.from_buffers(
        pa.list_view(pa.string()), 1, [None, pa.py_buffer(np.array([1], "<i4")), pa.py_buffer(np.array([9], "<i4"))],
        children=[pa.array(["a", "b"])],
    )  # fmt: skip
    with pytest.raises(IndexError, match="2 values"):
        spelled_bytes(lost)
