"""What does a person read while kernels are compiled?

One line, at the first kernel that is not in the cache; nothing where all of them are.
"""

from __future__ import annotations

from dataguard.cli import output
from dataguard.core.compiled import Compiling

__all__ = ["CompilationNote"]


class CompilationNote:
    """A hook for `dataguard.core.compiled.on_compilation` that tells of the first compilation only."""

    def __init__(self) -> None:
        self._is_told = False

    def __call__(self, compiling: Compiling) -> None:
        """Tell it on standard error."""
        if self._is_told:
            return
        self._is_told = True
        seconds = f"about {compiling.seconds:.0f} s"
        if compiling.kept:
            output.tell(f"compiling kernels once, {seconds} ('dataguard warmup' does it ahead)")
        else:
            output.tell(
                f"compiling kernels, {seconds}; they cannot be kept, as no cache folder can be written "
                "(NUMBA_CACHE_DIR can name one)"
            )
