"""Is what was rebuilt what was delivered?

A slot is compared by three things: what the plan says of it (shard, row, status), and the digest of its bytes, against
the record. A microbatch is exact when all its slots are and its own digest, over slot order, mask and bytes, is too.

A rebuilt sample of a shard that was changed since is ``differs`` even where the changed bytes can no longer be decoded:
the answer to "is it the same?" is known. ``unreadable`` is kept for what cannot be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.core.microbatch import NOTHING
from dataguard.corpus.problems import RowProblem
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.replay.answers import Delivered, ReplayMicrobatch, ReplaySample, ReplayStatus
from dataguard.replay.rebuild import Rebuilt
from dataguard.replay.worst import fired_rules
from dataguard.run.events import TransformIdentity
from dataguard.run.judging import Answers
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX

__all__ = ["compare_microbatch", "recorded_digest", "without_transform", "worst"]

_ORDER: tuple[ReplayStatus, ...] = ("unreadable", "differs", "exact", "withheld", "skipped")


def worst(statuses: Sequence[ReplayStatus]) -> ReplayStatus:
    """The status of a whole from those of its parts.

    >>> worst(["exact", "withheld"]), worst(["skipped", "skipped"]), worst(["exact", "differs"])
    ('exact', 'skipped', 'differs')
    """
    return min(statuses, key=_ORDER.index)


def without_transform(transform: TransformIdentity) -> str:
    """What is to be said where samples are compared, and the tensors made of them are not."""
    return (
        f"compared sample by sample: the digests of microbatches cover tensors that {transform.name} made, and they "
        "were rebuilt without their transform (dataguard replay --transform MODULE:NAME takes it)"
    )


def compare_microbatch(
    rebuilt: Rebuilt,
    records: NDArray[np.void],
    *,
    manifests: ManifestSet,
    source_names: Sequence[str],
    policy: Policy | None = None,
    of_tensors: bool = False,
    digest: bytes | None = None,
) -> ReplayMicrobatch:
    """Compare one rebuilt microbatch with its records.

    Parameters
    ----------
    records
        RANKED_RECORD of this microbatch; none where the index has no record of it.
    policy
        Of the attempt: what rule bits mean.
    of_tensors
        Whether the recorded digest covers tensors that a transform made. Without `digest` samples alone are compared.
    digest
        Over those tensors as they were made again; default the digest of the samples, where nothing was made of them.
    """
    by_slot = {int(record["slot"]): record for record in records}
    samples = tuple(
        _sample(rebuilt, i, by_slot.get(slot), manifests, source_names, policy)
        for i, slot in enumerate(rebuilt.planned.slot.tolist())
    )
    status, problem = worst([sample.status for sample in samples]), None
    if digest is None and not of_tensors:
        digest = rebuilt.microbatch.digest
    recorded = recorded_digest(records)
    if digest is None:
        problem = "its digest covers tensors, and is not comparable without the transform"
    elif status in {"exact", "withheld", "skipped"} and recorded not in {None, digest.hex()}:
        status = "differs"
        problem = "the tensors made now are not those that were delivered" if of_tensors else None
    return ReplayMicrobatch(
        rank=rebuilt.microbatch.address.rank,
        microbatch=rebuilt.microbatch.address.microbatch,
        status=status,
        digest=None if digest is None else digest.hex(),
        recorded=recorded,
        made_of=rebuilt.microbatch.digest.hex(),
        problem=problem,
        samples=samples,
    )


def recorded_digest(records: NDArray[np.void]) -> str | None:
    """The digest that the records of one microbatch hold, hexadecimal; None where there are none."""
    values = (record["microbatch_digest"].tobytes() for record in records)
    return next((value.hex() for value in values if any(value)), None)


def _sample(
    rebuilt: Rebuilt,
    i: int,
    record: Any,
    manifests: ManifestSet,
    source_names: Sequence[str],
    policy: Policy | None,
) -> ReplaySample:
    planned, microbatch = rebuilt.planned, rebuilt.microbatch
    problem = rebuilt.problems.get(i)
    digest = microbatch.digests[i][:8]
    status, why = _judge(rebuilt, i, record, digest, problem)
    if status in {"exact", "withheld"} and record is not None and (other := other_verdict(rebuilt, i, record)):
        status, why = "differs", other
    substituted = planned.status[i] == SlotStatus.SUBSTITUTED
    source = source_names[int(planned.source[i])]
    return ReplaySample(
        slot=int(planned.slot[i]),
        position=int(planned.position[i]),
        source=source,
        shard=manifests.shard_name(int(planned.shard[i])),
        row=int(planned.row[i]),
        delivered=Delivered(
            shard=manifests.shard_name(int(planned.delivered_shard[i])), row=int(planned.delivered_row[i])
        )
        if substituted
        else None,
        status=status,
        digest=digest.hex(),
        recorded=None if record is None else record["digest"].tobytes().hex(),
        length=int(microbatch.lengths[i]),
        problem=why,
        **_said(rebuilt.answers, i, source, policy),
    )


def _said(answers: Answers | None, i: int, source: str, policy: Policy | None) -> dict[str, Any]:
    """What the gate says of a slot now; nothing where it judged no row of it."""
    if answers is None or policy is None or not answers.judged[i]:
        return {}
    signals = {
        name: None if isnan(value) else value
        for names, values in ((answers.headline, answers.headline_values), (answers.signals, answers.signal_values))
        for name, value in zip(names, values[i].tolist(), strict=True)
    }
    bits = int(answers.rules[i])
    rules = tuple(rule.name for rule in policy.rules if bits >> rule.bit & 1)
    said = {rule.name: rule.text for rule in fired_rules(policy, rules, source, signals)}
    return {
        "verdict": Verdict(int(answers.verdict[i])).name.lower(),
        "rules": rules,
        "why": tuple(said[name] for name in rules),
        "signals": signals,
    }


def _judge(
    rebuilt: Rebuilt, i: int, record: Any, digest: bytes, problem: RowProblem | None
) -> tuple[ReplayStatus, str | None]:
    planned = rebuilt.planned
    nothing = planned.delivered_block[i] < 0
    if record is not None:
        difference = _other_row(rebuilt, i, record)
        if difference is not None:
            return "differs", difference
    if nothing:
        if record is not None and any(record["digest"].tobytes()):
            return "differs", "something was delivered where the plan has nothing"
        return ("skipped" if planned.status[i] == SlotStatus.SKIPPED else "withheld"), None
    if problem is not None and rebuilt.microbatch.digests[i] == NOTHING:
        return ("differs" if problem.kind == "changed" else "unreadable"), _told(problem)
    if record is None:
        return ("differs", _told(problem)) if problem is not None else ("exact", "not recorded; as the manifest has it")
    if record["digest"].tobytes() != digest:
        return "differs", _told(problem) if problem is not None else "the bytes are not those that were delivered"
    status: ReplayStatus = "withheld" if planned.status[i] == SlotStatus.REFUSED else "exact"
    return status, _told(problem) if problem is not None else None


def other_verdict(rebuilt: Rebuilt, i: int, record: Any) -> str | None:
    """Where the gate says otherwise now than the record does: of verdict, rules, headline bytes and signals."""
    names = record.dtype.names
    again: NDArray[np.void] = np.zeros(len(rebuilt.planned), record.dtype if rebuilt.answers is None else _as(rebuilt))
    if rebuilt.answers is not None:
        rebuilt.answers.write(again)
    told = []
    for name in names:
        if name not in _JUDGED and not name.startswith((HEADLINE_PREFIX, SIGNAL_PREFIX)):
            continue
        if name not in (again.dtype.names or ()):
            told.append(f"{name} {record[name]} recorded, no such signal now")
        elif record[name].tobytes() != again[name][i].tobytes():
            told.append(f"{name} {_value(name, record[name])} recorded, {_value(name, again[name][i])} judged now")
    missing = sorted(set(again.dtype.names or ()) - set(names))
    told += [f"{name} is not in the record" for name in missing if name.startswith((HEADLINE_PREFIX, SIGNAL_PREFIX))]
    return "; ".join(told) or None


_JUDGED = ("verdict", "rules")


def _as(rebuilt: Rebuilt) -> np.dtype[np.void]:
    assert rebuilt.answers is not None
    return rebuilt.answers.record


def _value(name: str, value: Any) -> str:
    if name == "verdict":
        return Verdict(int(value)).name.lower() if int(value) in set(Verdict) else str(int(value))
    if name == "rules":
        return f"{int(value):#x}"
    return "none" if value != value else f"{value}"


def _other_row(rebuilt: Rebuilt, i: int, record: Any) -> str | None:
    """Where the record names another sample, or another fate of it, than the plan does."""
    planned = rebuilt.planned
    substituted = planned.status[i] == SlotStatus.SUBSTITUTED
    ours = (
        int(planned.position[i]),
        int(planned.shard[i]),
        int(planned.row[i]),
        int(planned.status[i]),
        int(planned.delivered_shard[i]) if substituted else -1,
        int(planned.delivered_row[i]) if substituted else -1,
    )
    names = ("position", "shard", "row", "status", "delivered_shard", "delivered_row")
    theirs = tuple(int(record[name]) for name in names)
    different = [f"{name} {b} recorded, {a} rebuilt" for name, a, b in zip(names, ours, theirs, strict=True) if a != b]
    return "; ".join(different) or None


def _told(problem: RowProblem) -> str:
    digests = ""
    if problem.expected_shard_digest and problem.found_shard_digest != problem.expected_shard_digest:
        digests = (
            f" (shard digest {problem.expected_shard_digest} expected, {problem.found_shard_digest or 'none'} found)"
        )
    return f"{problem.shard} row {problem.row:,} is {problem.kind}: {problem.detail}{digests}"
