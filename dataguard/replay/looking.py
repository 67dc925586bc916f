"""What do the samples of a step hold, and where in it lies what the gravest rule saw?

For showing them. The shards are read, so this may fail where the record alone does not: whatever cannot be read says so
in its place, and nothing raises for it.

1. A slot shows the row that its verdict is about: the planned one, or where the plan itself put a substitute in its
   place, that one. Where the gate substituted, the refused row is shown, and the answer names what was delivered.
2. Places are those of the first signal that has any, of the rules that fired, the worst first (`worst`); where none
   has, of a headline signal that says that there is something. Of a record longer than `MOST_BYTES` its beginning is
   searched.
3. A window knows where its documents begin, where its shard does.

Scoring is not needed for that, so nothing here imports numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalSpec
from dataguard.corpus.contents import Content, slot_contents
from dataguard.corpus.formats.tokens import Boundaries
from dataguard.corpus.problems import Retry
from dataguard.corpus.reader import Verify
from dataguard.errors import NotInRun, RunDamaged
from dataguard.gate.verdict import Verdict
from dataguard.plan.given import require_planned_order
from dataguard.replay.answers import InspectedSample, ReplaySample
from dataguard.replay.worst import Fired, fired_rules
from dataguard.run.policies import policy_of
from dataguard.run.run import Run
from dataguard.score.registry import spec_of

__all__ = ["MOST_BYTES", "Looked", "Looker"]

MOST_BYTES = 1 << 18
_CACHE_BYTES = 64 << 20
_LEAST_REPEATS = 3
_TELLING_OF_PASSES = {
    "byte_periodic_repeats": 4.0,
    "nontext_fraction": 0.001,
    "out_of_vocabulary": 1.0,
    "token_periodic_repeats": 4.0,
}
_TELLING = {**_TELLING_OF_PASSES, "dup_5gram_char_fraction": 0.1, "token_dup_ngram_fraction": 0.1}
"""Headline signals that have places, and from which value on those are worth a look whatever the policy says."""
_NO_SPANS = np.zeros((0, 2), np.int64)
_NOTHING_SHOWN = frozenset({"quarantined", "unreadable", "skipped", "ended", "removed"})

Sample = InspectedSample | ReplaySample


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Looked:
    """One look at the row that a slot is about."""

    shard: str
    row: int
    content: bytes | NDArray[Any] | None
    """The bytes of a record, the ids of a window; None where it cannot be had."""
    problem: str | None
    """Why it cannot be had, or is not what the manifest says."""
    signal: str | None
    """The signal whose places are given; None where none has any."""
    spans: NDArray[np.int64]
    """Half-open ranges of bytes or token positions, shape (k, 2)."""
    documents: tuple[tuple[int, int], ...]
    """(position in the window, ordinal in the shard) of each document that begins in it, as far as the shard knows."""
    vocab_size: int | None
    """Ids of the attempt's vocabulary lie below it; None where that is not known."""


