"""What do other readers say of every file of other people's that the developers keep? The maker of outcomes.tsv.

Nothing of dataguard is imported here. Bytes are decoded by gzip and zstandard, JSON by json, Parquet and Arrow by
pyarrow, arrays by NumPy, archives by tarfile; what the product promises to do with what they find (which effect, which
reason) is written down a second time, in the plainest way. Run it as

    python -m tests.corpus.other_readers FOLDER_OF_REAL_FILES > tests/corpus/outcomes.tsv

A row is a file as `manifest build` meets it in its folder, with ``--text-field`` as the row names it. ``*`` stands for
what no other reader can know (whose code a library's complaint becomes); the effect ``damaged`` for flagged or
excluded, whichever. The column ``explained`` is written by hand, for rows where our answer is right and the other
reader's is not ours; it is kept when the table is made anew.
"""

from __future__ import annotations

import collections
import gzip
import io
import json
import re
import sys
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import zstandard

TABLE = Path(__file__).with_name("outcomes.tsv")
COLUMNS = ("path", "text_field", "format", "delivered", "rejected", "effect", "reasons", "explained")
ANY = "*"
MAX_DEPTH = 512


class Outcome(NamedTuple):
    """What should become of one file; counts are numbers or ``*``."""

    path: str
    text_field: str = "text"
    format: str = "-"
    delivered: str = "0"
    rejected: str = "0"
    effect: str = "ignored"
    reasons: str = "unknown kind"
    explained: str = ""


def read_table(path: Path = TABLE) -> list[Outcome]:
    """The table as it is committed."""
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    assert tuple(head.split("\t")) == COLUMNS
    return [Outcome(*row.split("\t")) for row in rows]


def outcome_of(root: Path, path: Path) -> Outcome:
    """What should become of one file, by other readers."""
    name = path.relative_to(root).as_posix()
    raw = path.read_bytes()
    if _is_marker(path):
        return Outcome(name, reasons="marker")
    decoded, trouble = _decoded(raw)
    plain_name = re.sub(r"\.(gz|zst)$", "", path.name, flags=re.IGNORECASE).lower()
    for known, reader in _BY_SIGN:
        if known(decoded, plain_name, path):
            return reader(name, path, decoded)
    if _is_json_lines(decoded, plain_name):
        return _json_lines(name, decoded, trouble)
    return Outcome(name)


def _decoded(raw: bytes) -> tuple[bytes, str]:
    """All bytes that could be decoded, and the reason why it ended there."""
    if raw[:2] == b"\x1f\x8b":
        content = b""
        try:
            with gzip.open(io.BytesIO(raw)) as file:
                while part := file.read(4096):
                    content += part
        except EOFError:
            return content, "truncated-stream"
        except (OSError, zlib.error):
            return content, "corrupt-stream"
        return content, ""
    if raw[:4] == b"\x28\xb5\x2f\xfd":
        content = b""
        try:
            reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True)
            while part := reader.read(4096):
                content += part
        except zstandard.ZstdError:
            return content, "corrupt-stream"
        return content, ""
    return raw, ""


def _is_marker(path: Path) -> bool:
    """What other tools put beside data."""
    beside = {entry.name for entry in path.parent.iterdir()}
    return (
        path.name in ("dataset_info.json", "PROVENANCE.md")
        or (path.name == "state.json" and "dataset_info.json" in beside)
        or (path.name == "index.json" and '"shards"' in path.read_text()[:100])  # of MosaicML shards
    )


# JSON lines


def _is_json_lines(content: bytes, plain_name: str) -> bool:
    """One object a line somewhere in the first 64 KiB; else by a name that promises it."""
    head = content[: 1 << 16].removeprefix(b"\xef\xbb\xbf")
    lines = [line for line in head.split(b"\n") if line.strip()]
    if lines and lines[0].strip(b"[{ \t\r"):
        if any(_judge(line, "text")[0] not in _NO_OBJECT for line in lines):
            return True
        if len(lines) == 1 and not head.endswith(b"\n") and re.match(rb'[ \t\r]*\{[ \t\r]*"', lines[0]):
            return True
    if plain_name.endswith((".jsonl", ".ndjson", ".jsonlines")):
        return True
    return plain_name.endswith(".json") and head.lstrip()[:1] not in (b"{", b"[")


