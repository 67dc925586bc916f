"""What the examples are about: text that is on every machine, from the sources of Python's own library. No torch."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

from dataguard.corpus import build_manifest_file

SEQ_LEN = 64


def pieces_of_python(number: int = 800) -> list[str]:
    """Pieces of SEQ_LEN characters from the sources of Python's library."""
    text = "".join(path.read_text() for path in sorted(Path(sysconfig.get_path("stdlib")).glob("a*.py")))
    return [text[i * SEQ_LEN : (i + 1) * SEQ_LEN] for i in range(number)]


def write_shard(path: Path, texts: list[str]) -> None:
    """A shard of JSON lines, one record a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def manifest_of_python(folder: Path) -> Path:
    """The pieces as two shards, and their manifest, written where they do not stand yet."""
    manifest = folder / "M.parquet"
    if not manifest.exists():
        pieces = pieces_of_python()
        for shard in range(2):
            write_shard(folder / "python" / f"part-{shard}.jsonl", pieces[shard::2])
        build_manifest_file([f"python={folder / 'python'}"], manifest)
    return manifest
