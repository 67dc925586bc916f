"""What is the corpus of the demo without training?

The standard library's source files and documentation strings (`texts`), as two sources, with one shard cut short on
purpose:

- ``code/part-N.jsonl.zst``: one record a source file, JSON lines in one zstd frame with checksum;
- ``docs/part-N.parquet``: one record a documentation string, in row groups of 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dataguard.cli.demo.texts import documentation, library_folder, source_files
from dataguard.cli.demo.writing import write_json_lines, write_parquet
from dataguard.errors import InputError

__all__ = ["DamagedCorpus", "too_little", "write_damaged_corpus"]

_NUM_SHARDS = 4
_NUM_FILES = 400
_NUM_STRINGS = 4_000
_GROUP_ROWS = 100
_FEWEST_FILES = 40
_KEPT_OF_DAMAGED = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedCorpus:
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


def write_damaged_corpus(folder: Path, *, library: Path | None = None) -> DamagedCorpus:
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
    library = library_folder() if library is None else library
    files = list(source_files(library))[:_NUM_FILES]
    strings = [string for name, text in files for string in documentation(name, text)][:_NUM_STRINGS]
    if len(files) < _FEWEST_FILES or len(strings) < _FEWEST_FILES:
        found = f"{len(files):,} files and {len(strings):,} documentation strings in {library}"
        raise too_little(found, f"at least {_FEWEST_FILES} of each")
    code = [{"text": text, "path": name} for name, text in files]
    for shard in range(_NUM_SHARDS):
        write_json_lines(folder / "code" / f"part-{shard}.jsonl.zst", code[shard::_NUM_SHARDS])
        write_parquet(folder / "docs" / f"part-{shard}.parquet", strings[shard::_NUM_SHARDS], group_rows=_GROUP_ROWS)
    damaged = f"part-{_NUM_SHARDS - 1}.jsonl.zst"
    return DamagedCorpus(
        sources=("code", "docs"),
        num_files=len(files),
        num_strings=len(strings),
        damaged=f"code/{damaged}",
        damaged_bytes=_cut(folder / "code" / damaged),
    )


def too_little(found: str, allowed: str) -> InputError:
    """The error of a Python that has not the text that a demo is made of."""
    return InputError(
        "the demo reads the sources of Python's standard library, and this Python has too few of them",
        found=found,
        allowed=allowed,
        todo="try another Python, or go on with data of your own: dataguard manifest build PATH -o M.parquet",
    )


def _cut(path: Path) -> tuple[int, int]:
    """Cut a file short, as a full disk or a broken copy does; its size before and after."""
    content = path.read_bytes()
    kept = content[: int(len(content) * _KEPT_OF_DAMAGED)]
    path.write_bytes(kept)
    return len(content), len(kept)
