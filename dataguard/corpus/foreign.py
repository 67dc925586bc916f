"""Whose fault is an exception that came out of a reader?

Readers call libraries that were never meant for damaged files: they raise what they like, panics among it, which are
no `Exception` at all. What they raise while they read a shard is about that shard, and never the end of a build or of
a training run. Three kinds are not about the shard: an interruption of this process, an error that dataguard itself
raised on purpose, and storage that failed.
"""

from __future__ import annotations

from dataguard.errors import DataguardError

__all__ = ["is_foreign", "words_of"]

_MOST_CHARACTERS = 300


def is_foreign(error: BaseException) -> bool:
    """Whether an exception is a library's word about the file it was reading.

    >>> is_foreign(ValueError("bad magic")), is_foreign(OSError("Unexpected end of stream"))
    (True, True)
    >>> is_foreign(OSError(5, "Input/output error")), is_foreign(KeyboardInterrupt()), is_foreign(TimeoutError())
    (False, False, False)
    """
    if isinstance(error, DataguardError | KeyboardInterrupt | SystemExit | GeneratorExit):
        return False
    # Arrow raises a bare OSError for bytes that make no sense; storage says which of its errors it was
    return not isinstance(error, OSError) or (type(error) is OSError and error.errno is None)


def words_of(error: BaseException) -> str:
    r"""An exception on one line: its type, and what it says.

    >>> words_of(ValueError("bad\n magic")), words_of(MemoryError())
    ('ValueError: bad magic', 'MemoryError')
    """
    said = " ".join(str(error).split())
    return (f"{type(error).__name__}: {said}" if said else type(error).__name__)[:_MOST_CHARACTERS]
