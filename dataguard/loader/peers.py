"""How do the ranks of a launch speak to each other, where they can?

Ranks that share nothing but the run directory meet through its journal (`dataguard.run.join`). Where a trainer has a
process group, an adapter puts it behind `Peers`, and `agree` uses it to have all ranks begin together, or fail
together.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Peers"]


class Peers(Protocol):
    """The ranks of a launch. Every call is collective: all ranks make it, in the same order, or all of them fail.

    Waiting has a bound: `RankMissing` names who did not come where that can be known.
    """

    @property
    def name(self) -> str:
        """What this process is called in messages: ``rank 3``."""

    @property
    def records(self) -> bool:
        """Whether it reads for its rank, judges and records; False where another process of its replica does."""

    @property
    def device(self) -> str | None:
        """Where this rank computes, for people; None where nobody said."""

    def gather(self, value: Any) -> list[Any]:
        """The picklable value of every process, in order of rank, on all of them."""

    def broadcast(self, value: Any) -> Any:
        """The picklable value of rank 0, on all ranks."""
