"""What must a trainer keep beside its checkpoint so that the stream goes on where it stood?

Which run (by the digest of its root), which attempt wrote the state, the next step, and the head of the journal as that
attempt knew it. Nothing else: everything further follows from the plan and the journal, whatever the next geometry.
A state is taken at a step boundary, is the same on every rank, and what a prefetcher holds never counts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dataguard.core.digests import canonical_json
from dataguard.errors import AttemptError

__all__ = ["JournalHead", "LoaderState", "read_state"]

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class JournalHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last event of the journal: should a tail of events vanish, it shows."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    sha256: Sha256
    """Of the raw bytes of the event's file."""


class LoaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run stands between two steps.

    >>> head = JournalHead(number=3, sha256="ab" * 32)
    >>> state = LoaderState(root_digest="cd" * 32, attempt=2, next_step=41, journal_head=head)
    >>> read_state(state.to_dict()) == read_state(state.encode()) == state
    True
    """

    version: Literal[1] = 1
    root_digest: Sha256
    """`Root.digest` of the run's plan."""
    attempt: Annotated[int, msgspec.Meta(ge=0)]
    """The attempt that wrote the state, and the parent of whichever resumes from it; 0 where none had begun yet."""
    next_step: Annotated[int, msgspec.Meta(ge=0)]
    """The next step to deliver, counted from 0 whatever the trainer's labels."""
    journal_head: JournalHead

    def to_dict(self) -> dict[str, Any]:
        """Turn it into plain dicts, strings and integers, as frameworks store states."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def encode(self) -> bytes:
        """Spell it canonically: equal states give equal bytes."""
        return canonical_json(self)

    def check_root(self, root_digest: str) -> None:
        """Refuse a state of another stream."""
        if self.root_digest != root_digest:
            raise AttemptError(
                "this loader state belongs to another stream",
                found=f"a state of root {self.root_digest}",
                allowed=f"a state of root {root_digest}, that of this run's plan",
                todo="resume with the run that wrote the state: manifest, seed, form, seq_len, lanes, window of blocks "
                "and shuffle never change in a run",
            )


def read_state(state: bytes | str | dict[str, Any]) -> LoaderState:
    """Read a state back from JSON or from plain dicts; AttemptError says what does not fit, and where."""
    try:
        if isinstance(state, bytes | str):
            return msgspec.json.decode(state, type=LoaderState)
        return msgspec.convert(state, LoaderState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AttemptError(
            "this is no loader state", found=str(error), allowed="what state() of a loader gave, version 1"
        ) from error
