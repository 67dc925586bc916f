"""Every evidence there is: 51 million combinations, none left out.

A twin sums the signs over whole axes and decides with rules that are written again (`tests.twins.verdict_table`). The
verdict itself is asked for every distinct set of what rules can see, so that together nothing is sampled: a score is a
sum of signs, each of which is enumerated over its own facts in `test_signature`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.core.evidence import Finite, HardwareLog, Mitigation, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose import verdict_of
from dataguard.triage.diagnose.scoring import scores
from dataguard.triage.diagnose.signs import FACTS, Hypothesis
from tests.twins.verdict_table import CONVICTS, NAMES, SHAPE, VERDICTS, Slice, axis, slices

OF_DATA = (Verdict.BAD_DATA, Verdict.DATA_AND_STATE)
OF_THE_BATCH = (Replay.BATCH, Replay.BATCH_FROM_THIS_STATE)

GOLDEN = "ac9c01a93bbfade3e9ff0ff8b46ccfc6b7db01eae3b0569bb90630cdf4d10dae"
"""SHA-256 over all verdicts, one byte each, events and facts in the order of FACTS. A change of any verdict is a diff
here: say in the commit which situations are judged otherwise, and why."""


@pytest.fixture(scope="module")
def table() -> list[Slice]:
    return list(slices())


def is_(part: Slice, *verdicts: Verdict) -> NDArray[np.bool_]:
    found = np.zeros(SHAPE, np.bool_)
    for verdict in verdicts:
        found |= part.verdicts == VERDICTS.index(verdict)
    return found


def never(where: NDArray[np.bool_]) -> None:
    """Nothing of it holds. No assert: one that fails would print all of its millions."""
    if where.any():
        place = np.unravel_index(int(np.argmax(where)), where.shape)
        pytest.fail(f"it holds {int(where.sum()):,} times, first at {[int(each) for each in place]}")


def equal(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> None:
    """The same everywhere."""
    never(one != other)


def along(part: Slice, name: str, value: object) -> NDArray[np.uint8]:
    """The verdicts where a fact has a value, its axis kept."""
    place = FACTS[name].index(value)  # type: ignore[arg-type]
    return part.verdicts.take([place], axis=NAMES.index(name))


def test_there_is_one_verdict_for_each_and_none_is_another_than_before(table: list[Slice]) -> None:
    num_judged = sum(part.verdicts.size for part in table)
    assert num_judged == 51_438_240
    digest = hashlib.sha256()
    seen: set[int] = set()
    for part in table:
        highest = int(part.verdicts.max())
        assert highest < len(VERDICTS)
        seen.update(np.flatnonzero(np.bincount(part.verdicts.ravel())).tolist())
        digest.update(part.verdicts.tobytes())
    assert seen == set(range(len(VERDICTS)))  # no verdict is beyond reach
    assert digest.hexdigest() == GOLDEN


def test_the_verdict_is_that_of_its_twin_wherever_rules_can_tell_evidence_apart(table: list[Slice]) -> None:
    num_asked = 0
    for part in table:
        for place in _distinct(part):
            evidence = part.evidence(place)
            expected = VERDICTS[part.verdicts.flat[place]]
            assert verdict_of(evidence) is expected, evidence
            told = {each: int(part.scores[each].flat[place]) for each in Hypothesis}
            assert scores(evidence) == told, evidence
            num_asked += 1
    assert num_asked > 1_000


def _distinct(part: Slice) -> list[int]:
    """One place for each distinct set of what rules see, with what lies on and beside every threshold."""
    highest = np.maximum.reduce([part.scores[each] for each in Hypothesis])
    second = np.full(SHAPE, -128, np.int8)
    num_first = np.zeros(SHAPE, np.int8)
    key = np.zeros(SHAPE, np.int32)
    for each in Hypothesis:
        is_first = part.scores[each] == highest
        num_first += is_first
        np.maximum(second, np.where(is_first, np.int8(-128), part.scores[each]), out=second)
        key = (key << 2) | (is_first << 1) | ((part.scores[each] >= CONVICTS) & part.can_convict[each])
    lead = np.where(num_first > 1, 0, highest.astype(np.int16) - second)
    key = (key << 4) | ((np.clip(highest, 3, 5) - 3) << 2) | (np.clip(lead, 2, 4) - 2)
    names = ("planned_change", "replay") if part.event is not None else ("planned_change", "replay", "ranks", "canary")
    for name in names:
        shape = [1] * len(NAMES)
        shape[NAMES.index(name)] = -1
        key = (key << 3) | np.arange(len(FACTS[name])).reshape(shape)
    flat = key.ravel()
    first = np.full(int(flat.max()) + 1, -1, np.int32)
    first[flat[::-1]] = np.arange(flat.size - 1, -1, -1, dtype=np.int32)
    return first[first >= 0].tolist()


def _everywhere(check: Callable[[Slice], NDArray[np.bool_]], table: list[Slice]) -> None:
    for part in table:
        wrong = ~np.broadcast_to(check(part), SHAPE)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            pytest.fail(f"{VERDICTS[part.verdicts.flat[place]].value} of {part.evidence(place)}")


def test_no_incident_is_the_absence_of_an_event(table: list[Slice]) -> None:
    for part in table:
        if part.event is not None:
            never(is_(part, Verdict.NO_INCIDENT))
    quiet = table[0]
    odd = axis("canary", Told.YES) | axis("ranks", RankPattern.PERSISTENT) | axis("replay", Replay.NODE)
    never(is_(quiet, Verdict.NO_INCIDENT) & (axis("canary", Told.YES) | axis("ranks", RankPattern.PERSISTENT)))
    never(is_(quiet, Verdict.HARDWARE) & ~odd)
    calm = ~odd & ~axis("planned_change", Told.YES)
    never(~(is_(quiet, Verdict.NO_INCIDENT) | ~calm))
    never(is_(quiet, *OF_DATA, Verdict.HARD_BATCH, Verdict.OPTIMIZER_OR_NUMERICS, Verdict.APPLICATION))


def test_data_is_guilty_only_on_replay(table: list[Slice]) -> None:
    _everywhere(lambda part: ~is_(part, Verdict.BAD_DATA) | axis("replay", Replay.BATCH), table)
    _everywhere(lambda part: ~is_(part, Verdict.DATA_AND_STATE) | axis("replay", Replay.BATCH_FROM_THIS_STATE), table)
    for part in table:
        if part.event in (None, EventClass.STALL, EventClass.HARD_FAULT, EventClass.HARD_BATCH):
            never(is_(part, *OF_DATA))
        if part.event is not EventClass.HARD_BATCH:
            never(is_(part, Verdict.HARD_BATCH))


def test_a_replayed_batch_is_bad_data_whatever_traces_and_logs_of_samples_say(table: list[Slice]) -> None:
    machines = axis("canary", Told.NO, Told.UNKNOWN) & axis("number_type", Told.NO, Told.UNKNOWN)
    machines = machines & ~axis("ranks", RankPattern.PERSISTENT) & ~axis("hardware_log", HardwareLog.HARDWARE)
    untried = axis("mitigation", Mitigation.NOT_TRIED)
    for part in table:
        if part.event in (EventClass.TRANSIENT_SPIKE, EventClass.LOSS_DIP):
            both = machines & untried & axis("replay", Replay.BATCH)
            never(~(is_(part, Verdict.BAD_DATA) | ~both))
            once = machines & untried & axis("replay", Replay.BATCH_FROM_THIS_STATE)
            never(~(is_(part, Verdict.DATA_AND_STATE) | ~once))


def test_a_hard_batch_needs_no_replay(table: list[Slice]) -> None:
    (part,) = (each for each in table if each.event is EventClass.HARD_BATCH)
    nothing_else = axis("replay", Replay.NOT_RUN, Replay.INCONCLUSIVE, *OF_THE_BATCH)
    nothing_else = nothing_else & axis("canary", Told.NO, Told.UNKNOWN) & axis("number_type", Told.NO, Told.UNKNOWN)
    nothing_else = nothing_else & axis("ranks", RankPattern.NONE, RankPattern.WITH_DATA, RankPattern.UNKNOWN)
    nothing_else = nothing_else & axis("mitigation", Mitigation.NOT_TRIED, Mitigation.SKIP)
    nothing_else = nothing_else & ~axis("hardware_log", HardwareLog.HARDWARE, HardwareLog.APPLICATION)
    never(~(is_(part, Verdict.HARD_BATCH) | ~nothing_else))


def test_hardware_needs_more_than_an_outlier_and_a_replay_that_shows_nothing(table: list[Slice]) -> None:
    shown = axis("replay", Replay.NODE) | axis("canary", Told.YES) | axis("ranks", RankPattern.PERSISTENT)
    shown = shown | axis("hardware_log", HardwareLog.HARDWARE)
    # NaN on one rank is more than an outlier: the others had the same weights, and were finite.
    alone = axis("finite", Finite.ONE_RANK) & axis("replay", Replay.NOT_REPRODUCED)
    for part in table:
        excused = alone if part.event is EventClass.HARD_FAULT else alone & False
        never(is_(part, Verdict.HARDWARE) & ~shown & ~excused)


def test_lines_of_another_node_or_time_are_worth_what_no_lines_are(table: list[Slice]) -> None:
    for part in table:
        without = along(part, "hardware_log", HardwareLog.NOT_GIVEN)
        for lines in (HardwareLog.ELSEWHERE, HardwareLog.CONSEQUENCE, HardwareLog.AMBIGUOUS):
            equal(along(part, "hardware_log", lines), without)


def test_nan_on_one_rank_is_numerics_only_if_it_comes_again_or_is_overflow(table: list[Slice]) -> None:
    (part,) = (each for each in table if each.event is EventClass.HARD_FAULT)
    one = axis("finite", Finite.ONE_RANK)
    again = axis("replay", Replay.STATE, *OF_THE_BATCH) | axis("number_type", Told.YES)
    never(is_(part, Verdict.OPTIMIZER_OR_NUMERICS) & one & ~again)
    elsewhere = axis("replay", Replay.NODE, Replay.NOT_REPRODUCED) | axis("canary", Told.YES)
    elsewhere = elsewhere | axis("hardware_log", HardwareLog.HARDWARE) | axis("ranks", RankPattern.PERSISTENT)
    never(is_(part, Verdict.HARDWARE) & one & ~elsewhere)
    healthy = axis("canary", Told.NO, Told.UNKNOWN) & axis("hardware_log", HardwareLog.CLEAN, HardwareLog.NOT_GIVEN)
    healthy = healthy & ~axis("ranks", RankPattern.PERSISTENT) & axis("mitigation", Mitigation.NOT_TRIED)
    reproduced = healthy & axis("replay", *OF_THE_BATCH)
    never(~(is_(part, Verdict.OPTIMIZER_OR_NUMERICS) | ~reproduced))
    typed = axis("number_type", Told.NO, Told.UNKNOWN)
    never(~(is_(part, Verdict.HARDWARE) | ~(healthy & axis("replay", Replay.NODE) & typed)))
    never(~(is_(part, Verdict.HARDWARE) | ~(healthy & one & axis("replay", Replay.NOT_REPRODUCED) & typed)))


def test_a_stall_is_judged_by_machines_alone(table: list[Slice]) -> None:
    (part,) = (each for each in table if each.event is EventClass.STALL)
    allowed = is_(part, Verdict.HARDWARE, Verdict.APPLICATION, Verdict.INCONCLUSIVE)
    never(~allowed)
    for name in ("optimizer", "data", "number_type", "grad_norm", "finite", "planned_change"):
        for value in FACTS[name]:
            equal(along(part, name, value), along(part, name, FACTS[name][0]))
    _everywhere(
        lambda each: (
            ~is_(each, Verdict.APPLICATION)
            | (axis("hardware_log", HardwareLog.APPLICATION) & (each.event is EventClass.STALL))
        ),
        table,
    )


def test_a_planned_change_convicts_nobody_and_is_no_excuse_for_nan(table: list[Slice]) -> None:
    _everywhere(lambda part: ~is_(part, Verdict.PLANNED_CHANGE) | axis("planned_change", Told.YES), table)
    for part in table:
        if part.event in (EventClass.HARD_FAULT, EventClass.STALL):
            never(is_(part, Verdict.PLANNED_CHANGE))
        # Whether nobody planned it, or nobody knows whether anybody did, is one.
        equal(along(part, "planned_change", Told.NO), along(part, "planned_change", Told.UNKNOWN))


@pytest.mark.parametrize(
    ("name", "without", "value", "verdict"),
    [
        ("canary", Told.UNKNOWN, Told.YES, Verdict.HARDWARE),
        ("hardware_log", HardwareLog.NOT_GIVEN, HardwareLog.HARDWARE, Verdict.HARDWARE),
        ("ranks", RankPattern.UNKNOWN, RankPattern.PERSISTENT, Verdict.HARDWARE),
        ("replay", Replay.NOT_RUN, Replay.NODE, Verdict.HARDWARE),
        ("number_type", Told.UNKNOWN, Told.YES, Verdict.OPTIMIZER_OR_NUMERICS),
        ("optimizer", Told.UNKNOWN, Told.YES, Verdict.OPTIMIZER_OR_NUMERICS),
        ("data", Told.UNKNOWN, Told.YES, Verdict.BAD_DATA),
        ("data", Told.UNKNOWN, Told.YES, Verdict.DATA_AND_STATE),
        ("data", Told.UNKNOWN, Told.YES, Verdict.HARD_BATCH),
        ("hardware_log", HardwareLog.NOT_GIVEN, HardwareLog.APPLICATION, Verdict.APPLICATION),
    ],
)
def test_more_evidence_for_a_verdict_never_takes_it_back(
    table: list[Slice], name: str, without: object, value: object, verdict: Verdict
) -> None:
    code = VERDICTS.index(verdict)
    for part in table:
        never((along(part, name, without) == code) & (along(part, name, value) != code))
