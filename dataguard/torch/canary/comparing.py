"""Who computes otherwise than the others? Records of one microbatch, held against each other.

A member is a host with its device (and rank); all its records count together, of whatever date. Only records of equal
batch, weights, plan and configuration are compared.

1. A member *reproduces itself* where all its repeats are equal bit by bit. That is the baseline, and without at least
   two repeats of each there is none: a mismatch then says nothing.
2. Where more than half of three or more members reproduce themselves and agree with each other bit by bit, they are
   right, and every other member is odd: one that gives other bits, and one that gives different bits every time.
3. Of two members that differ nobody can say which is wrong, unless one of them differs from its own past: that one.
4. Where members do not reproduce themselves (many kernels add in any order), bits prove nothing. Two members then
   differ where, of some tensor, every pair of their repeats lies more than four times further apart than any repeat of
   either lies from another of its own. Under one distribution even once that is rare; four is what two sketches
   leave unsure of both distances (a quarter each) and more. Odd is who differs from more than half of the others,
   where those are fewer than half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Told
from dataguard.errors import UsageError
from dataguard.torch.canary.answers import CanaryComparison, CanaryMember, CanaryRecord
from dataguard.torch.experiment.answers import number

__all__ = ["compare"]

_BEYOND = 4.0

FloatArray = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class _Member:
    """All records of one host and device."""

    name: str
    records: list[CanaryRecord]

    @property
    def num_repeats(self) -> int:
        return sum(record.num_repeats for record in self.records)

    @property
    def tensors(self) -> list[str]:
        return [f"{tensor.kind} {tensor.name}" for tensor in self.records[0].tensors]

    def digests(self, i: int) -> set[str]:
        """Of one tensor, at all repeats."""
        return {digest for record in self.records for digest in record.tensors[i].digests}

    def sketches(self, i: int) -> FloatArray:
        """Of one tensor, (repeats, 8)."""
        rows = [row for record in self.records for row in record.tensors[i].sketches]
        return np.array([[number(value) for value in row] for row in rows], np.float64)

    @property
    def is_exact(self) -> bool:
        return all(len(self.digests(i)) == 1 for i in range(len(self.tensors)))

    @property
    def bits(self) -> tuple[str, ...]:
        """Of one that reproduces itself."""
        return tuple(next(iter(self.digests(i))) for i in range(len(self.tensors)))


def compare(records: Sequence[CanaryRecord]) -> CanaryComparison:
    """Hold records against each other.

    Raises
    ------
    UsageError
        There are none.
    """
    if not records:
        raise UsageError("there are no canary records to compare", todo="make some: dataguard canary RUN --load ...")
    compared, left_out = _comparable(records)
    members = [_Member(name=name, records=of_it) for name, of_it in compared.items()]
    notes = []
    if left_out:
        notes.append(f"{len(left_out):,} records are of other inputs and were not compared")
    baseline: Literal["bitwise", "magnitude", "none"]
    odd: set[str]
    if len(members) == 1 and len(members[0].records) == 1:
        baseline, differs, odd = "none", Told.UNKNOWN, set()
        what = "one record alone: there is nothing to compare it with"
    elif any(member.num_repeats < 2 for member in members):
        baseline, differs, odd = "none", Told.UNKNOWN, set()
        what = "nothing was repeated, so a mismatch would say nothing"
        if _agree(members):
            differs, what = Told.NO, "all are equal bit by bit"
    else:
        baseline, differs, odd, what = _judged(members)
    first = members[0].records[0]
    return CanaryComparison(
        step=first.step,
        batch=first.batch,
        state=first.state,
        differs=differs,
        odd=tuple(sorted(odd)),
        members=tuple(_shown(member, members, differs, odd) for member in members),
        not_compared=tuple(left_out),
        baseline=baseline,
        notes=tuple(notes),
        summary=f"{len(members):,} members, {sum(m.num_repeats for m in members):,} repeats: {what}",
    )


def _comparable(records: Sequence[CanaryRecord]) -> tuple[dict[str, list[CanaryRecord]], list[str]]:
    """Records of the most common inputs by member (the first of equals), and the others with what is another."""
    groups: dict[tuple[object, ...], list[CanaryRecord]] = {}
    for record in records:
        groups.setdefault(_inputs(record), []).append(record)
    chosen = max(groups.values(), key=lambda group: len({record.member for record in group}))
    members: dict[str, list[CanaryRecord]] = {}
    for record in sorted(chosen, key=lambda each: (each.member, each.time)):
        members.setdefault(record.member, []).append(record)
    left_out = [
        f"{record.member}: {_another(record, chosen[0])}" for record in records if _inputs(record) != _inputs(chosen[0])
    ]
    return members, left_out


def _inputs(record: CanaryRecord) -> tuple[object, ...]:
    tensors = tuple((each.name, each.kind, each.dtype, each.shape) for each in record.tensors)
    return (record.batch, record.state, record.plan, record.config, tensors)


def _another(record: CanaryRecord, than: CanaryRecord) -> str:
    told = [
        what
        for what, ours, theirs in (
            ("batch", record.batch, than.batch),
            ("weights", record.state, than.state),
            ("plan", record.plan, than.plan),
        )
        if ours != theirs
    ]
    told += [
        f"{name} {record.configuration.get(name, 'not told')} instead of {than.configuration.get(name, 'not told')}"
        for name in sorted({*record.configuration, *than.configuration})
        if record.configuration.get(name) != than.configuration.get(name)
    ]
    return ", ".join(told) or "other tensors"


def _agree(members: Sequence[_Member]) -> bool:
    return all(member.is_exact for member in members) and len({member.bits for member in members}) == 1


def _judged(
    members: Sequence[_Member],
) -> tuple[Literal["bitwise", "magnitude"], Told, set[str], str]:
    """Whether members differ, which are odd, and what is said of it; each was repeated."""
    exact = [member for member in members if member.is_exact]
    if _agree(members):
        return "bitwise", Told.NO, set(), "all are equal bit by bit"
    if len(members) == 1:
        name = members[0].name
        return "bitwise", Told.YES, {name}, f"{name} differs from its own past, and nobody else was asked"
    if len(members) == 2 and exact:
        odd = {member.name for member in members if not member.is_exact}
        if odd:
            return "bitwise", Told.YES, odd, f"{next(iter(odd))} differs from its own past, the other does not"
        return "bitwise", Told.YES, set(), "the two differ; which of them is wrong cannot be said from two"
    classes: dict[tuple[str, ...], list[_Member]] = {}
    for member in exact:
        classes.setdefault(member.bits, []).append(member)
    largest = max(classes.values(), key=len, default=[])
    if 2 * len(largest) > len(members):
        odd = {member.name for member in members} - {member.name for member in largest}
        return "bitwise", Told.YES, odd, f"{len(largest):,} agree bit by bit, {', '.join(sorted(odd))} differs"
    if len(exact) == len(members):
        return "bitwise", Told.YES, set(), f"{len(classes):,} groups give other bits, and none is most of them"
    return _by_magnitude(members)


def _by_magnitude(members: Sequence[_Member]) -> tuple[Literal["magnitude"], Told, set[str], str]:
    apart = {
        (one.name, other.name)
        for i, one in enumerate(members)
        for other in members[i + 1 :]
        if any(_is_apart(one, other, tensor) for tensor in range(len(one.tensors)))
    }
    if not apart:
        what = "they differ from each other by no more than from themselves"
        return "magnitude", Told.NO, set(), what
    counts = {member.name: sum(member.name in pair for pair in apart) for member in members}
    odd = {name for name, count in counts.items() if 2 * count > len(members) - 1}
    if len(members) < 3 or 2 * len(odd) >= len(members):
        odd = set()
    who = f"{', '.join(sorted(odd))} differs" if odd else "some differ, and which of them is wrong cannot be said"
    return "magnitude", Told.YES, odd, f"{who}, beyond what each differs from itself"


def _distances(one: FloatArray, other: FloatArray) -> FloatArray:
    """Between all rows, estimated L2: infinite where one is finite and the other is not."""
    here, there = np.all(np.isfinite(one), axis=1, keepdims=True), np.all(np.isfinite(other), axis=1, keepdims=True).T
    finite, both_not = here & there, ~here & ~there
    clean_one, clean_other = np.nan_to_num(one, posinf=0, neginf=0), np.nan_to_num(other, posinf=0, neginf=0)
    squares = ((clean_one[:, None, :] - clean_other[None, :, :]) ** 2).mean(axis=2)
    return np.asarray(np.where(finite, np.sqrt(squares), np.where(both_not, 0.0, math.inf)))


def _is_apart(one: _Member, other: _Member, tensor: int) -> bool:
    if one.digests(tensor) & other.digests(tensor):
        return False
    a, b = one.sketches(tensor), other.sketches(tensor)
    own = max(float(_distances(a, a).max()), float(_distances(b, b).max()))
    return bool(_distances(a, b).min() > _BEYOND * own)


def _shown(member: _Member, members: Sequence[_Member], differs: Told, odd: set[str]) -> CanaryMember:
    told = differs if differs is not Told.YES or not odd else Told.YES if member.name in odd else Told.NO
    if differs is Told.YES and not odd:
        told = Told.UNKNOWN
    others = [each for each in members if each is not member and each.name not in odd] or [
        each for each in members if each is not member
    ]
    tensor, distance = _first_difference(member, others)
    return CanaryMember(
        member=member.name,
        times=tuple(record.time for record in member.records),
        num_repeats=member.num_repeats,
        reproducible=member.is_exact,
        differs=told,
        tensor=tensor,
        distance=distance,
    )


def _first_difference(member: _Member, others: Sequence[_Member]) -> tuple[str | None, float | None]:
    for i, name in enumerate(member.tensors):
        mine = member.digests(i)
        if not others and len(mine) > 1:
            return name, _relative(float(_distances(member.sketches(i), member.sketches(i)).max()), member, i)
        if others and not any(mine == other.digests(i) for other in others):
            nearest = min(float(_distances(member.sketches(i), other.sketches(i)).min()) for other in others)
            return name, _relative(nearest, others[0], i)
    return None, None


def _relative(distance: float, member: _Member, tensor: int) -> float | None:
    norm = number(member.records[0].tensors[tensor].norm)
    if not (math.isfinite(distance) and math.isfinite(norm)):
        return None
    return distance / norm if norm else distance
