"""What does a storage library raise when its storage does not answer?

Whatever its own dependencies do: a client that finds nobody listening, or whose connection breaks off once more than it
cares to ask, raises errors that are no `OSError`. Of a file on a disk that would be said to be damage, as of any
reader that fails. Here it becomes what it is, a `ConnectionError`: asked again, and then told as unreadable.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from dataguard.errors import DataguardError

__all__ = ["RemoteFile", "storage_errors"]

_MOST_CHARACTERS = 300


@contextlib.contextmanager
def storage_errors(failed: str = "") -> Iterator[None]:
    """Turn what is raised in the block into a `ConnectionError`, unless it is an `OSError` or an error of ours.

    Parameters
    ----------
    failed
        What has failed then, said before what was raised.

    Examples
    --------
    >>> with storage_errors():
    ...     raise ValueError("nobody listens")
    Traceback (most recent call last):
    ...
    ConnectionError: ValueError: nobody listens
    """
    try:
        yield
    except (OSError, DataguardError):
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        said = said[:_MOST_CHARACTERS]
        raise ConnectionError(f"{failed} ({said})" if failed else said) from error


class RemoteFile(io.RawIOBase):
    """A seekable file of a storage library, whose failures are told as `storage_errors` says.

    Parameters
    ----------
    file
        As the library opened it; closed with this one.
    failed
        As in `storage_errors`.
    """

    def __init__(self, file: Any, failed: str = "") -> None:
        self._file = file
        self._failed = failed

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes, or all that are left."""
        with storage_errors(self._failed):
            content: bytes = self._file.read(size)
            return content

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as there are bytes."""
        content = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """As the file does."""
        with storage_errors(self._failed):
            place: int = self._file.seek(offset, whence)
            return place

    def tell(self) -> int:
        """As the file does."""
        place: int = self._file.tell()
        return place

    def close(self) -> None:
        """Close the file too."""
        if not self.closed:
            self._file.close()
        super().close()
