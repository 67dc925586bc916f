"""What does a policy say of one record, and by which numbers?

The record is read through the row reader, scored by every signal of its kind, and judged by the same gate that judges
batches; beside each rule stands what it said, beside each signal where in the record it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalKind, SignalSpec
from dataguard.errors import InputError, UsageError
from dataguard.gate.answers import RecordExplained, RuleJudged, SignalValue, meant, rule_shown
from dataguard.gate.gate import Gate
from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy, Rule
from dataguard.gate.table import ReferenceProfile
from dataguard.gate.verdict import Skip, Verdict
from dataguard.score.registry import SIGNALS

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus

__all__ = ["Explained", "explain_record"]

_MOST_SPANS = 100
_WHY = {
    Skip.KIND: "it is over the other kind of sample",
    Skip.SOURCE: "it is for other sources",
    Skip.OFF: "a section switches it off for this source",
    Skip.NEED: "what its signal needs is not there",
    Skip.REFERENCE: "the profile does not know this source",
    Skip.MINIMUM: "it is not meant for records of this length",
    Skip.PADDING: "there is nothing in the record",
}
_NEEDS = {
    "profile": "it needs a reference profile (--profile)",
    "vocab_size": "it needs the size of the vocabulary (--vocab-size)",
    "text_bytes": "it needs the bytes of the text that the tokens came from",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explained:
    """An explanation, and the record that it is of."""

    document: RecordExplained
    content: bytes | NDArray[Any]
    """The bytes of the text, or the ids."""


def explain_record(
    policy: Policy,
    corpus: Corpus,
    shard: str,
    row: int,
    *,
    profile: ReferenceProfile | None = None,
    vocab_size: int | None = None,
    seq_len: int | None = None,
) -> Explained:
    """Score and judge one record.

    Parameters
    ----------
    policy
        See `load_policy`.
    corpus
        That holds the record.
    shard, row
        Its shard by name, and its stored row there; of a token shard the window ``row * seq_len:(row + 1) * seq_len``.
    profile, vocab_size
        As `Gate` takes them.
    seq_len
        Tokens of a window, for token shards alone.

    Raises
    ------
    NotInRun
        The manifest has no such shard or row.
    UsageError
        `seq_len` is missing, or given for a text.
    PolicyError
        The policy speaks of sources that the manifest does not have.
    InputError
        The record cannot be read, or was rejected.
    """
    manifest = corpus.manifest
    number = manifest.find_shard(shard)
    source = manifest.shards[number].source
    kind = manifest.sources[source].kind
    gate = Gate(
        policy,
        source_names=[each.name for each in manifest.sources],
        source_kinds=[each.kind for each in manifest.sources],
        profile=profile,
        vocab_size=vocab_size,
        also=SIGNALS,
    )
    content = _read(corpus, number, row, kind, seq_len)
    where = np.array([source], np.int32)
    offsets = np.array([0, len(content)], np.int64)
    if isinstance(content, bytes):
        judged = gate.judge_texts(np.frombuffer(content, np.uint8), offsets, where)
    else:
        judged = gate.judge_tokens(content, offsets, where)
    name = manifest.sources[source].name
    rules = tuple(_rule_judged(policy, rule, judged, name) for rule in policy.rules)
    spans = judged.spans(0)
    document = RecordExplained(
        policy=policy.name,
        digest=policy.digest,
        shard=manifest.shard_name(number),
        row=row,
        source=name,
        kind=kind,
        length=len(content),
        verdict=_word(Verdict(int(judged.verdict[0]))),
        fired=tuple(rule.rule for rule in rules if rule.state == "fired"),
        mask_spans=None if spans is None else _pairs(spans),
        rules=rules,
        signals=tuple(
            _signal_value(spec, judged, policy, name, content, vocab_size)
            for spec in SIGNALS.values()
            if spec.kind == kind
        ),
    )
    return Explained(document=document, content=content)


def _read(corpus: Corpus, shard: int, row: int, kind: SignalKind, seq_len: int | None) -> bytes | NDArray[Any]:
    manifest = corpus.manifest
    name = manifest.shard_name(shard)
    with corpus.reader(cache_bytes=1 << 20) as reader:
        if kind == "text":
            if seq_len is not None:
                raise UsageError(f"shard {name} holds text, of which no window is cut", todo="leave --seq-len out")
            (found,) = reader.read([manifest.block_of(shard, row)], [row])
            if isinstance(found, bytes):
                return found
            raise InputError(str(found), todo="see why with: dataguard manifest show --rejected")
        if seq_len is None:
            raise UsageError(
                f"shard {name} holds tokens: which window of them?", todo="give --seq-len N; the row counts windows"
            )
        block = int(manifest.block_starts[shard])
        ids, problems = reader.read_windows([block], [row], seq_len)
        if problems:
            raise InputError(str(problems[0]))
        window: NDArray[Any] = ids[0]
        return window


def _rule_judged(policy: Policy, rule: Rule, judged: Judged, source: str) -> RuleJudged:
    reason = int(judged.why[0, rule.bit])
    state = "skipped" if reason >= 0 else "fired" if judged.fired_by(rule.bit)[0] else "quiet"
    conditions = policy.conditions_of(rule, source)
    there = rule.text if isinstance(conditions, Skip) else " and ".join(map(str, conditions))
    why = _WHY[Skip(reason)] if reason >= 0 else None
    members = {**msgspec.structs.asdict(rule_shown(rule)), "state": state, "why": why, "there": there}
    return msgspec.convert(members, RuleJudged)


def _signal_value(
    spec: SignalSpec,
    judged: Judged,
    policy: Policy,
    source: str,
    content: bytes | NDArray[Any],
    vocab_size: int | None,
) -> SignalValue:
    own: Mapping[str, Sequence[str]] = {
        state: [
            rule.name
            for rule in policy.rules
            if _reads(policy, rule, source, spec.name) and (state == "any" or judged.fired_by(rule.bit)[0])
        ]
        for state in ("any", "fired")
    }
    column = judged.signals.get(spec.name)
    spans = _spans(spec, content, vocab_size) if own["fired"] and column is not None else np.zeros((0, 2), np.int64)
    why = None
    if column is None:
        why = next(_NEEDS[need] for need in spec.needs)
    members = {
        **meant(spec),
        "value": None if column is None else column[0].item(),
        "why": why,
        "rules": tuple(own["any"]),
        "spans": _pairs(spans[:_MOST_SPANS]),
        "num_spans": len(spans),
    }
    return msgspec.convert(members, SignalValue)


def _reads(policy: Policy, rule: Rule, source: str, signal: str) -> bool:
    conditions = policy.conditions_of(rule, source)
    return not isinstance(conditions, Skip) and any(each.signal.name == signal for each in conditions)


def _spans(spec: SignalSpec, content: bytes | NDArray[Any], vocab_size: int | None) -> NDArray[np.int64]:
    if isinstance(content, bytes):
        from dataguard.score.text_spans import text_spans

        return text_spans(content, spec.name)
    from dataguard.score.spans import token_spans

    return token_spans(content, spec.name, vocab_size=vocab_size)


def _pairs(spans: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    return tuple((int(start), int(stop)) for start, stop in spans)


def _word(verdict: Verdict) -> Any:
    return verdict.name.lower()
