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

__all__ = ["Compiling", "Kernel", "kernel", "kernels", "on_compilation", "part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """A kernel that is about to be compiled."""

    kernel: str
    """Its module and name, with a dot between."""
    seconds: float
    """About how long that takes on an ordinary core, as the kernel's decorator says."""
    kept: bool
    """Whether the result can be kept on disk, as far as is known before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel of a module that is imported, as it stands now."""

    name: str
    """Its module and name, with a dot between."""
    num_variants: int
    """For how many sets of argument types it is ready."""
    num_from_cache: int
    """How many of these came from the cache."""
    folder: str | None
    """Where what is compiled of it is kept; None where it is not."""


Hook = Callable[[Compiling], None]

_hook: Hook | None = None
_entries: dict[Any, _Entry] = {}
_listening: list[Any] = []


@dataclass(slots=True, kw_only=True)
class _Entry:
    seconds: float
    dispatcher: Any
    is_kept: bool


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
        entry = _Entry(seconds=seconds, dispatcher=dispatcher, is_kept=False)
        if dispatcher is not function:  # as it is where compilation is switched off: NUMBA_DISABLE_JIT
            _entries[function] = entry
            _keep(entry)
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


def kernels() -> tuple[Kernel, ...]:
    """Every kernel of the modules imported so far, in the order they were decorated."""
    return tuple(
        Kernel(
            name=_name_of(function),
            num_variants=len(entry.dispatcher.signatures),
            num_from_cache=sum(entry.dispatcher.stats.cache_hits.values()),
            folder=entry.dispatcher.stats.cache_path if entry.is_kept else None,
        )
        for function, entry in _entries.items()
    )


def _name_of(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    import numba

    return numba.njit(error_model="numpy", **options)(function)


def _keep(entry: _Entry) -> None:
    """Keep what is compiled on disk where some folder can be written; see points 2 and 3 above."""
    try:
        entry.dispatcher.enable_caching()
    except RuntimeError:  # numba found no folder
        return
    entry.is_kept = True
    # numba offers no place to say that a broken cache is a miss, so the two doors of this one cache are hung anew.
    cache = entry.dispatcher._cache
    load, save = cache.load_overload, cache.save_overload

    def load_or_miss(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:  # noqa: BLE001 - bytes that do not unpickle may raise anything, and all of it means a miss
            return None

    def save_if_possible(*arguments: Any) -> None:
        try:
            try:
                save(*arguments)
            except OSError:
                raise
            except Exception:  # noqa: BLE001 - the index that is there does not unpickle: begin it anew
                cache.flush()
                save(*arguments)
        except OSError:
            entry.is_kept = False
            cache.disable()

    cache.load_overload, cache.save_overload = load_or_miss, save_if_possible


def _listen() -> None:
    """Hear of numba's compilations, from the first kernel on."""
    if _listening:
        return
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            entry = _entries.get(function)
            if _hook is not None and entry is not None:
                _hook(Compiling(kernel=_name_of(function), seconds=entry.seconds, kept=entry.is_kept))

        def on_end(self, event: Any) -> None:
            """Nothing: whoever waited gets the kernel's answer."""

    listener = Listener()
    event.register("numba:compile", listener)
    _listening.append(listener)
