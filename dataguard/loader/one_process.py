"""What may not leave the process it was made in?

A loader: it records what is handed over to its rank, here. A copy would hand over beside it, and a pickle that is sent
to another process would record there what was read here. Python would say so of the first lock it comes by.
"""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from dataguard.errors import UsageError

__all__ = ["OfOneProcess"]


class OfOneProcess:
    """Refuses to be copied and pickled, by its own name.

    >>> import copy
    >>> class Walker(OfOneProcess):
    ...     pass
    >>> copy.copy(Walker())
    Traceback (most recent call last):
        ...
    dataguard.errors.UsageError: a Walker cannot be copied, nor sent to another process
      allowed: one for each rank, in the process that trains: it records what is handed over there
      next: make it in that process; what goes from one to the next is its state
    """

    def __reduce_ex__(self, _: SupportsIndex, /) -> NoReturn:
        raise UsageError(
            f"a {type(self).__name__} cannot be copied, nor sent to another process",
            allowed="one for each rank, in the process that trains: it records what is handed over there",
            todo="make it in that process; what goes from one to the next is its state",
        )
