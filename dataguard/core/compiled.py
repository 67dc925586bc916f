"""How is a kernel compiled, where is the result kept, and who is told that it takes a while?

One decorator over ``numba.njit`` for every kernel of the project, so that all of them keep the same promises:

1. They run without the interpreter lock, never with fast-math, and never in numba's own threads, which abort after a
   fork. A division by zero gives what NumPy gives; a kernel guards its denominators.
2. Compilation happens at the first call and its result is kept on disk: in the folder ``NUMBA_CACHE_DIR`` names, else
   beside the module, else in the user's cache folder; whichever can be written first.
3. What lies in a folder that cannot be written is used as well: a folder that others share read-only, an image whose
   installation was warmed up when it was built.
4. Where nothing lies and nothing can be written, kernels are compiled in every process. A cache that cannot be read or
   written later on (a full disk, a broken file) costs the same and is no error: the cache saves time and holds nothing
   else.
5. A fork waits until no thread is compiling: a child in whose parent one was would wait for ever at its own first
   kernel, for a lock that nobody holds any more.
6. Who set a hook with `on_compilation` hears of each kernel that has to be compiled, before it is; never of one that
   comes from the cache.

Numba sees changes of one file only, so a kernel and everything it calls stand in one module: the entry under `kernel`,
what it calls under `part`.

Importing this module does not import numba; decorating does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from dataguard.errors import EnvironmentFailed

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
    """Where what is compiled of it lies; None where nothing does."""


Hook = Callable[[Compiling], None]

_hook: Hook | None = None
_entries: dict[Any, _Entry] = {}
_listening: list[Any] = []


@dataclass(slots=True, kw_only=True)
class _Entry:
    seconds: float
    dispatcher: Any
    cache: _Cache


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
        if dispatcher is function:
            return _uncompiled(function)
        cache = _cache_of(function)
        dispatcher._cache = cache
        _entries[function] = _Entry(seconds=seconds, dispatcher=dispatcher, cache=cache)
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


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel where compilation is switched off: its function, if that is made of Python alone."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except NotImplementedError as error:  # as numba says of an intrinsic
            raise EnvironmentFailed(
                f"kernel {_name_of(function)} has to be compiled",
                found="compilation is switched off, by NUMBA_DISABLE_JIT",
                todo="run without NUMBA_DISABLE_JIT",
            ) from error

    return call


def kernels() -> tuple[Kernel, ...]:
    """Every kernel of the modules imported so far, in the order they were decorated."""
    return tuple(
        Kernel(
            name=_name_of(function),
            num_variants=len(entry.dispatcher.signatures),
            num_from_cache=sum(entry.dispatcher.stats.cache_hits.values()),
            folder=entry.cache.cache_path,
        )
        for function, entry in _entries.items()
    )


def _name_of(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    import numba

    return numba.njit(error_model="numpy", **options)(function)


class _Cache:
    """What a dispatcher asks instead of numba's own cache: the same, for which nothing that goes wrong is an error.

    Parameters
    ----------
    written
        Numba's cache in the folder that can be written; None where there is none.
    read
        Numba's caches in folders that come before it and cannot be written, which may hold something all the same.
    """

    def __init__(self, written: Any | None, read: tuple[Any, ...]) -> None:
        self._written = written
        self._read = read
        self.cache_path: str | None = None
        """Where what was loaded or saved lies."""

    @property
    def is_written(self) -> bool:
        """Whether something can be kept, as far as is known."""
        return self._written is not None

    def load_overload(self, *arguments: Any) -> Any:
        """What is kept for a set of argument types; None where nothing is, or nothing that can be read."""
        for cache in (self._written, *self._read):
            try:
                found = None if cache is None else cache.load_overload(*arguments)
            except Exception:  # noqa: BLE001, S112 - bytes that do not unpickle may raise anything: it is a miss
                continue
            if found is not None:
                self.cache_path = cache.cache_path
                return found
        return None

    def save_overload(self, *arguments: Any) -> None:
        """Keep what was compiled, where that can be done."""
        if self._written is None:
            return
        try:
            try:
                self._written.save_overload(*arguments)
            except OSError:
                raise
            except Exception:  # noqa: BLE001 - the index that is there does not unpickle: begin it anew
                self._written.flush()
                self._written.save_overload(*arguments)
        except OSError:
            self._written = None
        else:
            self.cache_path = self._written.cache_path

    def flush(self) -> None:
        """Forget what is kept in the folder that can be written."""
        if self._written is not None:
            self._written.flush()


def _cache_of(function: Any) -> _Cache:
    """See points 2 to 4 of the module."""
    from numba.core.caching import FunctionCache

    try:
        written = FunctionCache(function)
    except RuntimeError:  # numba found no folder
        written = None
    read = []
    for place in FunctionCache._impl_class._locator_classes:
        if written is not None and isinstance(written._impl.locator, place):
            break
        # A place as numba has it, but for the question whether it can be written.
        as_it_is = type(place.__name__, (place,), {"ensure_cache_path": lambda _: None})
        implementation = type("Implementation", (FunctionCache._impl_class,), {"_locator_classes": [as_it_is]})
        try:
            read.append(type("ReadOnly", (FunctionCache,), {"_impl_class": implementation})(function))
        except (OSError, RuntimeError):
            continue  # no such place for this module
    return _Cache(written, tuple(read))


def _listen() -> None:
    """Hear of numba's compilations, and let no fork come amid one, from the first kernel on."""
    if _listening:
        return
    from numba.core import event
    from numba.core.compiler_lock import global_compiler_lock as lock

    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            entry = _entries.get(function)
            if _hook is not None and entry is not None:
                _hook(Compiling(kernel=_name_of(function), seconds=entry.seconds, kept=entry.cache.is_written))

        def on_end(self, event: Any) -> None:
            """Nothing: whoever waited gets the kernel's answer."""

    listener = Listener()
    event.register("numba:compile", listener)
    _listening.append(listener)
