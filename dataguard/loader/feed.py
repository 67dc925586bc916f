"""How does a planned microbatch become bytes?

1. The rows of all slots that deliver something are read together, and judged where the attempt has a policy.
2. Slots whose row cannot be read or is refused are settled (`dataguard.run.settling`): withheld, masked, or filled with
   a substitute. A row that cannot be read does not stop the run; since the environment decided it and not the plan, it
   is written down as an exception. With ``on_unreadable = "halt"`` it raises instead.
3. The contents are assembled, in the one way a rebuild assembles them too, and the index records made: all that costs
   something is done by the threads that read ahead, nothing at hand-over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.microbatch import Microbatch
from dataguard.corpus.contents import slot_contents
from dataguard.corpus.reader import RowReader
from dataguard.loader.record import index_records
from dataguard.loader.walk import Planned
from dataguard.plan.document import Fill
from dataguard.plan.filled import fill_slots
from dataguard.plan.stream import Stream
from dataguard.plan.withheld import WithheldSet
from dataguard.run.judging import Judge
from dataguard.run.settling import OnUnreadable, Settled, Settler

__all__ = ["Fed", "Feeder", "OnUnreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """A microbatch ready for hand-over, with what is to be written before it."""

    microbatch: Microbatch
    planned: Planned
    settled: Settled
    records: NDArray[np.void]
    """Index records, one a slot."""
    storage_bytes: int = 0
    """Bytes read for it from shards, where another process read them."""
    tensors: Any = None
    """What an adapter's own processes made of it, and it hands over instead."""
    made_of: bytes | None = None
    """Digest of what `tensors` were made of, 16 bytes, where the microbatch's own covers them as well."""

    def without_content(self, *, storage_bytes: int) -> Fed:
        """What is sent from another process, which hands the samples over in another form, and read so much for it."""
        answers = self.settled.answers
        return replace(
            self,
            storage_bytes=storage_bytes,
            microbatch=replace(self.microbatch, records=None, ids=None),
            settled=replace(self.settled, contents=(), answers=None if answers is None else answers.counted()),
        )

    def with_digest(self, digest: bytes) -> Fed:
        """The same under another digest of the microbatch: one that covers what was made of it."""
        records = self.records.copy()
        records["microbatch_digest"][0] = np.void(digest)
        return replace(
            self,
            microbatch=replace(self.microbatch, digest=digest),
            records=records,
            made_of=self.made_of or self.microbatch.digest,
        )


class Feeder:
    """Reads, judges and assembles the microbatches of one attempt; safe for several threads.

    Parameters
    ----------
    reader
        Of the attempt's rows.
    stream, withheld, fill, attempt
        Of the attempt.
    seq_len
        Tokens of a window; None for documents.
    """

    def __init__(
        self,
        reader: RowReader,
        *,
        stream: Stream,
        withheld: WithheldSet,
        fill: Fill,
        attempt: int,
        seq_len: int | None,
        on_unreadable: OnUnreadable,
        judge: Judge | None = None,
    ) -> None:
        self.reader = reader
        self.stream = stream
        self._attempt = attempt
        self._seq_len = seq_len
        self._settler = Settler(
            partial(slot_contents, reader, seq_len=seq_len),
            stream=stream,
            withheld=withheld,
            fill=fill,
            judge=judge,
            on_unreadable=on_unreadable,
        )

    def feed(self, planned: Planned) -> Fed:
        """Read one planned microbatch."""
        return next(self.feed_many([planned]))

    def feed_many(self, planned: Sequence[Planned]) -> Iterator[Fed]:
        """Read several, in order: their rows together, and judged in one call of the gate.

        An error is raised where its microbatch would have come, unless it is one of reading them all.
        """
        parts = [(each.slots, each.address) for each in planned]
        for each, settled in zip(planned, self._settler.settle_many(parts), strict=True):
            yield self._fed(each, settled)

    def _fed(self, planned: Planned, settled: Settled) -> Fed:
        microbatch = fill_slots(
            settled.slots,
            [content.value for content in settled.contents],
            address=planned.address,
            attempt=self._attempt,
            batch=planned.batch,
            manifests=self.stream.manifest_set,
            seq_len=self._seq_len,
            dtype=self.reader.token_dtype,
            masked=settled.masked,
        )
        records = index_records(microbatch, events=settled.slots.event, answers=settled.answers)
        return Fed(microbatch=microbatch, planned=planned, settled=settled, records=records)
