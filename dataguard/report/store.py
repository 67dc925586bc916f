"""What is said of the batch store to people?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dataguard.replay.fetch import StoreShown
from dataguard.report.tables import table
from dataguard.run.store_account import StoreList, StoreOfRank
from dataguard.run.store_prune import StorePruned

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render_store_list", "render_store_pruned", "render_store_shown"]

_MANY = 8


def render_store_list(answer: StoreList) -> Iterator[str | Table]:
    """What ``store list`` says."""
    if not answer.ranks:
        yield "nothing is kept in this run; `--store` and `store=` say what to keep"
        return
    yield f"{answer.num_steps:,} files, {_size(answer.size_bytes)}"
    columns = ("attempt", "rank", "keep", "files", "size", "steps", "let go of", "pruned", "lost")
    yield table(
        columns,
        (
            (
                each.attempt,
                each.rank,
                each.keep,
                each.num_steps,
                _size(each.size_bytes),
                _steps(each.steps),
                ", ".join(f"{count:,} {reason}" for reason, count in each.let_go.items()) or None,
                each.num_pruned or None,
                _lost(each),
            )
            for each in answer.ranks
        ),
        right=("attempt", "rank", "files", "size", "pruned"),
    )
    for each in answer.ranks:
        yield from (f"rank {each.rank} of attempt {each.attempt}: {problem}" for problem in each.problems)
    if answer.num_let_go:
        yield f"{answer.num_let_go:,} microbatches were wanted and not kept: see `let go of`"


def render_store_shown(answer: StoreShown) -> Iterator[str | Table]:
    """What ``store show`` says."""
    yield (
        f"step {answer.step:,}, attempt {answer.attempt}: {len(answer.microbatches):,} microbatches kept, "
        f"{_size(answer.size_bytes)} on disk"
    )
    yield from (f"damaged: {each}" for each in answer.damage)
    rows = [
        (
            each.rank,
            each.microbatch,
            f"{each.slots[0]}:{each.slots[1]}",
            tensor.name,
            tensor.dtype,
            " x ".join(map(str, tensor.shape)) or "one",
            tensor.num_bytes,
            "not recorded" if each.recorded is None else "yes" if each.recorded == each.digest else "NO",
        )
        for each in answer.microbatches
        for tensor in each.tensors
    ]
    columns = ("rank", "microbatch", "slots", "tensor", "dtype", "shape", "bytes", "as delivered")
    yield table(columns, rows, right=("rank", "microbatch", "slots", "bytes"))


def render_store_pruned(answer: StorePruned) -> Iterator[str]:
    """What ``store prune`` says."""
    done = "would be removed" if answer.dry_run else "removed"
    yield f"{answer.num_steps:,} files {done}, {_size(answer.size_bytes)}"
    yield from answer.notes
    yield from (f"  {path}" for path in answer.files[:_MANY])
    if len(answer.files) > _MANY:
        yield f"  ... and {len(answer.files) - _MANY:,} more (--json lists all)"


def _steps(stretches: Iterable[tuple[int, int]]) -> str | None:
    told = [f"{start}:{stop}" if stop > start + 1 else str(start) for start, stop in stretches]
    more = f", and {len(told) - _MANY:,} more stretches" if len(told) > _MANY else ""
    return ", ".join(told[:_MANY]) + more or None


def _lost(each: StoreOfRank) -> str | None:
    if not each.num_lost:
        return None
    return f"{each.num_lost:,}{' or on their way' if each.live else ''}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes:,} bytes"