_NO_OBJECT = ("invalid-json", "invalid-utf8", "not-an-object", "lone-surrogate", "too-deep")


def _judge(line: bytes, text_field: str) -> tuple[str, bytes]:
    """(reason why a line is no document, or an empty string; its text)."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return "invalid-utf8", b""
    if _depth(text) > MAX_DEPTH:
        return "too-deep", b""
    seen: list[list[tuple[str, Any]]] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        seen.append(found)  # the outermost object is the last to end
        return dict(found)

    def no_json(word: str) -> None:
        raise ValueError(word)

    try:
        sys.set_int_max_str_digits(0)
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=no_json)
    except ValueError:
        return "invalid-json", b""
    if _has_lone_surrogate(value):
        return "lone-surrogate", b""
    if not isinstance(value, dict):
        return "not-an-object", b""
    count = sum(key == text_field for key, _ in seen[-1])
    if count != 1:
        return ("duplicate-text" if count else "missing-text"), b""
    found = value[text_field]
    if isinstance(found, list) and all(isinstance(entry, str) for entry in found):
        found = "\n".join(found)
    if found is None or (isinstance(found, list) and None in found):
        return "null-text", b""
    return ("", found.encode()) if isinstance(found, str) else ("not-a-string", b"")


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in re.sub(r'"(?:[^"\\]|\\.)*(?:"|$)', "", text, flags=re.DOTALL):
        depth += (char in "[{") - (char in "]}")
        deepest = max(deepest, depth)
    return deepest


def _has_lone_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return bool(re.search("[\ud800-\udfff]", value))
    if isinstance(value, dict):
        return any(_has_lone_surrogate(part) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(map(_has_lone_surrogate, value))


def _json_lines(name: str, content: bytes, trouble: str) -> Outcome:
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if trouble:
        lines.pop()  # half a record is none
    lines = [line.removesuffix(b"\r") for line in lines if line.strip(b" \t\r")]
    text_field = _text_key(lines)
    codes = [_judge(line, text_field)[0] for line in lines]
    counts = collections.Counter(code for code in codes if code)
    shard = [trouble] if trouble else []
    # a line of which only a surrogate or the depth is wrong may be an object all the same
    surely_none = ("invalid-json", "invalid-utf8", "not-an-object")
    if lines and (all(code in surely_none for code in codes) or _is_one_document(lines, codes)):
        shard.append("not-json-lines")
    return _outcome(name, text_field, "jsonl", codes.count(""), counts, shard)


def _is_one_document(lines: list[bytes], codes: list[str]) -> bool:
    first, last = lines[0].lstrip(), lines[-1].rstrip()
    no_json = ("invalid-json", "invalid-utf8")
    return codes[0] in no_json and codes[-1] in no_json and (
        (first[:1] == b"[" and last[-1:] == b"]")
        or (not first.strip(b"[{ \t\r") and not last.strip(b"]} \t\r"))
    )  # fmt: skip


def _text_key(lines: list[bytes]) -> str:
    """``text``, or the first key that has a string in the first record that has any."""
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            strings = [key for key, value in record.items() if isinstance(value, str) and key and key.isprintable()]
            if strings:
                return "text" if "text" in record else strings[0]
    return "text"


# Columns


def _text_column(schema: pa.Schema) -> str:
    """The first column of strings or bytes; ``text`` where there is none."""
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        if any(check(kind) for check in checks) and schema.names.count(field.name) == 1:
            return str(field.name)
    return "text"


def _codes_of_column(column: pa.ChunkedArray) -> tuple[int, collections.Counter[str]]:
    counts: collections.Counter[str] = collections.Counter()
    good = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_decode()
        for value in chunk.cast(pa.large_binary()).to_pylist():
            if value is None:
                counts["null-text"] += 1
                continue
            try:
                value.decode("utf-8")
                good += 1
            except UnicodeDecodeError:
                counts["invalid-utf8"] += 1
    return good, counts


def _parquet(name: str, path: Path, _: bytes) -> Outcome:
    try:
        opened = pq.ParquetFile(path, page_checksum_verification=True)
        schema = opened.schema_arrow
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        code = "encrypted" if "encrypt" in str(error) else "bad-footer"
        return _outcome(name, "text", "parquet", 0, {}, [code])
    text_field = _text_column(schema)
    if text_field not in schema.names:
        return _outcome(name, text_field, "parquet", 0, {}, ["missing-column"])
    good, num_read, shard = 0, 0, set()
    counts: collections.Counter[str] = collections.Counter()
    for group in range(opened.num_row_groups):
        num_rows = opened.metadata.row_group(group).num_rows
        try:
            table = opened.read_row_group(group, columns=[text_field], use_threads=False)
            table.validate()
            if table.num_rows != num_rows:
                raise ValueError("other rows than the footer says")
            more, others = _codes_of_column(table.column(text_field))
        except Exception:  # noqa: BLE001 - whatever it raises is its answer
            counts["unreadable-group"] += num_rows
            shard.add("damaged-groups")
            continue
        num_read += 1
        good += more
        counts += others
    if shard and not num_read:
        shard = {"unreadable-groups"}
    if opened.metadata.num_rows != good + counts.total():
        shard.add("wrong-row-count")
    return _outcome(name, text_field, "parquet", good, counts, sorted(shard))


def _arrow(name: str, path: Path, content: bytes) -> Outcome:
    """Files and streams; one that pyarrow does not read to its end is damaged, however much is delivered."""
    is_file = content.startswith(b"ARROW1")
    try:
        if is_file:
            opened = pa.ipc.open_file(path)
            batches = [opened.get_batch(i) for i in range(opened.num_record_batches)]
        else:
            opened = pa.ipc.open_stream(pa.OSFile(str(path)))
            batches = list(opened)
        table = pa.Table.from_batches(batches, opened.schema)
        text_field = _text_column(table.schema)
        table.validate(full=True)
    except Exception:  # noqa: BLE001 - whatever it raises is its answer
        return Outcome(name, "text", ANY, ANY, ANY, "damaged", ANY)
    if text_field not in table.schema.names:
        return _outcome(name, text_field, "arrow", 0, {}, ["missing-column"])
    good, counts = _codes_of_column(table.column(text_field))
    return _outcome(name, text_field, "arrow", good, counts, [])


# Tokens, archives


def _npy(name: str, path: Path, _: bytes) -> Outcome:
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError:
        return Outcome(name, "text", "npy", "0", "0", "excluded", ANY)
    if array.dtype.kind not in "iu":
        return _outcome(name, "text", "npy", 0, {}, ["not-integers"])
    return _outcome(name, "text", "npy", array.size, {}, [])


def _megatron(name: str, path: Path, content: bytes) -> Outcome:
    """By the layout of Megatron-LM's indexed datasets; the index is told with its tokens, not apart."""
    if path.suffix == ".idx":
        return Outcome(name, reasons="companion")
    index = path.with_suffix(".idx").read_bytes()
    kind = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}[index[17]]
    num_sequences, num_documents = np.frombuffer(index, "<i8", 2, 18).tolist()
    lengths = np.frombuffer(index, "<i4", num_sequences, 34)
    pointers = np.frombuffer(index, "<i8", num_sequences, 34 + 4 * num_sequences)
    width = np.dtype(kind).itemsize
    assert pointers.tolist() == [0, *np.cumsum(lengths[:-1] * np.int64(width)).tolist()]
    assert int(lengths.sum()) * width == len(content), num_documents
    return _outcome(name, "text", "megatron", int(lengths.sum()), {}, [])


