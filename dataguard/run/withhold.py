"""Which rows does a file ask to withhold, and how does the run keep that list?

A list is Parquet, CSV or JSON lines with the columns ``shard`` (``SOURCE/path``, or an ending of it that only one
shard has) and, where single rows are meant, ``row``; an absent or empty row means the whole shard. Content decides
which of the three it is, not the name. Other columns are ignored, so the list an audit writes can be given as it is.

The run keeps its own immutable copy, ``withheld/<digest>.parquet``: canonical names, sorted, each row once. Its digest
is taken over those rows and not over Parquet bytes, which differ between versions of the library that writes them.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from dataguard.core.manifest import Manifest
from dataguard.corpus.whole_parquet import read_whole
from dataguard.errors import InputError, NotInRun, RunDamaged
from dataguard.run.atomic import publish_new
from dataguard.run.layout import Layout

__all__ = ["Target", "keep_list", "list_digest", "read_kept_list", "read_withhold_file", "resolve_targets"]

Target = tuple[str, int | None]
"""A shard and one of its rows, or None for the whole shard."""


class _Line(msgspec.Struct, frozen=True):
    shard: str
    row: int | str | None = None


def read_withhold_file(path: str | Path, *, seq_len: int | None = None, may_be_empty: bool = False) -> list[Target]:
    """Shards and rows as they stand in a file, in its order; InputError names the line that cannot be read.

    Parameters
    ----------
    path
        The file.
    seq_len
        Tokens of a window of the run, where its rows are windows; a list that an audit made of windows of another
        length is refused, for its rows mean other tokens.
    may_be_empty
        Take a list that an audit wrote and that names nothing: it had nothing to withhold.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"withhold file {path} cannot be read", found=error.strerror) from error
    is_answer = False
    if raw[:4] == b"PAR1":
        is_answer = _check_audited(raw, str(path), seq_len) and may_be_empty
        rows = _parquet_rows(raw, str(path))
    elif raw.lstrip()[:1] == b"{":
        rows = _json_rows(raw, str(path))
    else:
        rows = _csv_rows(raw, str(path))
    targets = [(shard, _row(row, where)) for shard, row, where in rows]
    if not targets and not is_answer:
        raise InputError(f"withhold file {path} names no shard", allowed=_ALLOWED)
    return targets


def resolve_targets(targets: Iterable[Target], manifests: Iterable[Manifest], *, seq_len: int | None) -> list[Target]:
    """The same with canonical names, sorted, each once; NotInRun names what no manifest holds.

    Parameters
    ----------
    manifests
        Where a shard of one name stands in several, a row is allowed if any of them holds it.
    seq_len
        Tokens of a window, where rows are windows; None where they are records.
    """
    known = _known_shards(manifests, seq_len)
    names: dict[str, str] = {}
    resolved: set[Target] = set()
    for name, row in targets:
        if name not in names:
            names[name] = _find(name, known)
        shard = names[name]
        if row is not None and not 0 <= row < known[shard]:
            what = "row" if seq_len is None else "row or window"
            raise NotInRun(f"{what} {row:,} is not in shard {shard}", allowed=f"0:{known[shard]:,}")
        resolved.add((shard, row))
    return sorted(resolved, key=_order)


def list_digest(targets: Iterable[Target]) -> str:
    """SHA-256 over sorted targets, hexadecimal.

    >>> list_digest([("web/a", 3), ("web/a", None)])[:16]
    'a4070bbebf97a994'
    """
    sha = hashlib.sha256(b"dataguard-withheld-1")
    for shard, row in sorted(set(targets), key=_order):
        name = shard.encode()
        sha.update(struct.pack("<Q", len(name)) + name + struct.pack("<q", -1 if row is None else row))
    return sha.hexdigest()


def keep_list(layout: Layout, targets: Iterable[Target]) -> str:
    """Write the run's own copy (once) and return its digest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted(set(targets), key=_order)
    digest = list_digest(rows)
    table = pa.table(
        {"shard": pa.array([s for s, _ in rows], pa.string()), "row": pa.array([r for _, r in rows], pa.int64())}
    )
    sink = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({"dataguard": "withheld-1", "digest": digest}),
        sink,
        compression="zstd",
        write_page_checksum=True,
    )
    publish_new(layout.withheld(digest), sink.getvalue(), tmp=layout.tmp)
    return digest


def read_kept_list(layout: Layout, digest: str) -> list[Target]:
    """The run's own copy, sorted; RunDamaged where it is missing or holds other rows than its name says."""
    import pyarrow as pa

    path = layout.withheld(digest)
    try:
        with path.open("rb") as file:
            table = read_whole(file, columns=["shard", "row"])
    except (OSError, pa.ArrowException, KeyError) as error:
        raise RunDamaged(f"the list of withheld rows {path} cannot be read", found=str(error)) from error
    rows = [(str(shard), row) for shard, row in zip(table["shard"].to_pylist(), table["row"].to_pylist(), strict=True)]
    found = list_digest(rows)
    if found != digest:
        raise RunDamaged(f"{path} holds other rows than its name says", found=found, allowed=digest)
    return rows


