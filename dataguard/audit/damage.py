"""Which shards are not what they should be, and why?

What the scan found stands in the manifest; what was found while blocks were read again (a shard that has changed since,
a disk that fails) stands in the parts. A shard is named once, with all that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataguard.audit.documents import DamagedShard
from dataguard.audit.parts import Problem
from dataguard.core.manifest import Manifest
from dataguard.corpus.manifest_read import NamedFinding

__all__ = ["damaged_shards"]

_MOST_PROBLEMS = 3


def damaged_shards(
    manifest: Manifest, findings: Sequence[NamedFinding], problems: Sequence[Problem]
) -> tuple[DamagedShard, ...]:
    """Every shard that is damaged, in the order of the manifest.

    Parameters
    ----------
    manifest
        Says what became of each shard when it was scanned.
    findings
        Of whole shards.
    problems
        What could not be read since.
    """
    found: dict[str, list[NamedFinding]] = {}
    for finding in findings:
        found.setdefault(finding.shard, []).append(finding)
    unread: dict[int, list[Problem]] = {}
    for problem in problems:
        unread.setdefault(problem.shard, []).append(problem)
    damaged = []
    for i, shard in enumerate(manifest.shards):
        if shard.effect == "clean" and i not in unread:
            continue
        name = manifest.shard_name(i)
        told = [f"{each.finding.code}: {each.finding.detail}" for each in found.get(name, ())]
        codes = [each.finding.code for each in found.get(name, ())]
        if i in unread:
            told += _told(unread[i])
            codes += sorted({problem.kind for problem in unread[i]})
        damaged.append(
            DamagedShard(
                shard=name,
                reason="; ".join(told),
                codes=tuple(codes),
                effect=shard.effect if shard.effect != "clean" else "unreadable",
            )
        )
    return tuple(damaged)


def _told(problems: Sequence[Problem]) -> list[str]:
    """The first few of them, in words."""
    told = [
        f"{problem.kind}: {problem.num_samples:,} records from row {problem.first_row:,} on: {problem.detail}"
        for problem in problems[:_MOST_PROBLEMS]
    ]
    rest = problems[_MOST_PROBLEMS:]
    if rest:
        told.append(f"and {sum(problem.num_samples for problem in rest):,} records in {len(rest):,} further blocks")
    return told