def _mds(name: str, path: Path, _: bytes) -> Outcome:
    index = json.loads((path.parent / "index.json").read_text())
    (entry,) = [shard for shard in index["shards"] if shard["raw_data"]["basename"] == path.name]
    columns = zip(entry["column_names"], entry["column_encodings"], strict=True)
    strings = [column for column, encoding in columns if encoding == "str"]
    if not strings:
        return _outcome(name, "text", "mds", 0, {}, ["missing-column"])
    return _outcome(name, strings[0], "mds", entry["samples"], {}, [])


def _tar(name: str, path: Path, content: bytes) -> Outcome:
    """As webdataset groups: consecutive members of one key; a key ends at the first dot of the base name."""
    counts: collections.Counter[str] = collections.Counter()
    good = 0
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        groups: list[tuple[str, dict[str, bytes]]] = []
        for member in archive:
            split = re.fullmatch(r"((?:.*/|)[^.]+)[.]([^/]*)", member.name)
            if not member.isfile() or split is None:
                continue
            if not groups or groups[-1][0] != split[1]:
                groups.append((split[1], {}))
            file = archive.extractfile(member)
            assert file is not None
            groups[-1][1][split[2].lower()] = file.read()
    for _, members in groups:
        text = None
        for ending in ("text", "txt"):
            if ending in members:
                text = members[ending]
            elif f"{ending}.gz" in members:
                text = gzip.decompress(members[f"{ending}.gz"])
        if text is None:
            counts["missing-text"] += 1
        else:
            text.decode("utf-8")
            good += 1
    return _outcome(name, "text", "webdataset", good, counts, [])


