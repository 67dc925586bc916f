"""What do the signals of some samples say, read again from their shards?

Rows are read as they were delivered, a substitute where one was, and count only where their digest is the one that was
recorded. At most `MOST_SCORED` samples are read in all. What cannot be read is counted, with its shard.
Ids of windows that are bytes (a vocabulary of at most 512 ids, no id of any sample read above 256) are judged as text
as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.digests import canonical_tokens, sample_digest
from dataguard.corpus.contents import slot_contents
from dataguard.corpus.problems import Retry
from dataguard.errors import DataguardError
from dataguard.replay.given import not_rebuilt
from dataguard.run.run import Run
from dataguard.triage.localise.history import Delivered, Names
from dataguard.triage.localise.measures import measured, needed_signals

__all__ = ["MOST_SCORED", "Scored", "score_samples"]

MOST_SCORED = 512
"""Samples that are read and scored for one answer: of the event and of the background together."""
_MOST_BYTES = 256 << 20
_CACHE_BYTES = 64 << 20
_BYTE_IDS = 256
_BYTE_VOCABULARY = 512


@dataclass(slots=True, kw_only=True, eq=False)
class Scored:
    """Measures of some samples, arrays of shape (n,), NaN where one is not known."""

    values: dict[str, NDArray[np.float64]]
    rebuilt: NDArray[np.bool_]
    """Whether it was read again, and is what was delivered."""
    unreadable_shards: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def score_samples(run: Run, samples: Delivered, shards: Names, *, roots: Mapping[str, str] | None = None) -> Scored:
    """Read samples again and score them.

    Parameters
    ----------
    samples
        All of them held something; at most `MOST_SCORED`.
    shards
        Names of their shards.
    """
    n = len(samples)
    contents: list[bytes | NDArray[Any] | None] = [None] * n
    notes: list[str] = []
    failed = np.zeros(n, np.bool_)
    given = run.plan_document().root.form == "given"
    if given:
        notes.append(not_rebuilt(run.plan))
    else:
        for attempt in np.unique(samples.attempt).tolist():
            _read(run, attempt, samples, contents, roots, notes)
        failed = np.array([content is None for content in contents], np.bool_)
    values = _scored(run, samples, contents, notes)
    rebuilt = np.array([content is not None for content in contents], np.bool_)
    lost = sorted({shards.names[each] for each in samples.shard[failed].tolist()})
    return Scored(values=values, rebuilt=rebuilt, unreadable_shards=tuple(lost), notes=notes)


def _read(
    run: Run,
    attempt: int,
    samples: Delivered,
    contents: list[bytes | NDArray[Any] | None],
    roots: Mapping[str, str] | None,
    notes: list[str],
) -> None:
    mine = np.flatnonzero(samples.attempt == attempt)
    sizes = np.cumsum(samples.length[mine] * (1 if run.plan_of(attempt).root.seq_len is None else 8))
    within = sizes <= _MOST_BYTES
    if not within.all():
        notes.append(f"{np.count_nonzero(~within):,} samples were not read: only {_MOST_BYTES >> 20} MiB are")
        mine = mine[within]
    seq_len = run.plan_of(attempt).root.seq_len
    manifests = run.stream_of(attempt).manifest_set
    blocks = np.full(len(mine), -1, np.int64)
    for i, place in enumerate(mine.tolist()):
        which, local = manifests.split_shard(int(samples.number[place]))
        first = int(samples.row[place]) * (1 if seq_len is None else seq_len)
        blocks[i] = int(manifests.block_starts[which]) + manifests.manifests[which].block_of(local, first)
    try:
        # Nobody waits here for a disk that is gone, and what a changed shard holds now is told by its digest.
        with run.reader(
            attempt, roots=roots, verify="tell", retry=Retry(attempts=1), cache_bytes=_CACHE_BYTES
        ) as reader:
            found = slot_contents(reader, blocks, samples.row[mine], seq_len=seq_len)
    except DataguardError as error:
        notes.append(f"samples of attempt {attempt} cannot be read: {str(error).splitlines()[0]}")
        return
    for place, content in zip(mine.tolist(), found, strict=True):
        value = content.value
        if value is None:
            continue
        canonical = value if isinstance(value, bytes) else canonical_tokens(value)
        if int.from_bytes(sample_digest(canonical)[:8], "little") == int(samples.digest[place]):
            contents[place] = value


def _scored(
    run: Run, samples: Delivered, contents: Sequence[bytes | NDArray[Any] | None], notes: list[str]
) -> dict[str, NDArray[np.float64]]:
    n = len(contents)
    texts = [(i, each) for i, each in enumerate(contents) if isinstance(each, bytes)]
    windows = [(i, each) for i, each in enumerate(contents) if isinstance(each, np.ndarray)]
    signals: dict[str, NDArray[np.float64]] = {}

    def put(places: Sequence[int], found: Mapping[str, NDArray[Any]]) -> None:
        for name, values in found.items():
            signals.setdefault(name, np.full(n, np.nan))[list(places)] = values

    if windows:
        from dataguard.score.token_rows import score_token_rows

        sizes = {run.begun(attempt).vocab_size for attempt in np.unique(samples.attempt).tolist()}
        vocab_size = sizes.pop() if len(sizes) == 1 else None
        ids = np.concatenate([each for _, each in windows])
        offsets = np.cumsum([0, *(len(each) for _, each in windows)]).astype(np.int64)
        names = needed_signals("tokens", with_vocabulary=bool(vocab_size))
        put([i for i, _ in windows], score_token_rows(ids, offsets, names, None, vocab_size or None))
        if (not vocab_size or vocab_size <= _BYTE_VOCABULARY) and len(ids) and 0 <= ids.min() <= ids.max() <= _BYTE_IDS:
            notes.append("ids of windows are bytes, and were judged as text as well")
            texts = [(i, each[each < _BYTE_IDS].astype(np.uint8).tobytes()) for i, each in windows]
    if texts:
        from dataguard.score.text import score_buffers

        offsets = np.cumsum([0, *(len(each) for _, each in texts)]).astype(np.int64)
        joined = np.frombuffer(b"".join(each for _, each in texts), np.uint8)
        put([i for i, _ in texts], score_buffers(joined, offsets, needed_signals("text", with_vocabulary=False)))
    return measured(signals)
