"""Is the table of reason codes whole: every code used, every used code in it?"""

from __future__ import annotations

from pathlib import Path

import pytest

import dataguard.corpus as corpus
from dataguard.corpus.formats import CODES, Finding, effect_of, shard_effect


def test_every_code_of_the_table_is_given_somewhere() -> None:
    assert corpus.__file__ is not None
    room = Path(corpus.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in room.rglob("*.py") if path.name != "findings.py"]
    unused = [code for code in CODES if not any(f'"{code}"' in source for source in sources)]
    assert unused == []


def test_sentences_are_sentences() -> None:
    assert len({code.sentence for code in CODES.values()}) == len(CODES)
    for name, code in CODES.items():
        assert code.sentence[0].islower() or code.sentence.startswith("Parquet"), name
        assert not code.sentence.endswith("."), name


def test_the_worst_finding_decides() -> None:
    flagged, excluded = (Finding(code=code, detail="") for code in ("trailing-bytes", "bad-checksum"))
    assert shard_effect([flagged], num_deliverable=1) == "flagged"
    assert shard_effect([flagged, excluded], num_deliverable=1) == "excluded"
    assert shard_effect([flagged], num_deliverable=0) == "excluded"
    with pytest.raises(KeyError):
        effect_of("no-such-code")
    with pytest.raises(AssertionError, match="record"):
        shard_effect([Finding(code="null-text", detail="", row=1)], num_deliverable=0)
