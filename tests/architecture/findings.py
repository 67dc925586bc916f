"""The page of findings, as the table of reason codes has it now.

Run as ``python -m tests.architecture.findings`` it prints what FINDINGS.md holds.
"""

from __future__ import annotations

from dataguard.corpus.formats.findings import CODES

_HEAD = """# What can be wrong with data, and what becomes of it

Every finding has a reason code and one of three effects. `dataguard manifest show M --rejected` lists all of them, one
a line, with shard, row, line and byte; `--json` gives the same as JSON lines. A build with flagged or excluded shards
ends with exit code 3 unless `--allow-damaged` is given; rejected records alone do not.

The account always balances: rows read = delivered + rejected, shards = clean + flagged + excluded. An excluded shard
delivers nothing, and its rows are in no account. A shard that has a finding and from which nothing can be delivered is
excluded, whatever its code says. The same codes come up in the loader and at replay.

This page is made from the table in the code and held equal to it by a test.
"""
_EFFECTS = {
    "rejected": "Rejected: the record is not delivered, and keeps its row number",
    "flagged": "Flagged: something is wrong with the shard, its good records are delivered",
    "excluded": "Excluded: nothing of the shard can be trusted, and nothing of it is delivered",
}


def page() -> str:
    """FINDINGS.md as it should be."""
    parts = [_HEAD]
    for effect, title in _EFFECTS.items():
        rows = [f"| `{name}` | {code.sentence} |" for name, code in sorted(CODES.items()) if code.effect == effect]
        parts.append("\n".join([f"## {title}\n", "| code | what is wrong |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
