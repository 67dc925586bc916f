"""Row C19: the six steps say what is known, by which evidence, and name what is missing; they guess nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dataguard.core.evidence import Evidence, Finite, GradNorm, HardwareLog, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.triage.answers import ChecklistStep, ExperimentShown
from dataguard.triage.checklist import NAMES, walk
from dataguard.triage.diagnose import diagnose
from dataguard.triage.localise.answers import Localised, LocalisedShare, LocalisedSignal, LookedAt
from dataguard.triage.respond.answers import Change, Command, Response

EVENT = SpikeEvent(
    event_class=EventClass.TRANSIENT_SPIKE, start=1_200, stop=1_230, peak=1_203, size_nats=1.25, sigmas=31.0,
    grad_norm_ratio=20.0,
)  # fmt: skip
FACTS = ("planned_change", "finite", "ranks", "optimizer", "data", "canary", "hardware_log", "number_type", "grad_norm")
KNOWN = Evidence(
    event=EVENT.event_class,
    planned_change=Told.NO,
    finite=Finite.EVERYWHERE,
    ranks=RankPattern.WITH_DATA,
    optimizer=Told.NO,
    data=Told.YES,
    replay=Replay.BATCH,
    canary=Told.NO,
    hardware_log=HardwareLog.CLEAN,
    number_type=Told.NO,
    grad_norm=GradNorm.BURST,
    texts={name: (f"numbers of {name}",) for name in FACTS},
)
EXPERIMENT = ExperimentShown(
    number=7, time="2026-11-30T00:00:00Z", by="ada", step=1_203, outcome=Replay.BATCH, number_type=Told.NO,
    first_layer="blocks.3", summary="from both checkpoints",
)  # fmt: skip


def share(name: str, *, stands_out: bool) -> LocalisedShare:
    return LocalisedShare(
        kind="shard", name=name, num_samples=8, num_outlying=8, num_expected=0.1, num_samples_before=0, p_value=1e-9,
        outlying_p_value=1e-9, steps_before=0, steps_before_out=0, num_steps_before=60, num_steps_before_out=0,
        steps_p_value=None, corrected=1e-8, stands_out=stands_out,
    )  # fmt: skip


def signal(name: str, *, stands_out: bool) -> LocalisedSignal:
    return LocalisedSignal(
        signal=name, unit="", source="web", origin="rebuilt", side="high", step=None, num_beyond=8, num_samples=8,
        num_beyond_before=0, num_samples_before=500, bound=0.1, usual=0.0, extreme=0.9, p_value=1e-9, near_p_value=None,
        corrected=1e-8, stands_out=stands_out,
    )  # fmt: skip


LOCALISED = Localised(
    attempt=1,
    looked_at=LookedAt(steps=(1_199, 1_230), tested=(1_199,)),
    pattern=RankPattern.WITH_DATA,
    data=Told.YES,
    false_alarms=0.01,
    num_comparisons=50,
    signals=(signal("encoded_fraction", stands_out=True), signal("byte_entropy", stands_out=False)),
    shards=(share("web/z.jsonl", stands_out=True), share("web/a.jsonl", stands_out=False)),
)
COMMAND = Command(text="dataguard skip runs/a 1190:1230", argv=("dataguard",), why="the batch does it", applies=True)
DO = Response(
    verdict=Verdict.BAD_DATA, event_class=EVENT.event_class, run="runs/a", attempt=1, first_label=0, skip_mode="jump",
    journal=(3, "ab"), nothing=False, commands=(COMMAND,), fence=("node-7",),
    configuration=(Change(what="qk_norm", to="on", reason="logits climb"),),
)  # fmt: skip


def walked(evidence: Evidence = KNOWN, **more: Any) -> tuple[ChecklistStep, ...]:
    given: dict[str, Any] = {
        "event": EVENT, "localised": LOCALISED, "experiments": (EXPERIMENT,), "response": DO, "world_size": 8,
        "learning_rate": 3e-4, "val_loss_logged": True, "applied": (), "failing_points": (),
    }  # fmt: skip
    given |= more
    return walk(evidence=evidence, diagnosis=diagnose(evidence), **given)


def nothing_known() -> tuple[ChecklistStep, ...]:
    bare = replace(EVENT, grad_norm_ratio=None, size_nats=None, sigmas=None)
    evidence = Evidence(event=bare.event_class)
    return walked(
        evidence, event=bare, localised=None, experiments=(), learning_rate=None, val_loss_logged=False,
        response=Response(
            verdict=Verdict.INCONCLUSIVE, event_class=bare.event_class, run="runs/a", attempt=1, first_label=0,
            skip_mode="jump", journal=(3, "ab"), nothing=True, next_check="the replay",
        ),
    )  # fmt: skip


def test_what_is_known_is_answered_with_its_evidence() -> None:
    steps = walked()
    assert [(step.number, step.name) for step in steps] == list(enumerate(NAMES, start=1))
    assert [step.done for step in steps[:4]] == ["yes"] * 4
    truth, category, isolated, cause = (step.answer for step in steps[:4])
    assert "transient_spike in steps 1,200:1,230 of +1.25 nats (31 robust sigmas)" in truth
    assert "gradient norm 20 times its baseline" in truth
    assert "ranks: with data" in truth
    assert "NaN or infinity: nowhere" in truth
    assert category == (
        "the gradient norm bursts with it: amplified by the optimizer; no planned change is near; "
        "no sign of the optimizer or the schedule; logs of the machines: clean"
    )
    assert isolated == "replay: batch; first layer to go: blocks.3; canaries agree between machines"
    assert cause.startswith("bad_data: ")
    evidence = [set(step.evidence) for step in steps[:4]]
    assert evidence[0] == {"numbers of grad_norm", "numbers of ranks", "numbers of finite"}
    assert evidence[1] == {"numbers of planned_change", "numbers of optimizer", "numbers of hardware_log"}
    assert evidence[2] == {"event 7, by ada: from both checkpoints", "numbers of canary"}
    assert evidence[3] == {"numbers of data", "numbers of number_type"}


def test_what_is_not_known_is_missing_and_never_answered() -> None:
    steps = nothing_known()
    assert steps[0].answer == "transient_spike in steps 1,200:1,230"
    assert [text.split(":")[0] for text in steps[0].missing] == [
        "gradient norm at the event",
        "each rank's own loss",
        "whether NaN or infinity stood on any rank before the reduction",
        "a validation loss near the event",
    ]
    assert steps[1].answer == "the gradient norm says nothing"
    assert [text.split(":")[0] for text in steps[1].missing] == [
        "planned changes",
        "traces of the optimizer",
        "logs of the machines",
    ]
    assert (steps[2].done, steps[2].answer) == ("no", "nothing is known")
    assert "the replay of step 1,203 from the checkpoint before it, with a placebo batch" in steps[2].missing
    assert len(steps[2].missing) == 3
    assert steps[3].done == "no"
    assert [text.split(":")[0] for text in steps[3].missing] == [
        "what the samples hold",
        "the forward pass in float32",
        "the learning rate",
    ]
    assert steps[4].missing[0].startswith("nothing yet, for the verdict is inconclusive")
    assert "nothing is to be done" not in steps[4].answer, "a verdict is missing: that is not the same"
    assert all(not step.evidence for step in steps)


@pytest.mark.parametrize(
    ("facts", "number", "says"),
    [
        ({"grad_norm": GradNorm.ORDINARY}, 2, "an anomalous batch"),
        ({"grad_norm": GradNorm.CLIMBING}, 2, "climbed ahead of it"),
        ({"grad_norm": GradNorm.NONFINITE}, 2, "not finite"),
        ({"grad_norm": GradNorm.ZERO_ON_ONE_RANK}, 2, "zero on one rank"),
        ({"planned_change": Told.YES}, 2, "it begins at a planned change"),
        ({"optimizer": Told.YES}, 2, "; signs of the optimizer or the schedule"),
        ({"finite": Finite.ONE_RANK}, 1, "NaN or infinity: nonfinite on one rank"),
        ({"canary": Told.YES}, 3, "a canary differs between machines"),
        ({"replay": Replay.NOT_REPRODUCED}, 3, "replay: not reproduced"),
    ],
)
def test_each_answer_is_that_of_its_fact(facts: dict[str, Any], number: int, says: str) -> None:
    assert says in walked(replace(KNOWN, **facts))[number - 1].answer
    assert says not in walked()[number - 1].answer


def test_what_is_to_be_done_is_missing_until_it_stands_in_the_journal() -> None:
    steps = walked()
    assert steps[4].done == "no"
    assert steps[4].missing[-3:] == (
        "dataguard skip runs/a 1190:1230    # the batch does it",
        "qk_norm: on (logits climb)",
        "take node-7 out of the job",
    )
    stands = walked(applied=("the skip stands as event 9",))[4]
    assert (stands.done, stands.answer) == ("partly", "the skip stands as event 9")


def test_what_would_prevent_it_is_a_rule_for_what_stood_out_and_what_the_hardening_list_lacks() -> None:
    last = walked(failing_points=("warm-up: 0.1 %",))[5]
    assert last.done == "no"
    rule = "a rule of the policy for encoded_fraction (dataguard policy init)"
    assert rule in last.missing
    assert "hardening list: warm-up: 0.1 %" in last.missing
    other = walked(replace(KNOWN, replay=Replay.NOT_RUN))[5]
    assert rule not in other.missing, "it is asked for where data are to blame, and nowhere else"


def test_of_one_rank_no_other_is_asked_for_and_without_an_event_no_step() -> None:
    alone = walked(replace(KNOWN, ranks=RankPattern.UNKNOWN), world_size=1)[0]
    assert (alone.done, "there is one rank" in alone.answer) == ("yes", True)
    calm = walked(Evidence(event=None, texts={}), event=None, localised=None, experiments=())
    assert calm[0].answer.startswith("no event in the curve")
    assert calm[2].answer == "there is no step to isolate"