def _is_stream(content: bytes, _: str, path: Path) -> bool:
    is_named = path.suffix in (".arrow", ".stream", ".arrow_file") or "arrow/" in path.as_posix()
    return content.startswith(b"ARROW1") or (is_named and path.suffix != ".md")


_BY_SIGN: list[tuple[Callable[[bytes, str, Path], bool], Callable[[str, Path, bytes], Outcome]]] = [
    (lambda content, name, _: content[:4] == b"PAR1" or name.endswith((".parquet", ".pq")), _parquet),
    (_is_stream, _arrow),
    (lambda content, name, _: content[:6] == b"\x93NUMPY" or name.endswith(".npy"), _npy),
    (lambda content, _, __: content[257:262] == b"ustar", _tar),
    (lambda _, __, path: path.with_suffix(".idx").is_file() and path.suffix in (".bin", ".idx"), _megatron),
    (lambda _, name, __: name.endswith(".mds"), _mds),
]


def _outcome(name: str, text_field: str, kind: str, delivered: int, counts: Any, shard: list[str]) -> Outcome:
    """By the table of reasons: what excludes a shard takes its records out of the account."""
    flagging = {"damaged-groups", "wrong-row-count", "truncated-stream", "trailing-bytes"}
    effect = "clean" if not shard else "flagged" if delivered and set(shard) <= flagging else "excluded"
    reasons = [*shard, *(f"{code}:{counts[code]}" for code in sorted(counts) if effect != "excluded")]
    if effect == "excluded":
        delivered, counts = 0, {}
    return Outcome(
        name, text_field, kind, str(delivered), str(sum(counts.values())), effect, ",".join(sorted(reasons)) or "-"
    )  # fmt: skip


def _lines(root: Path) -> Iterator[str]:
    explained = {row.path: row.explained for row in read_table()} if TABLE.exists() else {}
    yield "\t".join(COLUMNS)
    for path in sorted((entry for entry in root.rglob("*") if entry.is_file()), key=lambda entry: str(entry).encode()):
        row = outcome_of(root, path)
        yield "\t".join(row._replace(explained=explained.get(row.path, "")))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(100_000)
    rows = list(_lines(Path(sys.argv[1])))
    print("\n".join(rows))
