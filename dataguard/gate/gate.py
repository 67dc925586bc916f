"""Which verdict does each sample get?

A `Gate` is a policy fitted to a corpus: its sources, its reference profile, its vocabulary. It scores what it is given
(score/), or takes signals that are there already, and judges:

1. Each rule is evaluated on each sample it is for; where it is not, the reason is kept.
2. All rules that fire set their bits; the gravest of their actions is the verdict.
3. A sample of tokens that only rules with a span mask is masked there and nowhere else.

The answer is a function of the sample, its source, the policy, the profile and the vocabulary's size: never of the
other samples, their order or the number of threads. Padding is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import Need, SignalKind, robust_z
from dataguard.errors import UsageError
from dataguard.gate.batches import BatchVerdict, judge_batch
from dataguard.gate.fitting import fit_problems, lacking_problems
from dataguard.gate.judged import Judged
from dataguard.gate.masking import spans_to_mask
from dataguard.gate.problem import Problem, policy_error
from dataguard.gate.rules import Policy
from dataguard.gate.shards import ShardCounts, ShardVerdict, judge_shards, shard_counts
from dataguard.gate.table import ReferenceProfile, Table, make_table
from dataguard.gate.verdict import Verdict
from dataguard.score.registry import HEADLINE, SIGNALS, spec_of

__all__ = ["Gate"]

Column = NDArray[np.int64] | NDArray[np.float64]


class Gate:
    r"""A policy fitted to sources. Safe for several threads, and to be pickled.

    Parameters
    ----------
    policy
        See `load_policy`.
    source_names
        By index; samples name their source by it.
    source_kinds
        What each source holds, where that is known: more that can never fire is found then.
    known_sources
        Sources of the corpus that this gate will not meet (a stream of tokens, beside texts); a policy may speak of
        them.
    profile
        The reference profile, for rules on outliers; without it they are skipped, and counted so.
    vocab_size
        Ids of a sample lie in ``[0, vocab_size)``; without it the rules that need it are skipped, and counted so.
    strict
        Refuse a policy of which a rule lacks its profile or vocabulary size, instead of skipping that rule.
    also
        Signals to give beside those that the policy asks for; the headline signals, which the index keeps for every
        sample, where None.

    Raises
    ------
    PolicyError
        The policy does not fit: it speaks of sources that do not exist, or (`strict`) lacks what it needs.

    Examples
    --------
    >>> from dataguard.gate.policy import read_policy
    >>> text = '[[rules]]\nname = "low"\nsignal = "byte_entropy"\nbelow = 2\naction = "mask"'
    >>> gate = Gate(read_policy(text, name="p"), source_names=["web"], also=())
    >>> judged = gate.judge_columns({"byte_entropy": np.array([4.5, 1.0])}, np.zeros(2, np.int32), "text")
    >>> judged.verdict.tolist(), judged.rules.tolist(), judged.evaluated.tolist(), judged.fired.tolist()
    ([0, 2], [0, 1], [2], [1])
    """

    def __init__(
        self,
        policy: Policy,
        *,
        source_names: Sequence[str],
        source_kinds: Sequence[SignalKind] | None = None,
        known_sources: Sequence[str] = (),
        profile: ReferenceProfile | None = None,
        vocab_size: int | None = None,
        strict: bool = False,
        also: Iterable[str] | None = None,
    ) -> None:
        if vocab_size is not None and vocab_size < 1:
            raise UsageError(f"a vocabulary of {vocab_size:,} ids cannot be", allowed="at least 1")
        self.policy = policy
        self.source_names = tuple(source_names)
        self.profile = profile
        self.vocab_size = vocab_size
        self._also = None if also is None else frozenset(spec_of(name).name for name in also)
        problems = fit_problems(policy, self.source_names, source_kinds, known_sources=known_sources)
        lacking = lacking_problems(policy, self.source_names, source_kinds, profile=profile, vocab_size=vocab_size)
        if problems or (strict and lacking):
            raise policy_error(policy.name, (*problems, *(lacking if strict else ())))
        self.remarks: tuple[Problem, ...] = lacking
        """Rules that will be skipped everywhere, since what they need is not there."""
        self._lengths = [
            None if profile is None else profile.reference(name, "length_outlier") for name in self.source_names
        ]
        needs: dict[Need, object] = {"profile": profile, "vocab_size": vocab_size}
        self._lacking = frozenset(need for need, given in needs.items() if given is None)
        self._tables: dict[tuple[SignalKind, bool], Table] = {}
        self._levels = [
            (level, np.uint64(sum(1 << rule.bit for rule in policy.rules if rule.verdict == level)))
            for level in sorted({rule.verdict for rule in policy.rules})
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}}

    def signals(self, kind: SignalKind, *, text_bytes: bool = False) -> tuple[str, ...]:
        """Signals that it gives for samples of a kind, in the registry's order: the policy's, and those beside them.

        Those whose need is not there are left out; `text_bytes` says whether the bytes of the texts will be given.
        """
        wanted = {*self.policy.signals(kind), *(HEADLINE[kind] if self._also is None else self._also)}
        lacking = self._lacking_for(text_bytes=text_bytes)
        return tuple(
            name
            for name, spec in SIGNALS.items()
            if name in wanted and spec.kind == kind and not any(need in lacking for need in spec.needs)
        )

    def judge_texts(self, values: NDArray[np.uint8], offsets: NDArray[np.int64], source: NDArray[np.int32]) -> Judged:
        """Score and judge records.

        Parameters
        ----------
        values
            Their bytes, one record behind the other; uint8.
        offsets
            Record i is ``values[offsets[i]:offsets[i + 1]]``; int64, shape (n + 1,).
        source
            Index of each record's source, -1 for padding; shape (n,).
        """
        from dataguard.score.text import score_buffers

        names = self.signals("text")
        scored = [name for name in names if name != "length_outlier"]
        if "length_outlier" in names and "length_bytes" not in scored:
            scored.insert(0, "length_bytes")
        columns = dict(score_buffers(values, offsets, scored)) if scored else {}
        if "length_outlier" in names:
            columns["length_outlier"] = self.length_outlier(columns["length_bytes"], source)
        return self.judge_columns({name: columns[name] for name in names}, source, "text")

    def judge_tokens(
        self,
        ids: NDArray[Any],
        offsets: NDArray[np.int64],
        source: NDArray[np.int32],
        mask: NDArray[np.bool_] | None = None,
        *,
        text_bytes: NDArray[np.int64] | None = None,
    ) -> Judged:
        """Score and judge samples of tokens.

        Parameters
        ----------
        ids
            One sample behind the other; integers of any width, 1-D.
        offsets
            Sample i is ``ids[offsets[i]:offsets[i + 1]]``; int64, shape (n + 1,).
        source
            Index of each sample's source, -1 for padding; shape (n,).
        mask
            Where a position counts, as `ids`; all of them where None. A sample in which none counts is padding.
        text_bytes
            Bytes of the text that each sample came from, shape (n,), where they are known.
        """
        from dataguard.score.tokens import score_token_rows

        offsets = np.asarray(offsets, np.int64)
        names = self.signals("tokens", text_bytes=text_bytes is not None)
        if mask is None:
            lengths = np.diff(offsets)
        else:
            before = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
            lengths = before[offsets[1:]] - before[offsets[:-1]]
        columns = (
            score_token_rows(ids, offsets, names, mask=mask, vocab_size=self.vocab_size, text_bytes=text_bytes)
            if names
            else {}
        )
        source = np.where(lengths > 0, source, -1).astype(np.int32)
        judged = self.judge_columns(columns, source, "tokens")
        return spans_to_mask(judged, self.policy, self.source_names, ids, offsets, source, mask, self.vocab_size)

    def judge_columns(self, columns: Mapping[str, Column], source: NDArray[np.int32], kind: SignalKind) -> Judged:
        """Judge samples whose signals are there already: an audit's second pass, a replay, a test.

        Parameters
        ----------
        columns
            By name, each of shape (n,): all of `signals(kind)` that rules read; more does no harm. ``fertility`` is
            used where it is given.
        source
            Index of each sample's source, -1 for padding; shape (n,).
        kind
            Of the samples.

        Raises
        ------
        UsageError
            A column is missing or of another length, or a source has no name.
        """
        source = np.asarray(source, np.int32)
        if len(source) and not (source.min() >= -1 and source.max() < len(self.source_names)):
            raise UsageError(
                f"source {source.max() if source.min() >= -1 else source.min()} has no name",
                allowed=f"0:{len(self.source_names)}, or -1 for padding",
            )
        table = self._table(kind, text_bytes="fertility" in columns)
        for name in table.signals:
            if name not in columns:
                raise UsageError(f"signal {name} is missing", found=", ".join(columns), todo="score it first")
            if np.shape(columns[name]) != source.shape:
                raise UsageError(
                    f"signal {name} has shape {np.shape(columns[name])}", allowed=f"one value a sample: {source.shape}"
                )
        rules, why = table.judge(columns, source)
        verdict = np.full(len(source), Verdict.PASS, np.uint8)
        for level, bits in self._levels:  # the gravest last
            verdict[(rules & bits) != 0] = level
        return Judged(
            kind=kind,
            verdict=verdict,
            rules=rules,
            signals=dict(columns),
            why=why,
            scored=source >= 0,
            num_rules=len(self.policy.rules),
        )

    def length_outlier(self, length_bytes: Column, source: NDArray[np.int32]) -> NDArray[np.float64]:
        """The signal `length_outlier` of each record; 0 where the profile knows nothing of its source.

        As `score.profile.length_outlier`, with the references taken from the profile once.
        """
        outlier = np.zeros(len(length_bytes))
        logs = np.log1p(np.asarray(length_bytes, np.float64))
        for s, reference in enumerate(self._lengths):
            if reference is not None:
                own = source == s
                outlier[own] = robust_z(logs[own], reference)
        return outlier

    def judge_batch(
        self,
        columns: Mapping[str, Column],
        source: NDArray[np.int32],
        *,
        live: NDArray[np.bool_] | None = None,
    ) -> tuple[BatchVerdict, ...]:
        """Judge one global batch by the policy's batch rules; see `batches.judge_batch`."""
        return judge_batch(self.policy, self.source_names, columns, source, live=live)

    def shard_counters(self, judged: Judged, shard: NDArray[np.int64], source: NDArray[np.int32]) -> ShardCounts:
        """What the policy's shard rules count of some samples; add the counts of all ranks and blocks up."""
        return shard_counts(self.policy, judged, shard, source)

    def judge_shards(self, counts: ShardCounts) -> tuple[ShardVerdict, ...]:
        """Judge shards by the counts of all ranks and blocks; see `shards.judge_shards`."""
        return judge_shards(self.policy, self.source_names, counts)

    def _lacking_for(self, *, text_bytes: bool) -> frozenset[Need]:
        also: frozenset[Need] = frozenset() if text_bytes else frozenset({"text_bytes"})
        return self._lacking | also

    def _table(self, kind: SignalKind, *, text_bytes: bool) -> Table:
        table = self._tables.get((kind, text_bytes))
        if table is None:
            lacking = self._lacking_for(text_bytes=text_bytes)
            table = make_table(self.policy, kind, self.source_names, profile=self.profile, lacking=lacking)
            self._tables[kind, text_bytes] = table
        return table
