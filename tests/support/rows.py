"""Plain rows as the reported cases have them: an id and a text a record, in one or several shards of JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataguard.corpus.corpus import Corpus
from tests.corpus.making import put
from tests.support.corpora import manifest_of


def row(number: int) -> bytes:
    """One line; the text says its id."""
    text = f"row {number:05d} " + "abcdefghij"[number % 10] * (5 + number % 7)
    return json.dumps({"id": number, "text": text}).encode() + b"\n"


def id_of(record: bytes) -> int:
    """The id that a delivered record names."""
    found = re.fullmatch(r"row (\d{5}) ([a-j])\2*", record.decode())
    assert found is not None, record
    return int(found[1])


def rows_in(folder: Path, sizes: Sequence[int], **options: Any) -> Corpus:
    """Shards ``rows/s0.jsonl``, ``s1.jsonl``, ... of so many rows each, ids counted through."""
    first = 0
    for shard, size in enumerate(sizes):
        put(folder / "rows" / f"s{shard}.jsonl", b"".join(row(number) for number in range(first, first + size)))
        first += size
    return Corpus.open(manifest_of(folder, ["rows"], **options))
