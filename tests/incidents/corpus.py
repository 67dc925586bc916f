"""Where do the texts of the incident suite come from?

From what stands on every machine that has Python: the prose in the sources of its library. Everything that is wrong
with a corpus is made from that as well. A corpus is folders of JSON lines, one a source, and their manifest.
"""

from __future__ import annotations

import base64
import functools
import json
import random
import re
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from dataguard.corpus.build import build_manifest_file

__all__ = ["CHARS", "base64_lines", "code_of_library", "foreign", "prose", "text_of_library", "write_corpus"]

CHARS = 64
"""Characters of a record of prose."""

_DOCSTRING = re.compile(r'"""(.+?)"""', re.DOTALL)


@functools.cache
def text_of_library() -> str:
    """The docstrings of the modules at the top of Python's library, white space made single."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for docstring in _DOCSTRING.findall(path.read_text("utf-8", "replace")):
            words = " ".join(docstring.split())
            if words.isascii() and len(words) > CHARS:
                found.append(words)
    return " ".join(found)


def prose(generator: random.Random, num_records: int, *, chars: int = CHARS) -> list[str]:
    """Pieces of prose, drawn anywhere."""
    text = text_of_library()
    starts = [generator.randrange(len(text) - chars) for _ in range(num_records)]
    return [text[start : start + chars] for start in starts]


@functools.cache
def _sources_of_library() -> str:
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-c]*.py"))
    return "".join(path.read_text("utf-8", "replace") for path in paths)


def code_of_library(generator: random.Random, num_records: int, *, chars: int = CHARS) -> list[str]:
    """Pieces of Python, drawn anywhere."""
    text = _sources_of_library()
    starts = [generator.randrange(len(text) - chars) for _ in range(num_records)]
    return [text[start : start + chars] for start in starts]


def base64_lines(generator: random.Random, num_records: int, *, chars: int = CHARS) -> list[str]:
    """Lines of an attachment, as a mail archive holds them."""
    return [base64.b64encode(generator.randbytes(chars * 3 // 4)).decode() for _ in range(num_records)]


_CYRILLIC = dict(zip("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопярстувшжуз", strict=True))
_ABROAD = str.maketrans(_CYRILLIC | {latin.upper(): letter.upper() for latin, letter in _CYRILLIC.items()})


def foreign(texts: Sequence[str]) -> list[str]:
    """The same in another alphabet: two bytes a letter in UTF-8."""
    return [text.translate(_ABROAD) for text in texts]


def write_corpus(folder: Path, shards: Mapping[str, Sequence[str]]) -> Path:
    """Shards of JSON lines by ``SOURCE/NAME``, in a folder, and their manifest; gives the manifest's path."""
    sources: dict[str, Path] = {}
    for name, texts in shards.items():
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), "utf-8")
        sources[name.partition("/")[0]] = path.parent
    manifest = folder / "M.parquet"
    build_manifest_file([f"{source}={path}" for source, path in sources.items()], manifest)
    return manifest
