"""What does the gate of an attempt say of samples, and how does it stand in the index?

`judge_of` puts an attempt's gate together from the run's copies of policy and profile. A `Judge` gives it samples of
the attempt's form, padding never, and collects verdicts, rules and signals by slot in `Answers`, which write themselves
into index records: verdict and rule bits from full precision, a byte of each headline signal, and the policy's signals
of what is no plain pass and of one sample in a hundred. Which ones those are follows from seed and position alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.signals import SignalKind
from dataguard.gate.account import Account
from dataguard.gate.judged import Judged
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import PlannedSlots
from dataguard.run.headline import encode_columns
from dataguard.run.policies import kept_profile, policy_of, sources_known
from dataguard.run.records import index_blocks, index_record, rounded
from dataguard.score.registry import HEADLINE

if TYPE_CHECKING:
    from dataguard.gate.gate import Gate
    from dataguard.gate.policy import Policy
    from dataguard.run.run import Run

__all__ = ["KEPT_ONE_IN", "Answers", "Asked", "Judge", "Told", "account_of", "judge_of", "keeps_signals"]

KEPT_ONE_IN = 100
"""Of plain passes, the signals of one in so many are kept."""


def keeps_signals(seed: int, position: int) -> bool:
    """Whether the signals of a plain pass are kept: by seed and position, whatever rank delivers it.

    >>> sum(keeps_signals(7, position) for position in range(10_000))
    102
    """
    return derive_key("kept-signals", seed, position) % KEPT_ONE_IN == 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What was said of the slots of one microbatch: arrays of shape (n,), or (n, signals)."""

    record: np.dtype[np.void]
    """Of the index records they are written into."""
    blocks: np.dtype[np.void]
    """The same, with headline and signals as one field each."""
    headline: tuple[str, ...]
    signals: tuple[str, ...]
    judged: NDArray[np.bool_]
    """Where any row was judged."""
    verdict: NDArray[np.uint8]
    rules: NDArray[np.uint64]
    headline_values: NDArray[np.float64]
    signal_values: NDArray[np.float64]
    kept: NDArray[np.bool_]
    """Where signals are kept whatever the verdict."""
    parts: list[Judged]
    """Each call of the gate: what its account is made of."""

    def values_of(self, place: int) -> dict[str, float]:
        """The policy's signals of one slot, in full precision."""
        return dict(zip(self.signals, self.signal_values[place].tolist(), strict=True))

    def counted(self) -> Answers:
        """The same with what an account is made of, and no more, of each call of the gate."""
        return replace(self, parts=[replace(part, signals={}, _spans={}) for part in self.parts])

    def write(self, records: NDArray[np.void]) -> None:
        """Write into index records (`record`), one a slot."""
        records["verdict"], records["rules"] = self.verdict, self.rules
        blocks = records.view(self.blocks)
        blocks["headline"] = encode_columns(self.headline, self.headline_values)
        keep = self.judged & (self.kept | (self.verdict != Verdict.PASS))
        blocks["signals"] = np.nan
        if keep.any():
            blocks["signals"][keep] = rounded(self.signal_values[keep])


