"""Which labels of a masked sample are ignored: those of a span, or all?

A rule whose signal knows which positions made it masks these and nothing else: a public filter masks 65,000 tokens for
one run of 32. As soon as a rule without a span asks for the sample to be masked, the whole of it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.bounds import Condition
from dataguard.gate.judged import Judged
from dataguard.gate.rules import SPAN_SIGNALS, Policy, Rule
from dataguard.gate.verdict import Skip, Verdict

__all__ = ["merged", "spans_to_mask"]

LEAST_REPEATS = 3


def spans_to_mask(
    judged: Judged,
    policy: Policy,
    source_names: Sequence[str],
    ids: NDArray[Any],
    offsets: NDArray[np.int64],
    source: NDArray[np.int32],
    mask: NDArray[np.bool_] | None,
    vocab_size: int | None,
) -> Judged:
    """The same verdicts, with the spans of the samples that only rules with a span mask.

    Parameters
    ----------
    judged, policy, source_names, source
        Verdicts over n samples of tokens, and what gave them.
    ids, offsets, mask
        The samples, as `Gate.judge_tokens` takes them.
    vocab_size
        For ids outside of the vocabulary.
    """
    spans: dict[int, NDArray[np.int64]] = {}
    for i in np.flatnonzero(judged.verdict == Verdict.MASK).tolist():
        asking = [rule for rule in policy.rules if rule.action == "mask" and judged.rules[i] >> np.uint64(rule.bit) & 1]
        if any(rule.masks != "span" for rule in asking):
            continue
        part = slice(int(offsets[i]), int(offsets[i + 1]))
        row_mask = None if mask is None else mask[part]
        found = [
            _spans_of(condition, ids[part], row_mask, vocab_size)
            for rule in asking
            for condition in _with_span(policy, rule, source_names[source[i]])
        ]
        span = merged(np.concatenate(found)) if found else np.zeros((0, 2), np.int64)
        if len(span):
            spans[i] = span
    return replace(judged, _spans=spans) if spans else judged


def _with_span(policy: Policy, rule: Rule, source: str) -> list[Condition]:
    conditions = policy.conditions_of(rule, source)
    assert not isinstance(conditions, Skip), "a rule that fired was evaluated"
    return [each for each in conditions if each.signal.name in SPAN_SIGNALS and each.lower is not None]


def _spans_of(
    condition: Condition, ids: NDArray[Any], mask: NDArray[np.bool_] | None, vocab_size: int | None
) -> NDArray[np.int64]:
    from dataguard.score.spans import token_spans

    name = condition.signal.name
    # Shorter runs have no repeats by the signal's own definition.
    at_least = max(ceil(condition.low), LEAST_REPEATS) if name == "token_periodic_repeats" else None
    spans: NDArray[np.int64] = token_spans(ids, name, at_least=at_least, mask=mask, vocab_size=vocab_size)
    return spans


def merged(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Half-open spans in order, those that overlap or touch made one.

    >>> merged(np.array([[5, 7], [0, 2], [1, 4], [7, 9]])).tolist()
    [[0, 4], [5, 9]]
    """
    if not len(spans):
        return np.zeros((0, 2), np.int64)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    begins = np.flatnonzero(np.concatenate([[True], spans[1:, 0] > reach[:-1]]))
    ends = np.concatenate([begins[1:], [len(spans)]]) - 1
    return np.stack([spans[begins, 0], reach[ends]], axis=1).astype(np.int64)
