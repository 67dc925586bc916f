"""How is a kernel compiled, where is the result kept, and who is told that it takes a while?

One decorator over ``numba.njit`` for every kernel of the project, so that all of them keep the same promises:

1. They run without the interpreter lock, never with fast-math, and never in numba's own threads, which abort after a
   fork. A division by zero gives what NumPy gives; a kernel guards its denominators.
2. Compilation happens at the first call and its result is kept on disk: in the folder ``NUMBA_CACHE_DIR`` names, else
   beside the module, else in the user's cache folder; whichever can be written first.
3. Where none can be written (a read-only installation without a home), kernels are compiled in every process. A cache
   that cannot be read or written later on (a full disk, a broken file) costs the same and is no error: the cache saves
   time and holds nothing else.
4. Who set a hook with `on_compilation` hears of each kernel that has to be compiled, before it is; never of one that
   comes from the cache.

Numba sees changes of one file only, so a kernel and everything it calls stand in one module: the entry under `kernel`,
what it calls under `part`.

Importing this module does not import numba; decorating does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Compiling", "kernel", "on_compilation", "part"]

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """A kernel that is about to be compiled."""

    kernel: str
    """Its module and name, with a dot between."""
    seconds: float
    """About how long that takes on an ordinary core, as the kernel's decorator says."""
    kept: bool
    """Whether the result can be kept on disk, as far as is known before."""


Hook = Callable[[Compiling], None]

_hook: Hook | None = None
_entries: dict[Any, float] = {}
_listening: list[Any] = []


def on_compilation(hook: Hook | None) -> Hook | None:
    """Set who is told of compilations, None for nobody; gives the hook there was.

    The hook is called in the thread that waits for the kernel, with numba's compiler lock held.

    >>> before = on_compilation(lambda compiling: print(compiling.kernel))
    >>> _ = on_compilation(before)
    """
    global _hook
    before, _hook = _hook, hook
    return before


def kernel(*, seconds: float = 2.0) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that Python calls, once for each set of argument types, and keep the result on disk.

    Parameters
    ----------
    seconds
        About how long the compilation takes, everything it calls included: what is told to whoever waits.

    Examples
    --------
    >>> @kernel(seconds=0.5)
    ... def total(values):
    ...     result = 0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> import numpy as np
    >>> int(total(np.arange(4)))
    6
    """

    def decorate(function: Callable[..., Any]) -> Any:
        _listen()
        dispatcher = _njit(function, nogil=True)
        _entries[function] = seconds
        _keep(dispatcher)
        return dispatcher

    return decorate


def part(*, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that kernels of the same module call, as a part of them.

    Parameters
    ----------
    inline
        Copy its statements into the caller before types are inferred, so that constant arguments become constants.
        Without it LLVM decides, which is right for all but innermost loops.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return _njit(function, inline="always") if inline else _njit(function)

    return decorate


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    import numba

    return numba.njit(error_model="numpy", **options)(function)


def _keep(dispatcher: Any) -> None:
    """Keep what is compiled on disk where some folder can be written; see points 2 and 3 above."""
    if not hasattr(dispatcher, "enable_caching"):
        return  # compilation is switched off (NUMBA_DISABLE_JIT), and this is the function itself
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # numba found no folder
        return
    # numba offers no place to say that a broken cache is a miss, so the two doors of this one cache are hung anew.
    cache = dispatcher._cache
    load, save = cache.load_overload, cache.save_overload

    def load_or_miss(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:  # noqa: BLE001 - bytes that do not unpickle may raise anything, and all of it means a miss
            return None

    def save_if_possible(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError:
            cache.disable()
        except Exception:  # noqa: BLE001 - the index that is there does not unpickle: begin it anew
            _save_anew(cache, save, arguments)

    cache.load_overload, cache.save_overload = load_or_miss, save_if_possible


def _save_anew(cache: Any, save: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        cache.flush()
        save(*arguments)
    except OSError:
        cache.disable()


def _listen() -> None:
    """Hear of numba's compilations, from the first kernel on."""
    if _listening:
        return
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            seconds = _entries.get(dispatcher.py_func)
            if _hook is not None and seconds is not None and dispatcher.py_func.__module__.startswith(_PACKAGE):
                function = dispatcher.py_func
                kept = dispatcher.stats.cache_path is not None
                _hook(Compiling(kernel=f"{function.__module__}.{function.__name__}", seconds=seconds, kept=kept))

        def on_end(self, event: Any) -> None:
            """Nothing: whoever waited gets the kernel's answer."""

    listener = Listener()
    event.register("numba:compile", listener)
    _listening.append(listener)
