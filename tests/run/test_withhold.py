"""Lists of rows to withhold: three spellings of one list, kept once, and every bad line named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import InputError, NotInRun, RunDamaged
from dataguard.run.layout import Layout
from dataguard.run.withhold import keep_list, list_digest, read_kept_list, read_withhold_file, resolve_targets
from tests.run.small import WEB, make_manifest

ROWS = [("web/a.jsonl", 3), ("web/b.jsonl", None), ("a.jsonl", 0)]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"list.{kind}"
    if kind == "parquet":
        table = pa.table({"score": [1.0, 2.0, 3.0], "shard": [s for s, _ in ROWS], "row": [r for _, r in ROWS]})
        pq.write_table(table, path)
    elif kind == "csv":
        path.write_text("shard,row,score\r\nweb/a.jsonl,3,1.0\r\nweb/b.jsonl,,2.0\r\na.jsonl,0,3.0\r\n")
    elif kind == "bom":
        path.write_bytes(b'\xef\xbb\xbfrow,shard\n3,web/a.jsonl\n,"web/b.jsonl"\n0,a.jsonl\n')
    elif kind == "jsonl":
        path.write_text('{"shard": "web/a.jsonl", "row": 3}\n\n{"shard": "web/b.jsonl", "row": null}\n'
                        '{"shard": "a.jsonl", "row": "0", "why": {"x": 1}}')  # fmt: skip
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "bom", "jsonl"])
def test_content_decides_what_a_list_is(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    path = path.rename(tmp_path / "list.txt")
    assert read_withhold_file(path) == ROWS


@pytest.mark.parametrize("kind", ["float", "categorical"])
def test_columns_as_other_tools_write_them(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "list.parquet"
    if kind == "float":
        pq.write_table(pa.table({"shard": ["web/a.jsonl"], "row": pa.array([3.0])}), path)
        assert read_withhold_file(path) == [("web/a.jsonl", 3)]
    else:
        pq.write_table(pa.table({"shard": pa.array(["web/a.jsonl"]).dictionary_encode()}), path)
        assert read_withhold_file(path) == [("web/a.jsonl", None)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no column 'shard'\n  found: an empty file"),
        (b"shard,row\n", "names no shard"),
        (b"name,row\na,1\n", "no column 'shard'\n  found: name, row"),
        (b"shard,row\na,1\nb,x\n", "line 3: row 'x' is no whole number"),
        (b"shard,row\na,-1\n", "line 2: row -1 cannot be"),
        (b"shard,row\na,1.5\n", "line 2: row '1.5' is no whole number"),
        (b"shard,row\n,1\n", "line 2: shard '' is no name"),
        (b'shard,row\n"a,1\n', "is no CSV"),
        (b"\xff\xfe\x00", "neither Parquet nor text"),
        (b'{"shard": "a"}\n{"row": 1}\n', "line 2 is no object with a shard"),
        (b'{"shard": "a"}\n{"shard": 1}\n', "line 2 is no object with a shard"),
        (b'{"shard": "a", "row": true}\n', "line 1 is no object with a shard"),
        (b'{"shard": "a", "row": 1.5}\n', "line 1 is no object with a shard"),
        (b'{"shard": "\xff"}\n', "line 1 is no object with a shard"),
        (b"PAR1 and then nothing", "is damaged"),
    ],
)
def test_what_is_no_list_is_told_with_its_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_withhold_file(tmp_path / "list")
    assert says in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read\n  found: No such file"):
        read_withhold_file(tmp_path / "nothing")


def test_names_become_canonical_and_stand_once() -> None:
    manifest = make_manifest(WEB)
    asked = [("b.jsonl", None), ("web/b.jsonl", 3), ("web/b.jsonl", None), ("web/a.jsonl", 99), ("code/a.jsonl", 0)]
    assert resolve_targets(asked, [manifest], seq_len=None) == [
        ("code/a.jsonl", 0),
        ("web/a.jsonl", 99),
        ("web/b.jsonl", None),
        ("web/b.jsonl", 3),
    ]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (("web/c.jsonl", None), "no shard is called 'web/c.jsonl'"),
        (("a.jsonl", None), "2 shards are called 'a.jsonl'"),
        (("web/a.jsonl", 100), "row 100 is not in shard web/a.jsonl\n  allowed: 0:100"),
    ],
)
def test_what_no_manifest_holds_is_told(target: tuple[str, int | None], says: str) -> None:
    with pytest.raises(NotInRun) as caught:
        resolve_targets([target], [make_manifest(WEB)], seq_len=None)
    assert says in str(caught.value)


def test_rows_of_token_shards_are_windows() -> None:
    manifest = make_manifest({"tok/a.npy": 100}, kind="tokens")
    assert resolve_targets([("tok/a.npy", 6)], [manifest], seq_len=14) == [("tok/a.npy", 6)]
    with pytest.raises(NotInRun, match=r"window 7 is not in shard tok/a\.npy\n  allowed: 0:7"):
        resolve_targets([("tok/a.npy", 7)], [manifest], seq_len=14)


def test_a_shard_may_stand_in_any_manifest() -> None:
    manifests = [make_manifest(WEB), make_manifest({"web/a.jsonl": 120, "web/c.jsonl": 5})]
    asked = [("web/a.jsonl", 110), ("web/c.jsonl", 1), ("code/a.jsonl", None)]
    for order in (manifests, manifests[::-1]):
        assert set(resolve_targets(asked, order, seq_len=None)) == set(asked)
    # One name, two shards, though each manifest holds but one of them.
    others = [make_manifest({"web/x.jsonl": 1}), make_manifest({"code/x.jsonl": 1})]
    with pytest.raises(NotInRun, match=r"2 shards are called 'x\.jsonl'\n  found: code/x\.jsonl, web/x\.jsonl"):
        resolve_targets([("x.jsonl", None)], others, seq_len=None)


targets = st.lists(st.tuples(st.text(min_size=1, max_size=5), st.none() | st.integers(0, 2**62)), max_size=8)


@settings(max_examples=30)
@given(targets)
def test_a_kept_list_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int | None]]) -> None:
    try:
        for shard, _ in rows:
            shard.encode()
    except UnicodeEncodeError:
        return
    layout = Layout(tmp_path_factory.mktemp("run"))
    digest = keep_list(layout, rows)
    kept = read_kept_list(layout, digest)
    assert set(kept) == set(rows)
    assert len(kept) == len(set(rows))
    assert keep_list(layout, list(reversed(rows))) == digest == list_digest(kept)


@given(targets, targets)
def test_different_lists_have_different_digests(
    a: list[tuple[str, int | None]], b: list[tuple[str, int | None]]
) -> None:
    try:
        equal = list_digest(a) == list_digest(b)
    except UnicodeEncodeError:
        return
    assert equal == (set(a) == set(b))


def test_a_changed_copy_is_told(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    digest, other = keep_list(layout, [("web/a", 1)]), keep_list(layout, [("web/a", 2)])
    layout.withheld(digest).write_bytes(layout.withheld(other).read_bytes())
    with pytest.raises(RunDamaged, match="other rows than its name says"):
        read_kept_list(layout, digest)
    layout.withheld(digest).write_bytes(b"PAR1")
    with pytest.raises(RunDamaged, match="cannot be read"):
        read_kept_list(layout, digest)
    layout.withheld(digest).unlink()
    with pytest.raises(RunDamaged, match="cannot be read"):
        read_kept_list(layout, digest)
