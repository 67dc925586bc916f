"""What does a rule over a shard count, and can it ever fire?"""

from __future__ import annotations

from collections.abc import Mapping
from math import nextafter
from typing import Any

from dataguard.gate.bounds import number
from dataguard.gate.document import Draft, suggestion
from dataguard.gate.locate import Path, line_of
from dataguard.gate.rules import ShardRule
from dataguard.gate.verdict import ACTIONS

__all__ = ["shard_rule_of"]

_DEFAULT_COUNTS = ("mask", "substitute", "halt")
_DEFAULT_MIN_SAMPLES = 200


def shard_rule_of(
    draft: Draft,
    rule: Mapping[str, Any],
    path: Path,
    where: str,
    *,
    samples: Mapping[str, str],
    bits: Mapping[str, int],
) -> ShardRule | None:
    """A rule over shards as drafted; None where it cannot be.

    Parameters
    ----------
    draft, rule, path, where
        The draft, the rule in it, and where that stands.
    samples
        Name of every rule over samples -> its action.
    bits
        Name of every rule over samples that can be -> its bit.
    """
    before = len(draft.problems)
    counts = tuple(rule.get("counts", _DEFAULT_COUNTS))
    for i, word in enumerate(counts):
        if word not in ACTIONS and word not in samples:
            known = [*ACTIONS, *samples]
            draft.tell(
                "unknown-rule",
                (*path, "counts", i),
                where,
                f"{word!r} is no action and no rule over samples",
                allowed=", ".join(known),
                todo=suggestion(word, known),
            )
    counted = [name for name, action in samples.items() if name in counts or action in counts]
    if not counted and len(draft.problems) == before:
        draft.tell(
            "never",
            (*path, "counts"),
            where,
            f"no rule over samples has an action of {', '.join(counts) or 'none'}, so it never fires",
            found=", ".join(dict.fromkeys(samples.values())) or "no rule over samples",
        )
    given = [key for key in ("at_least", "above") if key in rule]
    if len(given) != 1:
        draft.tell(
            "missing-key" if not given else "no-meaning",
            path,
            where,
            "it needs one bound on the share of counted samples",
            found=" and ".join(given) or "none",
            allowed="at_least = SHARE or above = SHARE",
        )
        return None
    share = rule[given[0]]
    low = nextafter(share, 2.0) if given[0] == "above" else share
    if not 0 <= share <= 1:
        draft.tell("out-of-range", (*path, given[0]), where, f"{number(share)} is no share", allowed="0 to 1")
    elif low > 1:
        draft.tell("never", (*path, given[0]), where, "no share is above 1")
    elif low <= 0:
        draft.tell("always", (*path, given[0]), where, "every shard has a share of at least 0")
    if len(draft.problems) > before or not {"name", "action"} <= set(rule) or rule["action"] != "propose_quarantine":
        return None
    min_samples = rule.get("min_samples", _DEFAULT_MIN_SAMPLES)
    return ShardRule(
        name=rule["name"],
        counts=counts,
        bits=sum(bits.get(name, 0) for name in counted),
        low=low,
        min_samples=min_samples,
        sources=tuple(rule.get("sources", ())),
        max_fraction=rule.get("max_fraction", 0.0),
        apply_at_next_attempt=rule.get("apply_at_next_attempt", False),
        text=f"share of samples that count for {', '.join(counts)} {given[0].replace('_', ' ')} {number(share)} "
        f"of at least {min_samples:,}",
        note=rule.get("note", ""),
        line=line_of(draft.lines, path),
    )
