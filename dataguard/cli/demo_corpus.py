"""What real text does every machine with Python have?

The standard library: its source files, and the documentation strings in them. `write_demo_corpus` lays them out as a
small corpus of two sources, with one shard cut short on purpose:

- ``code/part-N.jsonl.zst``: one record a source file, JSON lines in one zstd frame with checksum;
- ``docs/part-N.parquet``: one record a documentation string, in row groups of 100.

Which text stands where depends on the Python version alone: files are taken in the byte order of their paths.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dataguard.errors import InputError

__all__ = ["DemoCorpus", "write_demo_corpus"]

_NUM_SHARDS = 4
_NUM_FILES = 400
_NUM_STRINGS = 4_000
_ROW_GROUP_ROWS = 100
_MOST_BYTES = 64_000  # of one source file: the demo is brisk
_FEWEST_CHARACTERS = 40  # of a documentation string
_FEWEST_FILES = 40
_KEPT_OF_DAMAGED = 0.6
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "turtledemo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCorpus:
    """What was written."""

    sources: tuple[str, ...]
    """Names of the two folders, which become the names of the sources."""
    num_files: int
    """Records of ``code``, those of the damaged shard included."""
    num_strings: int
    """Records of ``docs``."""
    damaged: str
    """Name of the shard that was cut short."""
    damaged_bytes: tuple[int, int]
    """Its size before and after."""


def write_demo_corpus(folder: Path, *, library: Path | None = None) -> DemoCorpus:
    """Write the corpus into `folder`, which exists.

    Parameters
    ----------
    folder
        Gets the folders ``code`` and ``docs``.
    library
        Where the sources are read from; the standard library of this Python where None.

    Raises
    ------
    InputError
        This Python comes without the sources of its standard library (some embedded ones do).
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    files = list(_source_files(library))[:_NUM_FILES]
    strings = [string for name, text in files for string in _documentation(name, text)][:_NUM_STRINGS]
    if len(files) < _FEWEST_FILES or len(strings) < _FEWEST_FILES:
        raise InputError(
            "the demo reads the sources of Python's standard library, and this Python has too few of them",
            found=f"{len(files):,} files and {len(strings):,} documentation strings in {library}",
            allowed=f"at least {_FEWEST_FILES} of each",
            todo="try another Python, or go on with data of your own: dataguard manifest build PATH -o M.parquet",
        )
    code = [{"text": text, "path": name} for name, text in files]
    for shard in range(_NUM_SHARDS):
        _write_json_lines(folder / "code" / f"part-{shard}.jsonl.zst", code[shard::_NUM_SHARDS])
        _write_parquet(folder / "docs" / f"part-{shard}.parquet", strings[shard::_NUM_SHARDS])
    damaged = f"part-{_NUM_SHARDS - 1}.jsonl.zst"
    return DemoCorpus(
        sources=("code", "docs"),
        num_files=len(files),
        num_strings=len(strings),
        damaged=f"code/{damaged}",
        damaged_bytes=_cut(folder / "code" / damaged),
    )


def _source_files(library: Path) -> Iterator[tuple[str, str]]:
    """(relative path, text) of the library's modules, in byte order of their paths; what is no UTF-8 is left out."""
    found = {path.relative_to(library).as_posix(): path for path in library.rglob("*.py")}
    for name in sorted(found, key=str.encode):
        path = found[name]
        if _LEFT_OUT.isdisjoint(Path(name).parts) and 0 < path.stat().st_size <= _MOST_BYTES:
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def _documentation(name: str, text: str) -> Iterator[dict[str, str]]:
    """The documentation strings of one source file, with the dotted names of what they document."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in somebody else's strings
        tree = ast.parse(text, filename=name)
    todo: list[tuple[str, ast.AST]] = [(name.removesuffix(".py").replace("/", "."), tree)]
    while todo:
        owner, node = todo.pop(0)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            string = ast.get_docstring(node)
            if string is not None and len(string) >= _FEWEST_CHARACTERS:
                yield {"text": string, "name": owner}
        for child in ast.iter_child_nodes(node):
            inner = getattr(child, "name", None)
            todo.append((f"{owner}.{inner}" if isinstance(inner, str) else owner, child))


def _write_json_lines(path: Path, records: list[dict[str, str]]) -> None:
    import orjson
    import zstandard

    lines = b"".join(orjson.dumps(record) + b"\n" for record in records)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(lines))


def _write_parquet(path: Path, records: list[dict[str, str]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(records, schema=pa.schema([("text", pa.string()), ("name", pa.string())]))
    pq.write_table(table, path, row_group_size=_ROW_GROUP_ROWS, compression="zstd", write_page_checksum=True)


def _cut(path: Path) -> tuple[int, int]:
    """Cut a file short, as a full disk or a broken copy does; its size before and after."""
    content = path.read_bytes()
    kept = content[: int(len(content) * _KEPT_OF_DAMAGED)]
    path.write_bytes(kept)
    return len(content), len(kept)
