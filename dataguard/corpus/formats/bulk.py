"""Is there enough work in this process to load a compiled kernel for it?

Importing numba and loading a kernel takes 0.6 s, compiling it once on a machine takes seconds. Small inputs do
not pay for that, and a look-up (`inspect`, `where`) never does:

1. A kernel is loaded when so much work of its kind was done without it in this process as takes the time of loading
   it: whoever needs it does not lose more than that, and nobody else pays.
2. Scans of whole shards load it; reads of blocks only where something else has imported numba before. The loader of a
   training run has, a look-up never has.
3. Where it cannot be loaded, or would not be compiled, a warning says so, and the work goes on without it.

The answer is the same with and without a kernel, so nothing but time depends on this.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from dataguard.errors import EnvironmentFailed

__all__ = ["Shortcut", "only_compiled"]

Kernel = TypeVar("Kernel")


def only_compiled(function: Any) -> Any:
    """The kernel itself, where numba compiles it; as plain Python (NUMBA_DISABLE_JIT) it would be slower than none.

    >>> only_compiled(len)
    Traceback (most recent call last):
    ...
    dataguard.errors.EnvironmentFailed: kernels are not compiled
      found: compilation is switched off, by NUMBA_DISABLE_JIT
    """
    if not hasattr(function, "signatures"):
        raise EnvironmentFailed("kernels are not compiled", found="compilation is switched off, by NUMBA_DISABLE_JIT")
    return function


class Shortcut(Generic[Kernel]):
    """A kernel that is loaded when it is worth it. For several threads: bytes that go uncounted are no matter.

    Parameters
    ----------
    make
        Imports and compiles the kernel.
    after_bytes
        How much work is done without it.

    Examples
    --------
    >>> shortcut = Shortcut(lambda: "a kernel", after_bytes=100)
    >>> [shortcut.worth(60, is_scan=True), shortcut.worth(60, is_scan=True), shortcut.worth(1, is_scan=False)]
    [None, 'a kernel', 'a kernel']
    """

    __slots__ = ("_after_bytes", "_done_bytes", "_make", "loaded")

    def __init__(self, make: Callable[[], Kernel], *, after_bytes: int) -> None:
        self.loaded: Kernel | None = None
        """The kernel, None as long as it was not worth it."""
        self._make: Callable[[], Kernel] | None = make
        self._after_bytes = after_bytes
        self._done_bytes = 0

    def worth(self, num_bytes: int, *, is_scan: bool) -> Kernel | None:
        """The kernel, if it is there or worth to be loaded now that there are `num_bytes` more to be worked on."""
        if self.loaded is None and self._make is not None:
            self._done_bytes += num_bytes
            if self._done_bytes >= self._after_bytes and (is_scan or "numba" in sys.modules):
                make, self._make = self._make, None
                try:
                    self.loaded = make()
                except Exception as error:  # noqa: BLE001 - no shard is worse for it, and it is told
                    told = " ".join(f"{type(error).__name__}: {error}".split())
                    warnings.warn(f"reading goes on slowly, without a compiled kernel: {told}", stacklevel=2)
        return self.loaded
