"""What does the corpus take from the environment of its process? Read here and nowhere else in the room.

``DATAGUARD_CACHE_DIR`` moves the local cache of decoded shards; ``DATAGUARD_CACHE_BYTES`` sets its limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from dataguard.errors import UsageError

__all__ = ["cache_dir", "cache_limit_bytes", "child_environment", "move_cache"]

_DEFAULT_LIMIT_BYTES = 32 << 30
_CACHE_DIR = "DATAGUARD_CACHE_DIR"


def cache_dir() -> str:
    """The folder for decoded shards, where none was given."""
    import platformdirs

    return os.environ.get(_CACHE_DIR) or str(  # noqa: TID251 - the one place
        platformdirs.user_cache_path("dataguard") / "shards"
    )


def move_cache(folder: str) -> Callable[[], None]:
    """Keep decoded shards in another folder from now on, in this process and those it starts; the answer undoes that.

    >>> undo = move_cache("/elsewhere")
    >>> cache_dir()
    '/elsewhere'
    >>> undo()
    """
    before = os.environ.get(_CACHE_DIR)  # noqa: TID251 - the one place
    os.environ[_CACHE_DIR] = folder  # noqa: TID251 - helper processes inherit it

    def undo() -> None:
        if before is None:
            os.environ.pop(_CACHE_DIR, None)  # noqa: TID251 - as above
        else:
            os.environ[_CACHE_DIR] = before  # noqa: TID251 - as above

    return undo


def cache_limit_bytes() -> int:
    """The size that the cache of decoded shards keeps to, where none was given: 32 GiB."""
    text = os.environ.get("DATAGUARD_CACHE_BYTES")  # noqa: TID251 - the one place
    if not text:
        return _DEFAULT_LIMIT_BYTES
    if not text.isdecimal():
        raise UsageError(f"DATAGUARD_CACHE_BYTES={text!r} is no number of bytes", allowed="e.g. 34359738368")
    return int(text)


def child_environment(**changes: str) -> dict[str, str]:
    """The environment handed on to a process of our own."""
    return {**os.environ, **changes}  # noqa: TID251 - the one place
