"""How are the rows of parts taken up again, as arrays of one kind of samples at a time?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest, SourceKind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Run", "Runs"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Scored samples of one kind, in the order of shards and rows. Arrays have one entry a sample."""

    kind: SourceKind
    shard: NDArray[np.int64]
    source: NDArray[np.int32]
    row: NDArray[np.int64]
    content_bytes: NDArray[np.int64]
    tokens: NDArray[np.int64]
    """0 for text."""
    is_blank: NDArray[np.bool_]
    """Without a word, or a token."""
    digests: NDArray[np.void]
    """V16."""
    signals: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.row)

    def spans(self, of: NDArray[Any]) -> Iterator[tuple[int, slice]]:
        """Neighbours with one value of an array of this run (`source`, or `shard`): the value, and where they are."""
        if not len(of):
            return
        starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(of)], strict=True):
            yield int(of[start]), slice(start, stop)


class Runs:
    """Makes runs of tables.

    Parameters
    ----------
    manifest
        Says of which source and kind a shard is.
    signals
        Names of the signals of each kind.
    """

    def __init__(self, manifest: Manifest, signals: Mapping[SourceKind, Sequence[str]]) -> None:
        self._source = np.array([shard.source for shard in manifest.shards], np.int32)
        self._is_text = np.array([source.kind == "text" for source in manifest.sources], dtype=bool)
        self._signals = signals

    def of(self, table: pa.Table) -> Iterator[Run]:
        """The rows of a part, in order, cut where the kind changes."""
        shard = _numbers(table, "shard").astype(np.int64)
        source = self._source[shard]
        is_text = self._is_text[source]
        cuts = [0, *(np.flatnonzero(is_text[1:] != is_text[:-1]) + 1).tolist(), len(shard)]
        for start, stop in pairwise(cuts):
            if start < stop:
                yield self._run(table.slice(start, stop - start), shard[start:stop], source[start:stop])

    def _run(self, table: pa.Table, shard: NDArray[np.int64], source: NDArray[np.int32]) -> Run:
        kind: SourceKind = "text" if self._is_text[source[0]] else "tokens"
        signals = {name: _numbers(table, name) for name in self._signals[kind]}
        tokens = signals["length_tokens"] if kind == "tokens" else np.zeros(len(shard), np.int64)
        return Run(
            kind=kind,
            shard=shard,
            source=source,
            row=_numbers(table, "row"),
            content_bytes=_numbers(table, "content_bytes"),
            tokens=tokens,
            is_blank=signals["length_words" if kind == "text" else "length_tokens"] == 0,
            digests=_digests(table),
            signals=signals,
        )


def _numbers(table: pa.Table, name: str) -> NDArray[Any]:
    numbers: NDArray[Any] = table.column(name).to_numpy()
    return numbers


def _digests(table: pa.Table) -> NDArray[np.void]:
    parts = [
        np.frombuffer(chunk.buffers()[1], "V16", len(chunk), 16 * chunk.offset)
        for chunk in table.column("digest").chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, "V16")
