"""How many copies are there in each source, and which records have the most?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.documents import DuplicateGroup, Duplicates, DuplicatesOf
from dataguard.audit.duplicates import Piece
from dataguard.audit.outputs import Names
from dataguard.core.manifest import Manifest

__all__ = ["NUM_GROUPS", "DuplicatesTally"]

NUM_GROUPS = 20


class DuplicatesTally:
    """Counts of copies, by source."""

    def __init__(self, manifest: Manifest) -> None:
        self._source = np.array([shard.source for shard in manifest.shards], np.int64)
        num = len(manifest.sources)
        self.records = np.zeros(num, np.int64)
        self.content_bytes = np.zeros(num, np.int64)
        self.copies = np.zeros(num, np.int64)
        self.copied_bytes = np.zeros(num, np.int64)
        self.within = np.zeros(num, np.int64)
        self.across_sources = np.zeros(num, np.int64)
        self._largest: list[tuple[int, int, int, bytes, int]] = []  # (-records, shard, row, digest, content bytes)
        self._open: tuple[NDArray[np.void], int] | None = None  # first entry and size of the group that may go on

    def count(self, piece: Piece) -> None:
        """Take a piece into account; pieces come in order."""
        num = len(self.records)
        source = self._source[piece.entries["shard"]]
        copies = piece.is_copy
        content = piece.entries["content_bytes"]
        self.records += np.bincount(source, minlength=num)
        self.copies += np.bincount(source[copies], minlength=num)
        self.within += np.bincount(source[piece.is_within], minlength=num)
        elsewhere = copies & (self._source[piece.previous["shard"]] != source)
        self.across_sources += np.bincount(source[elsewhere], minlength=num)
        for which, total in ((slice(None), self.content_bytes), (copies, self.copied_bytes)):
            np.add.at(total, source[which], content[which])
        self._groups(piece)

    def _groups(self, piece: Piece) -> None:
        starts = np.flatnonzero(~piece.is_copy)
        head = int(starts[0]) if len(starts) else len(piece.entries)
        if head and self._open is not None:
            self._open = (self._open[0], self._open[1] + head)
        if not len(starts):
            return
        self._close()
        sizes = np.diff(np.append(starts, len(piece.entries)))
        least = -self._largest[-1][0] if len(self._largest) == NUM_GROUPS else 1
        for place in np.flatnonzero((sizes[:-1] > 1) & (sizes[:-1] >= least)).tolist():
            self._keep(piece.entries[starts[place] : starts[place] + 1], int(sizes[place]))
        self._open = (piece.entries[starts[-1] : starts[-1] + 1].copy(), int(sizes[-1]))

    def _close(self) -> None:
        if self._open is not None and self._open[1] > 1:
            self._keep(*self._open)
        self._open = None

    def _keep(self, first: NDArray[np.void], records: int) -> None:
        entry = first[0]
        digest = int(entry["high"]).to_bytes(8, "big") + int(entry["low"]).to_bytes(8, "big")
        self._largest.append((-records, int(entry["shard"]), int(entry["row"]), digest, int(entry["content_bytes"])))
        self._largest.sort()
        del self._largest[NUM_GROUPS:]

    def account(self, names: Names, blank: NDArray[np.int64]) -> Duplicates:
        """What was counted; `blank` records of each source were not told as samples."""
        self._close()
        by_source = tuple(
            DuplicatesOf(
                source=name,
                records=int(self.records[i]),
                blank=int(blank[i]),
                copies=int(self.copies[i]),
                within_shards=int(self.within[i]),
                across_shards=int(self.copies[i] - self.within[i]),
                across_sources=int(self.across_sources[i]),
                share_of_records=_share(self.copies[i], self.records[i]),
                share_of_bytes=_share(self.copied_bytes[i], self.content_bytes[i]),
            )
            for i, name in enumerate(names.sources)
        )
        return Duplicates(
            records=int(self.records.sum()),
            blank=int(blank.sum()),
            copies=int(self.copies.sum()),
            share_of_records=_share(self.copies.sum(), self.records.sum()),
            share_of_bytes=_share(self.copied_bytes.sum(), self.content_bytes.sum()),
            by_source=by_source,
            largest=tuple(
                DuplicateGroup(
                    digest=digest.hex(), records=-records, content_bytes=size, shard=names.shards[shard], row=row
                )
                for records, shard, row, digest, size in self._largest
            ),
        )


def _share(part: np.int64, whole: np.int64) -> float:
    return int(part) / int(whole) if whole else 0.0
