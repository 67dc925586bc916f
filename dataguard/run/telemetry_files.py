"""In which files does the telemetry of an attempt lie?

A rank that logs has one file of its own, ``rank=00000.frames``. What was imported for it from a log of another tool
lies beside it, ``rank=00000.imported-0001.frames`` and so on, a file an import that brought something new. Read in the
order given here, the later value of two counts: what was imported later over what was imported before, and what the
rank logged itself over all that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dataguard.run.layout import Layout, parse_rank

__all__ = ["imported_file", "imported_files", "telemetry_files"]

_IMPORTED = re.compile(r"(rank=\d{5,})\.imported-(\d{4,})\.frames")


def imported_file(layout: Layout, attempt: int, rank: int, number: int) -> Path:
    """``telemetry/attempt=0001/rank=00000.imported-0001.frames``; imports count from 1.

    >>> imported_file(Layout(Path("run")), 1, 0, 2).name
    'rank=00000.imported-0002.frames'
    """
    return layout.telemetry_attempt(attempt) / f"{layout.rank_name(rank)}.imported-{number:04d}.frames"


def imported_files(layout: Layout, attempt: int) -> dict[int, list[int]]:
    """Numbers of what was imported for each rank of an attempt, in order (lists one folder)."""
    found: dict[int, list[int]] = {}
    for name in _names(layout, attempt):
        match = _IMPORTED.fullmatch(name)
        rank = parse_rank(match[1]) if match else None
        if match and rank is not None:
            found.setdefault(rank, []).append(int(match[2]))
    return {rank: sorted(numbers) for rank, numbers in found.items()}


def telemetry_files(
    layout: Layout, attempt: int, ranks: Iterable[int] | None = None, *, imported: bool = True
) -> list[tuple[int, Path]]:
    """Every file of an attempt with its rank: by rank, what was imported first, then the rank's own.

    Parameters
    ----------
    layout, attempt
        Which attempt of which run.
    ranks
        Default: all that have a file. A rank's own file is named whether or not it exists.
    imported
        With what was imported.
    """
    numbers = imported_files(layout, attempt) if imported else {}
    if ranks is None:
        own = {rank for rank in map(parse_rank, _names(layout, attempt)) if rank is not None}
        ranks = own | numbers.keys()
    files = []
    for rank in sorted(set(ranks)):
        files += [(rank, imported_file(layout, attempt, rank, number)) for number in numbers.get(rank, ())]
        files.append((rank, layout.telemetry(attempt, rank)))
    return files


def _names(layout: Layout, attempt: int) -> list[str]:
    folder = layout.telemetry_attempt(attempt)
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