Told = tuple[Verdict, NDArray[np.int64] | None]
"""A verdict, and for a mask the token positions that do not count, half-open, shape (k, 2); None for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """Rows of one microbatch that are to be judged."""

    places: Sequence[int]
    """The slot of each, by place in the microbatch."""
    contents: Sequence[bytes | NDArray[Any] | None]
    slots: PlannedSlots
    answers: Answers
    """Where it is noted."""


class Judge:
    """The gate of an attempt, for samples of one form.

    Parameters
    ----------
    gate
        Fitted to the stream's sources.
    kind
        What a sample is: ``text`` for documents, ``tokens`` for windows.
    seed
        Of the run.
    """

    def __init__(self, gate: Gate, *, kind: SignalKind, seed: int) -> None:
        self.gate = gate
        self.kind = kind
        self._seed = seed
        own = set(gate.policy.signals(kind))
        given = gate.signals(kind)
        self.headline = HEADLINE[kind]
        self.signals = tuple(name for name in given if name in own)
        self.record = index_record(self.headline, self.signals)
        self._blocks = index_blocks(self.record)

    @property
    def policy(self) -> Policy:
        """What it goes by."""
        return self.gate.policy

    def answers(self, positions: NDArray[np.int64]) -> Answers:
        """Nothing said yet of the slots at these positions."""
        size = len(positions)
        return Answers(
            record=self.record,
            blocks=self._blocks,
            headline=self.headline,
            signals=self.signals,
            judged=np.zeros(size, np.bool_),
            verdict=np.zeros(size, np.uint8),
            rules=np.zeros(size, np.uint64),
            headline_values=np.full((size, len(self.headline)), np.nan),
            signal_values=np.full((size, len(self.signals)), np.nan),
            kept=np.array([keeps_signals(self._seed, position) for position in positions.tolist()], np.bool_),
            parts=[],
        )

    def judge(self, asked: Sequence[Asked]) -> list[dict[int, Told]]:
        """Judge rows for slots of several microbatches in one call of the gate: it costs little more than for one.

        What is said is noted of slots that had no row judged before, or that halt.

        Returns
        -------
        list
            Of each microbatch what it was told, by place.
        """
        contents = [content for each in asked for content in each.contents]
        if not contents:
            return [{} for _ in asked]
        source = np.concatenate([each.slots.source[list(each.places)] for each in asked])
        judged = self._judged(contents, np.ascontiguousarray(source, np.int32))
        if len(asked) == 1:
            return [self.note(judged, asked[0].places, asked[0].answers)]
        columns = [self._columns(judged, names) for names in (self.headline, self.signals)]
        told, start = [], 0
        for each in asked:
            stop = start + len(each.places)
            if each.places:
                own = [values[start:stop] for values in columns]
                told.append(self._note(judged.part(start, stop), each.places, each.answers, own))
            else:
                told.append({})
            start = stop
        return told

    def note(self, judged: Judged, places: Sequence[int], answers: Answers) -> dict[int, Told]:
        """Note what the gate has said of rows for some slots of a microbatch; what each was told, by place."""
        columns = [self._columns(judged, names) for names in (self.headline, self.signals)]
        return self._note(judged, places, answers, columns)

    def _note(
        self, judged: Judged, places: Sequence[int], answers: Answers, columns: Sequence[NDArray[np.float64]]
    ) -> dict[int, Told]:
        answers.parts.append(judged)
        told: dict[int, Told] = {}
        for k, (place, said) in enumerate(zip(places, judged.verdict.tolist(), strict=True)):
            verdict = Verdict(said)
            told[place] = (verdict, judged.spans(k) if verdict == Verdict.MASK else None)
        noted = [k for k, p in enumerate(places) if not answers.judged[p] or told[p][0] == Verdict.HALT]
        at = np.array([places[k] for k in noted], np.int64)
        answers.verdict[at], answers.rules[at] = judged.verdict[noted], judged.rules[noted]
        for own, values in zip(columns, (answers.headline_values, answers.signal_values), strict=True):
            values[at] = own[noted]
        answers.judged[at] = True
        return told

    def _columns(self, judged: Judged, names: Sequence[str]) -> NDArray[np.float64]:
        """Signals side by side, NaN for those that could not be had: shape (n, names)."""
        values = np.empty((len(names), len(judged)))
        for i, name in enumerate(names):
            values[i] = judged.signals.get(name, np.nan)
        return values.T

    def _judged(self, contents: Sequence[bytes | NDArray[Any] | None], source: NDArray[np.int32]) -> Judged:
        if self.kind == "text":
            texts = [bytes(content) for content in contents if content is not None]
            offsets = np.zeros(len(texts) + 1, np.int64)
            np.cumsum([len(text) for text in texts], out=offsets[1:])
            return self.gate.judge_texts(np.frombuffer(b"".join(texts), np.uint8), offsets, source)
        rows = [np.asarray(content) for content in contents if content is not None]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return self.gate.judge_tokens(np.concatenate(rows), offsets, source)


def account_of(parts: Sequence[Judged], num_rules: int) -> Account:
    """What the rules did over many calls of the gate: counted together, since a count costs the same for one sample."""
    if not parts:
        return Account.empty(num_rules)
    return Account.of(
        Judged(
            kind=parts[0].kind,
            verdict=np.concatenate([part.verdict for part in parts]),
            rules=np.concatenate([part.rules for part in parts]),
            signals={},
            why=np.concatenate([part.why for part in parts]),
            scored=np.concatenate([part.scored for part in parts]),
            num_rules=num_rules,
        )
    )


def judge_of(run: Run, attempt: int) -> Judge | None:
    """What judges the samples of an attempt; None where it has no policy. Scoring itself imports numba.

    Raises
    ------
    RunDamaged
        The run's copy of the policy or the profile cannot be trusted.
    """
    from dataguard.gate.gate import Gate

    facts = run.attempts().attempt(attempt)
    policy = policy_of(run, attempt)
    if policy is None:
        return None
    plan = run.plan_of(attempt)
    root = plan.root
    kind: SignalKind = "text" if root.form == "document" else "tokens"
    source_names = run.stream_of(attempt).source_names
    gate = Gate(
        policy,
        source_names=source_names,
        source_kinds=[kind] * len(source_names),
        known_sources=sources_known(plan),
        profile=None if facts.profile is None else kept_profile(run.layout, facts.profile),
        vocab_size=facts.vocab_size,
    )
    return Judge(gate, kind=kind, seed=root.seed)
