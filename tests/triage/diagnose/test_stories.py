"""What users expect of situations that they know, as facts: the incidents of the issue, and the stories of row C18.

The incident suite makes each of them with a real training run; here they are what such a run would show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dataguard.core.evidence import Evidence, Finite, GradNorm, HardwareLog, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose import diagnose, verdict_of

SPIKE = EventClass.TRANSIENT_SPIKE
SHIFT = EventClass.ABSORBING_SHIFT
DRIFT = EventClass.CREEPING_DRIFT
FAULT = EventClass.HARD_FAULT
STALL = EventClass.STALL
HARD = EventClass.HARD_BATCH

INCIDENTS: list[tuple[str, dict[str, Any], Verdict]] = [
    (
        "a shard of one repeated sequence, replayed",
        {"event": SPIKE, "data": Told.YES, "ranks": RankPattern.WITH_DATA, "replay": Replay.BATCH},
        Verdict.BAD_DATA,
    ),
    ("the same as a dip", {"event": EventClass.LOSS_DIP, "data": Told.YES, "replay": Replay.BATCH}, Verdict.BAD_DATA),
    (
        "replayed, and the optimizer's traces moved as well",
        {"event": SPIKE, "optimizer": Told.YES, "ranks": RankPattern.NONE, "data": Told.NO, "replay": Replay.BATCH},
        Verdict.BAD_DATA,
    ),
    (
        "a batch that spikes from this checkpoint alone",
        {"event": SPIKE, "data": Told.NO, "replay": Replay.BATCH_FROM_THIS_STATE},
        Verdict.DATA_AND_STATE,
    ),
    ("a hard but harmless batch, not replayed", {"event": HARD}, Verdict.HARD_BATCH),
    ("a hard batch of samples that score badly", {"event": HARD, "data": Told.YES}, Verdict.HARD_BATCH),
    ("a hard batch, replayed", {"event": HARD, "replay": Replay.BATCH, "data": Told.YES}, Verdict.HARD_BATCH),
    (
        "hard batches that come again and again leave no damage either",
        {"event": HARD, "optimizer": Told.YES, "data": Told.NO, "ranks": RankPattern.NONE},
        Verdict.HARD_BATCH,
    ),
    ("a truncated shard that was withheld", {"event": None, "data": Told.YES}, Verdict.NO_INCIDENT),
    ("the rate too high at the end of warm-up", {"event": SHIFT, "optimizer": Told.YES}, Verdict.OPTIMIZER_OR_NUMERICS),
    (
        "the same as a spike, whose samples are ordinary",
        {"event": SPIKE, "optimizer": Told.YES, "data": Told.NO},
        Verdict.OPTIMIZER_OR_NUMERICS,
    ),
    (
        "the same, whose samples happen to stand out: replayed",
        {"event": SPIKE, "optimizer": Told.YES, "data": Told.YES, "replay": Replay.STATE},
        Verdict.OPTIMIZER_OR_NUMERICS,
    ),
    (
        "second moments at the floor, a replay that any batch shows",
        {"event": SPIKE, "optimizer": Told.YES, "replay": Replay.STATE},
        Verdict.OPTIMIZER_OR_NUMERICS,
    ),
    ("logits that climb", {"event": DRIFT, "optimizer": Told.YES}, Verdict.OPTIMIZER_OR_NUMERICS),
    (
        "fp16 overflow",
        {
            "event": FAULT,
            "number_type": Told.YES,
            "finite": Finite.ONE_RANK,
            "ranks": RankPattern.ONE_RANK,
            "grad_norm": GradNorm.NONFINITE,
        },
        Verdict.OPTIMIZER_OR_NUMERICS,
    ),
    (
        "silently wrong gradients, no event, a canary",
        {"event": None, "canary": Told.YES},
        Verdict.HARDWARE,
    ),
    (
        "silently wrong gradients, a drift, a canary",
        {
            "event": DRIFT,
            "canary": Told.YES,
            "optimizer": Told.YES,
            "ranks": RankPattern.NONE,
            "data": Told.NO,
            "grad_norm": GradNorm.CLIMBING,
        },
        Verdict.HARDWARE,
    ),
    (
        "NaN on one rank, finite on another with the same inputs",
        {"event": FAULT, "finite": Finite.ONE_RANK, "replay": Replay.NODE, "ranks": RankPattern.ONE_RANK},
        Verdict.HARDWARE,
    ),
    (
        "NaN on one rank, and again on another",
        {"event": FAULT, "finite": Finite.ONE_RANK, "replay": Replay.BATCH, "ranks": RankPattern.WITH_DATA},
        Verdict.OPTIMIZER_OR_NUMERICS,
    ),
    (
        "NaN on one rank, and again there, from this state alone",
        {"event": FAULT, "finite": Finite.ONE_RANK, "replay": Replay.BATCH_FROM_THIS_STATE, "data": Told.YES},
        Verdict.OPTIMIZER_OR_NUMERICS,
    ),
    (
        "NaN on one rank, not replayed",
        {"event": FAULT, "finite": Finite.ONE_RANK, "ranks": RankPattern.ONE_RANK, "grad_norm": GradNorm.NONFINITE},
        Verdict.INCONCLUSIVE,
    ),
    (
        "NaN on one rank, not replayed, with traces",
        {"event": FAULT, "finite": Finite.ONE_RANK, "optimizer": Told.YES, "data": Told.NO},
        Verdict.INCONCLUSIVE,
    ),
    (
        "NaN on one rank, with a line of its node and time",
        {"event": FAULT, "finite": Finite.ONE_RANK, "hardware_log": HardwareLog.HARDWARE},
        Verdict.HARDWARE,
    ),
    (
        "NaN on one rank, with a line of another node",
        {"event": FAULT, "finite": Finite.ONE_RANK, "hardware_log": HardwareLog.ELSEWHERE},
        Verdict.INCONCLUSIVE,
    ),
    ("a stalled rank, nothing imported", {"event": STALL, "ranks": RankPattern.ONE_RANK}, Verdict.INCONCLUSIVE),
    (
        "a stalled rank, a line that means hardware",
        {"event": STALL, "hardware_log": HardwareLog.HARDWARE, "ranks": RankPattern.ONE_RANK},
        Verdict.HARDWARE,
    ),
    (
        "a stalled rank, lines of the application",
        {"event": STALL, "hardware_log": HardwareLog.APPLICATION, "ranks": RankPattern.ONE_RANK},
        Verdict.APPLICATION,
    ),
    (
        "a stalled rank, NCCL alone",
        {"event": STALL, "hardware_log": HardwareLog.CONSEQUENCE, "ranks": RankPattern.ONE_RANK},
        Verdict.INCONCLUSIVE,
    ),
    ("a deduplication bug without a spike", {"event": None, "optimizer": Told.NO}, Verdict.NO_INCIDENT),
    ("a planned rate step that the curve shows", {"event": SHIFT, "planned_change": Told.YES}, Verdict.PLANNED_CHANGE),
    (
        "a planned rate step, whose traces moved",
        {"event": SPIKE, "planned_change": Told.YES, "optimizer": Told.YES, "data": Told.NO},
        Verdict.PLANNED_CHANGE,
    ),
    ("a planned rate step and no event", {"event": None, "planned_change": Told.YES}, Verdict.PLANNED_CHANGE),
    ("NaN at a planned change was not planned", {"event": FAULT, "planned_change": Told.YES}, Verdict.INCONCLUSIVE),
    ("a clean run", {"event": None}, Verdict.NO_INCIDENT),
    ("samples that stand out, not replayed", {"event": SPIKE, "data": Told.YES}, Verdict.INCONCLUSIVE),
    ("a rank that stands out for ever", {"event": None, "ranks": RankPattern.PERSISTENT}, Verdict.HARDWARE),
    (
        "a rank that stands out for ever, whose canary agrees",
        {"event": None, "ranks": RankPattern.PERSISTENT, "canary": Told.NO},
        Verdict.INCONCLUSIVE,
    ),
]


@pytest.mark.parametrize(("facts", "verdict"), [each[1:] for each in INCIDENTS], ids=[each[0] for each in INCIDENTS])
def test_incidents(facts: dict[str, Any], verdict: Verdict) -> None:
    assert verdict_of(Evidence(**facts)) is verdict


def test_story_1_a_silent_bug_in_deduplication_has_no_spike() -> None:
    """Triage says so, and does not blame anything: what finds it is the audit, by mixture and duplicates."""
    found = diagnose(Evidence(event=None, optimizer=Told.NO, data=Told.NO, ranks=RankPattern.NONE))
    assert found.verdict is Verdict.NO_INCIDENT
    assert max(found.scores.values()) <= 0


def test_story_2_the_end_of_the_warm_up() -> None:
    """Loss jumps by .4 nats at the peak of the rate and settles above; the printed tree would look for a batch."""
    found = diagnose(
        Evidence(
            event=SHIFT,
            optimizer=Told.YES,
            grad_norm=GradNorm.BURST,
            texts={"optimizer": ("warm-up is 0.10 % of all steps",)},
        )
    )
    assert found.verdict is Verdict.OPTIMIZER_OR_NUMERICS
    assert any("warm-up is 0.10 %" in text for text in found.for_["optimizer_or_numerics"])


def test_story_3_attention_in_half_precision() -> None:
    """A batch of one repeated boilerplate makes NaN in float16: the mend is the arithmetic, whatever the text was."""
    facts: dict[str, Any] = {"event": FAULT, "data": Told.YES, "replay": Replay.BATCH, "ranks": RankPattern.WITH_DATA}
    assert verdict_of(Evidence(**facts)) is Verdict.OPTIMIZER_OR_NUMERICS
    found = diagnose(Evidence(**facts, number_type=Told.YES))
    assert found.verdict is Verdict.OPTIMIZER_OR_NUMERICS
    assert found.scores["data"] < found.scores["optimizer_or_numerics"]
    before = Evidence(event=FAULT, data=Told.YES, ranks=RankPattern.WITH_DATA)
    assert verdict_of(before) is Verdict.INCONCLUSIVE
    assert verdict_of(replace(before, number_type=Told.YES)) is Verdict.OPTIMIZER_OR_NUMERICS


def test_story_4_the_zombie_gpu() -> None:
    """Finite, wrong, averaged in: no event at all. A canary sees it, or a rank that stands out for ever."""
    silent = diagnose(Evidence(event=None, finite=Finite.EVERYWHERE, hardware_log=HardwareLog.CLEAN))
    assert silent.verdict is Verdict.NO_INCIDENT
    assert silent.next_check is not None
    assert silent.next_check.name == "canary"
    found = diagnose(Evidence(event=None, finite=Finite.EVERYWHERE, hardware_log=HardwareLog.CLEAN, canary=Told.YES))
    assert found.verdict is Verdict.HARDWARE


def test_a_shift_that_ordinary_batches_share_is_not_excused_by_a_replay_of_one() -> None:
    """Of a level that stays, the batch is as high as the placebos: that it does not stand out of them says nothing."""
    shift = Evidence(event=EventClass.ABSORBING_SHIFT, optimizer=Told.YES, replay=Replay.NOT_REPRODUCED)
    assert diagnose(shift).verdict is Verdict.OPTIMIZER_OR_NUMERICS
    spike = Evidence(event=EventClass.TRANSIENT_SPIKE, optimizer=Told.YES, replay=Replay.NOT_REPRODUCED)
    assert diagnose(spike).verdict is Verdict.INCONCLUSIVE