class Looker:
    """Looks at samples of one attempt.

    Parameters
    ----------
    run, attempt
        Which attempt of which run.
    roots
        Where sources lie now, where that is another place than the run remembers.
    verify
        ``raise`` shows nothing of a shard that was changed since, ``tell`` what it holds now.

    Raises
    ------
    UsageError
        Nobody ever said where a source lies, or a root is given for none; or the order is given from outside.
    """

    def __init__(
        self, run: Run, attempt: int, *, roots: Mapping[str, str] | None = None, verify: Verify = "raise"
    ) -> None:
        require_planned_order(
            run.plan_document().root, "a look at samples", todo="in Python: guard(dataloader, RUN).replay(step)"
        )
        self._stream = run.stream_of(attempt)
        self._seq_len = run.plan_of(attempt).root.seq_len
        self._vocab_size = run.begun(attempt).vocab_size or None
        try:
            self._policy = policy_of(run, attempt)
        except RunDamaged:
            self._policy = None  # inspect says so
        # Nobody waits here for a disk that is gone: a preview is worth one try.
        self._reader = run.reader(
            attempt, roots=roots, cache_bytes=_CACHE_BYTES, verify=verify, retry=Retry(attempts=1)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the reader."""
        self._reader.close()

    def look(self, samples: Sequence[Sample]) -> list[Looked | None]:
        """What each of them holds; None where a slot delivered nothing and nothing was judged."""
        rows = [_row_shown(sample) for sample in samples]
        places = [i for i, row in enumerate(rows) if row is not None]
        looked: list[Looked | None] = [None] * len(samples)
        if not places:
            return looked
        planned = self._stream.samples(np.array([samples[i].position for i in places], np.int64)).shard.tolist()
        blocks, told = np.full(len(places), -1, np.int64), {}
        numbers = np.zeros(len(places), np.int64)
        for k, (i, near) in enumerate(zip(places, planned, strict=True)):
            shard, numbers[k] = rows[i]  # type: ignore[misc]
            try:
                blocks[k] = self._block(shard, int(numbers[k]), near)
            except NotInRun as error:
                told[k] = str(error).splitlines()[0]
        contents = slot_contents(self._reader, blocks, numbers, seq_len=self._seq_len)
        for k, i in enumerate(places):
            looked[i] = self._looked(samples[i], rows[i], int(blocks[k]), contents[k], told.get(k))  # type: ignore[arg-type]
        return looked

    def _block(self, shard: str, row: int, near: int) -> int:
        """The block of a row; of the manifest that the planned row `near` is of, as substitutes are."""
        manifests = self._stream.manifest_set
        which, _ = manifests.split_shard(near)
        manifest = manifests.manifests[which]
        first = row if self._seq_len is None else row * self._seq_len
        return int(manifests.block_starts[which]) + manifest.block_of(manifest.find_shard(shard), first)

    def _looked(self, sample: Sample, row: tuple[str, int], block: int, content: Content, told: str | None) -> Looked:
        value = content.value
        signal, spans = None, _NO_SPANS
        if value is not None and self._policy is not None and _is_judged_row(sample, row):
            known = known_signals(sample)
            fired = fired_rules(self._policy, sample.rules, sample.source, known)
            signal, spans = _marked(fired, known, value, self._vocab_size)
        return Looked(
            shard=row[0],
            row=row[1],
            content=value,
            problem=str(content.problem) if content.problem is not None else told,
            signal=signal,
            spans=spans,
            documents=() if value is None or self._seq_len is None else self._documents(block, row[1]),
            vocab_size=self._vocab_size,
        )

    def _documents(self, block: int, window: int) -> tuple[tuple[int, int], ...]:
        assert self._seq_len is not None
        first = window * self._seq_len
        found = self._reader.boundaries(block, first, first + self._seq_len)
        if not isinstance(found, Boundaries):
            return ()  # the shard knows none, or its index is gone: the ids themselves can be shown
        starts = found.documents[:, 0].tolist()
        begin = ((start - first, found.first_document + i) for i, start in enumerate(starts))
        return tuple((at, document) for at, document in begin if 0 <= at < self._seq_len)


def known_signals(sample: Sample) -> dict[str, float | None]:
    """A sample's signals as far as they are known: the exact ones, else what a headline byte says."""
    headline = sample.headline or {} if isinstance(sample, InspectedSample) else {}
    return {**headline, **(sample.signals or {})}


def _row_shown(sample: Sample) -> tuple[str, int] | None:
    """The row that a slot is about."""
    if sample.delivered is not None and not _is_refused(sample):
        return sample.delivered.shard, sample.delivered.row
    nothing = sample.status in _NOTHING_SHOWN or (sample.status == "withheld" and sample.verdict is None)
    return None if nothing else (sample.shard, sample.row)


def _is_refused(sample: Sample) -> bool:
    """Whether the gate refused the planned row, and not the plan."""
    grave = sample.verdict is not None and Verdict[sample.verdict.upper()] > Verdict.FLAG
    return grave and (isinstance(sample, ReplaySample) or sample.event is None)


def _is_judged_row(sample: Sample, row: tuple[str, int]) -> bool:
    """Whether the row is known to be the one that the verdict is about."""
    if sample.delivered is None or row == (sample.shard, sample.row):
        return True
    return sample.verdict in {"pass", "flag"}


def _marked(
    fired: Sequence[Fired], known: Mapping[str, float | None], content: bytes | NDArray[Any], vocab_size: int | None
) -> tuple[str | None, NDArray[np.int64]]:
    """The first signal that has places in the content, and those."""
    conditions = [condition for rule in fired for condition in rule.conditions]
    asked = [(condition.signal.name, condition.lower) for condition in conditions]
    telling = _TELLING if fired else _TELLING_OF_PASSES
    asked += [(name, least) for name, least in telling.items() if (known.get(name) or 0.0) >= least]
    for signal, least_asked in asked:
        spans = _places(spec_of(signal), least_asked, content, vocab_size)
        if len(spans):
            return signal, spans
    return None, _NO_SPANS


def _places(
    spec: SignalSpec, at_least: float | None, content: bytes | NDArray[Any], vocab_size: int | None
) -> NDArray[np.int64]:
    if isinstance(content, bytes):
        from dataguard.score.text_spans import text_spans

        return text_spans(content[:MOST_BYTES], spec.name) if spec.kind == "text" else _NO_SPANS
    if spec.kind != "tokens" or (spec.name == "out_of_vocabulary" and vocab_size is None):
        return _NO_SPANS
    from dataguard.score.spans import token_spans

    runs = spec.name == "token_periodic_repeats" and at_least is not None
    return token_spans(
        content, spec.name, at_least=max(at_least or 0.0, _LEAST_REPEATS) if runs else None, vocab_size=vocab_size
    )
