"""``dataguard warmup``: are all kernels compiled before anybody waits for them?

Each family of kernels is put to work on a handful of values, through the functions that use it, so that what is
compiled is what will be called. Run once on each machine, or with ``--cache-dir`` once into a folder that others name
in ``NUMBA_CACHE_DIR``: what is kept there serves every machine of the same processor, Python and numba.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from dataguard.cli import output
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import PATH, json_option
from dataguard.core.compiled import Compiling, Kernel, kernels, on_compilation
from dataguard.errors import EnvironmentFailed

__all__ = ["FAMILIES", "WarmedKernel", "WarmedUp", "warmup"]


class WarmedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, ready."""

    kernel: str
    """Its module and name."""
    from_cache: bool
    """Whether it had been compiled before."""
    folder: str
    """Where it lies."""


class WarmedUp(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dataguard warmup --json`` answers."""

    kernels: tuple[WarmedKernel, ...]
    num_compiled: int
    """Kernels that were not in the cache."""
    folders: tuple[str, ...]
    """Where they lie; ``--cache-dir`` is above each of them where it was given."""
    seconds: float


@click.command()
@click.option(
    "--cache-dir",
    "folder",
    type=PATH,
    help="Keep what is compiled below this folder, for whoever names it in NUMBA_CACHE_DIR.",
)
@json_option
def warmup(folder: Path | None, as_json: bool) -> None:
    """Compile all kernels ahead, and say where they are kept.

    Ends with 4 where they cannot be kept.

    Examples: dataguard warmup
    dataguard warmup --cache-dir /shared/kernels
    """
    began = time.monotonic()
    if folder is not None:
        _keep_below(folder.absolute())
    before, ready = on_compilation(_tell), tuple[WarmedKernel, ...]()
    try:
        with going_on(
            "the same command goes on with those that are left: what is compiled is kept",
            found=lambda: f"{len(ready):,} kernels are ready",
        ):
            for family in FAMILIES.values():
                family()
                ready = tuple(_ready(each, folder) for each in kernels())  # what cannot be kept is told at the first
    finally:
        on_compilation(before)
    output.answer(
        WarmedUp(
            kernels=ready,
            num_compiled=sum(not each.from_cache for each in ready),
            folders=tuple(sorted({each.folder for each in ready})),
            seconds=round(time.monotonic() - began, 3),
        ),
        _render,
        json=as_json,
    )


def _keep_below(folder: Path) -> None:
    """Have numba keep what it compiles there; only a process that has not imported it yet can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailed(f"the folder {folder} cannot be made", found=error.strerror) from error
    assert "numba" not in sys.modules, "the compiler was imported before it was told where to keep things"
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # noqa: TID251 - numba takes it from nowhere else


def _tell(compiling: Compiling) -> None:
    output.tell(f"compiling {compiling.kernel}, about {compiling.seconds:.0f} s")


def _ready(kernel: Kernel, folder: Path | None) -> WarmedKernel:
    """The kernel as it is told, or why it will have to be compiled again."""
    if kernel.folder is None or (folder is not None and not Path(kernel.folder).is_relative_to(folder.absolute())):
        raise EnvironmentFailed(
            f"{kernel.name} was compiled, and cannot be kept" + (f" in {folder}" if folder is not None else ""),
            found="no folder for it can be written"
            if kernel.folder is None
            else f"only {kernel.folder} can be written",
            todo="give --cache-dir, or NUMBA_CACHE_DIR, a folder that can be written and has room",
        )
    return WarmedKernel(
        kernel=kernel.name, from_cache=kernel.num_from_cache == kernel.num_variants, folder=kernel.folder
    )


def _render(done: WarmedUp) -> str:
    what = f"{len(done.kernels)} kernels are ready, {done.num_compiled} of them compiled now, in {done.seconds:.1f} s"
    return "\n".join([what, *(f"kept in {folder}" for folder in done.folders)])


# ---------------------------------------------------------------------------------------------------------------------
# What puts each family of kernels to work
# ---------------------------------------------------------------------------------------------------------------------


def _permutation() -> None:
    import numpy as np

    from dataguard.core.permute_kernels import permute_bulk, unpermute_bulk

    unpermute_bulk(100, 7, permute_bulk(100, 7, np.arange(3)))


def _tokens() -> None:
    from dataguard.score.tokens import distinct_ngrams, score_token_rows

    row = [7, 7, 7, 7, 300_000]
    score_token_rows(row, [0, len(row)], vocab_size=10)
    distinct_ngrams(row, [0, len(row)], 2)


def _text() -> None:
    import pyarrow as pa

    from dataguard.score.text import score_text

    score_text(pa.array(["a line of words\n\na line of words\n" * 20]))


def _lines() -> None:
    import pyarrow as pa

    from dataguard.corpus.formats.bulk_lines import LineKernel
    from dataguard.corpus.formats.valid_text import Utf8Kernel

    names = LineKernel.names("text")
    assert names is not None
    LineKernel().extract(b'{"text": "a"}\n', names, 1 << 20, 512)
    Utf8Kernel().rows_not_utf8(pa.array([b"a"], pa.large_binary()))


FAMILIES: dict[str, Callable[[], None]] = {
    "permutation": _permutation,
    "lines": _lines,
    "tokens": _tokens,
    "text": _text,
}
"""What puts all kernels of a family to work, by what they are for."""