_ALLOWED = "Parquet, CSV or JSON lines with the columns shard and, for single rows, row"


def _order(target: Target) -> tuple[bytes, int]:
    return target[0].encode(), -1 if target[1] is None else target[1]


def _known_shards(manifests: Iterable[Manifest], seq_len: int | None) -> dict[str, int]:
    """Number of rows (or windows) of every shard by name; the largest where several manifests hold it."""
    known: dict[str, int] = {}
    for manifest in manifests:
        for number, shard in enumerate(manifest.shards):
            name = manifest.shard_name(number)
            # a run of windows may leave text sources out by their weight, and the list of an audit names their rows
            is_cut = seq_len is not None and manifest.sources[shard.source].kind == "tokens"
            num_rows = shard.num_rows // seq_len if is_cut and seq_len else shard.num_rows
            known[name] = max(known.get(name, 0), num_rows)
    return known


def _find(name: str, known: dict[str, int]) -> str:
    """The one shard of that name, or whose name ends with it as a path does."""
    if name in known:
        return name
    ends = sorted(each for each in known if each.endswith("/" + name))
    if len(ends) == 1:
        return ends[0]
    if ends:
        shown = ", ".join(ends[:4]) + (", ..." if len(ends) > 4 else "")
        raise NotInRun(f"{len(ends)} shards are called {name!r}", found=shown, todo="name it as SOURCE/path")
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
    raise NotInRun(
        f"no shard is called {name!r}",
        found=f"{len(known):,} shards" + (f", the nearest {', '.join(near)}" if near else ""),
        todo="list them with: dataguard manifest show M --shards",
    )


def _row(value: object, where: str) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]+", str(value).strip(), re.ASCII):
        raise InputError(f"{where}: row {value!r} is no whole number", allowed="rows count from 0")
    row = int(str(value))
    if row < 0:
        raise InputError(f"{where}: row {row} cannot be", allowed="rows count from 0")
    return row


def _check_audited(raw: bytes, name: str, seq_len: int | None) -> bool:
    """Whether an audit wrote the list; InputError where its windows are not those of the run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(io.BytesIO(raw)).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"withhold file {name} is damaged", found=str(error)) from error
    windows = metadata.get(b"seq_len")
    if seq_len is not None and windows is not None and windows != str(seq_len).encode():
        raise InputError(
            f"withhold file {name} names windows of another length",
            found=f"windows of {windows.decode()} tokens",
            allowed=f"windows of {seq_len} tokens",
            todo=f"audit with --seq-len {seq_len}",
        )
    return _AUDITED in metadata


_AUDITED = b"dataguard.withhold"
"""In the schema's metadata of lists that an audit wrote."""


def _parquet_rows(raw: bytes, name: str) -> Iterator[tuple[str, object, str]]:
    import pyarrow as pa

    try:
        table = read_whole(io.BytesIO(raw))
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"withhold file {name} is damaged", found=str(error)) from error
    if "shard" not in table.column_names:
        raise InputError(
            f"withhold file {name} has no column 'shard'", found=", ".join(table.column_names), allowed=_ALLOWED
        )
    shards = table["shard"].to_pylist()
    rows = table["row"].to_pylist() if "row" in table.column_names else [None] * len(shards)
    for i, (shard, row) in enumerate(zip(shards, rows, strict=True)):
        where = f"{name}, row {i:,}"
        if not isinstance(shard, str) or not shard:
            raise InputError(f"{where}: shard {shard!r} is no name", allowed=_ALLOWED)
        yield shard, row, where


def _json_rows(raw: bytes, name: str) -> Iterator[tuple[str, object, str]]:
    decoder = msgspec.json.Decoder(_Line)
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number:,}"
        try:
            entry = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{where} is no object with a shard", found=str(error), allowed=_ALLOWED) from error
        if not entry.shard:
            raise InputError(f"{where}: shard '' is no name", allowed=_ALLOWED)
        yield entry.shard, entry.row, where


def _csv_rows(raw: bytes, name: str) -> Iterator[tuple[str, object, str]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"withhold file {name} is neither Parquet nor text", found=str(error), allowed=_ALLOWED
        ) from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = reader.fieldnames or ()
        if "shard" not in header:
            found = ", ".join(header)[:200] or "an empty file"
            raise InputError(f"withhold file {name} has no column 'shard'", found=found, allowed=_ALLOWED)
        for entry in reader:
            where = f"{name}, line {reader.line_num:,}"
            if not entry["shard"]:
                raise InputError(f"{where}: shard {entry['shard']!r} is no name", allowed=_ALLOWED)
            yield entry["shard"], entry.get("row"), where
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num:,} is no CSV", found=str(error), allowed=_ALLOWED) from error
