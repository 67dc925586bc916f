"""What triage answers, and what a journal holds, made by hand: bad data, with all there is to say of it."""

from __future__ import annotations

from typing import Any

from dataguard.core.evidence import RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.replay.answers import Delivered
from dataguard.replay.log import LogLine
from dataguard.run.events import Revoked
from dataguard.triage.answers import (
    CanaryShown,
    ChecklistStep,
    EventShown,
    ExperimentShown,
    FactShown,
    LoggedSteps,
    TriageAnswer,
)
from dataguard.triage.diagnose import Diagnosis
from dataguard.triage.diagnose.checks import NextCheck
from dataguard.triage.diagnose.costs import Cost
from dataguard.triage.localise import (
    Localised,
    LocalisedRank,
    LocalisedSample,
    LocalisedShare,
    LocalisedSignal,
    LookedAt,
    SampleSignal,
)
from dataguard.triage.respond import Command, Response
from dataguard.triage.respond.answers import Change, Exports, ResumeAdvice, SkipAdvice
from tests.report.run.fed import PEAK, RUN, SCRIPT, SHARD, START, STOP, TERMINAL, sample


def event(kind: EventClass, start: int, stop: int, peak: int, **more: Any) -> EventShown:
    """One event of the answer."""
    return EventShown(
        **{
            "event_class": kind, "start": start, "stop": stop, "peak": peak, "onset": None, "size_nats": None,
            "sigmas": None, "aftermath_nats": None, "grad_norm_ratio": None, "signal": "loss", "rank": None,
            "is_open": False, **more,
        }
    )  # fmt: skip


EVENTS = (
    event(
        EventClass.TRANSIENT_SPIKE, START, STOP, PEAK,
        onset=1201, size_nats=5.21, sigmas=61.4, aftermath_nats=0.12, grad_norm_ratio=18.2,
    ),
    event(EventClass.HARD_FAULT, 1900, 1901, 1900, rank=5),
    event(EventClass.CREEPING_DRIFT, 1940, 2000, 1999, signal="attention_logit_max/<b>blocks.3</b>", is_open=True),
)  # fmt: skip


def localised() -> Localised:
    """Rank 3 stands out with the samples of the hostile shard."""
    odd = [sample(3, PEAK, slot, bad=True) for slot in range(4)]
    return Localised(
        attempt=2,
        looked_at=LookedAt(steps=(1200, 1212), tested=(1201, 1202, 1203), num_samples=384, num_steps_before=100),
        pattern=RankPattern.WITH_DATA,
        data=Told.YES,
        false_alarms=0.01,
        num_comparisons=205,
        ranks=(
            LocalisedRank(rank=3, step=PEAK, loss=11.25, loss_z=58.1, grad_norm=40.25, grad_norm_z=31.0,
                          against="ranks", outlying=True, num_outlying_samples=4),
            LocalisedRank(rank=5, step=PEAK, is_finite=False, against="ranks"),
        ),
        samples=tuple(
            LocalisedSample(
                step=PEAK, rank=3, microbatch=each.microbatch, slot=each.slot, position=each.position,
                source=each.source, shard=each.shard, row=each.row, delivered=Delivered(shard=SHARD, row=9),
                digest=each.digest, loss=9.4, loss_z=14.9, verdict="flag",
                signals=(SampleSignal(signal="encoded_fraction", value=1.0, usual=0.0, z=None),), outlying=True,
                num_copies=3, num_seen_before=1, first_seen_step=12, why=each.why,
            )
            for each in odd
        ),
        signals=(
            LocalisedSignal(
                signal="encoded_fraction", unit="fraction", source="web", origin="rebuilt", side="high", step=PEAK,
                num_beyond=4, num_samples=4, num_beyond_before=0, num_samples_before=496, bound=0.0, usual=0.0,
                extreme=1.0, p_value=1e-15, near_p_value=1e-9, corrected=2e-13, stands_out=True,
            ),
        ),
        shards=(
            LocalisedShare(
                kind="shard", name=SHARD, num_samples=4, num_outlying=4, num_expected=0.2, num_samples_before=3,
                p_value=1e-6, outlying_p_value=1e-9, steps_before=1, steps_before_out=0, num_steps_before=100,
                num_steps_before_out=0, steps_p_value=None, corrected=2e-7, stands_out=True,
            ),
        ),
        texts=(f"microbatches: worst is step {PEAK} rank 3 microbatch 0",),
        notes=(f"one shard was not read: {SCRIPT}",),
    )  # fmt: skip


def response() -> Response:
    """Rewind, skip, quarantine, change."""
    typed = (
        (f"dataguard skip '{RUN}' 1190:1212 --reason 'transient_spike: bad_data' --attempt 2", "704 samples", True),
        (f"dataguard quarantine '{RUN}' '{SHARD}' --reason bad_data", "the shard stands out", True),
        (f"dataguard verify '{RUN}'", "journal, record and data agree before an attempt begins", False),
    )
    return Response(
        verdict=Verdict.BAD_DATA,
        event_class=EventClass.TRANSIENT_SPIKE,
        run=RUN,
        attempt=2,
        first_label=0,
        skip_mode="jump",
        journal=(14, "0" * 64),
        nothing=False,
        resume=ResumeAdvice(kind="checkpoint", next_step=1180, path="ckpt/1180.pt", attempt=2, num_steps_again=20,
                            node_hours=0.4, text="resume from the checkpoint at step 1,180: 20 steps come again"),
        skip=SkipAdvice(steps=(1190, 1212), batches=(1195, 1217), positions=(38240, 38944), attempt=2, lead_steps=11,
                        lead_reason="10 steps ahead of the onset", num_samples=704, num_samples_new=704,
                        share_of_pass=0.001, num_tokens_new=None),
        configuration=(Change(what="qk_norm", to="on", reason="nothing keeps attention logits from growing"),),
        fence=("node-17",),
        retention="what is kept reaches back 200 steps, and 250 are needed",
        commands=tuple(
            Command(text=text, argv=tuple(text.split()), why=why, applies=applies) for text, why, applies in typed
        ),
        exports=Exports(batches=((1195, 1217),), megatron_lm="--iterations-to-skip 1195", bigscience="--skip 1196-1217",
                        olmo_core="[[1195, 1216]]"),
        notes=("a skip is applied by the next attempt that begins",),
    )  # fmt: skip


def answer() -> TriageAnswer:
    """Bad data, with all there is to say of it."""
    says = "the batch does it from both checkpoints, and a placebo batch does not"
    return TriageAnswer(
        run=RUN,
        attempt=2,
        asked_step=None,
        steps=LoggedSteps(first=0, last=1999, logged=2000),
        event=EVENTS[0],
        events=EVENTS,
        smallest_shift_nats=0.067,
        localised=localised(),
        experiments=(
            ExperimentShown(number=12, time="2026-11-30T03:10:00Z", by="ann@host", step=PEAK, outcome=Replay.BATCH,
                            number_type=Told.NO, first_layer="blocks.3", summary=says),
        ),
        canaries=(
            CanaryShown(number=13, time="2026-11-30T03:12:00Z", by="ann@host", step=1180, differs=Told.NO, odd=(),
                        summary="two hosts agree bit by bit"),
        ),
        facts=(
            FactShown(name="event", value="transient_spike", texts=("61.4 robust sigmas",)),
            FactShown(name="ranks", value="with_data", texts=("rank 3 held the samples that stand out",)),
            FactShown(name="hardware_log", value="clean", texts=(f"node-17: nothing at that time {TERMINAL}",)),
        ),
        diagnosis=Diagnosis(
            verdict=Verdict.BAD_DATA,
            rule="batch_reproduces",
            summary=says,
            scores={"data": 13, "optimizer_or_numerics": 0, "hardware": -6, "application": 0},
            for_={"data": (f"+9 {says}", "+2 samples stand out")},
            against={"hardware": ("-6 it is reproduced on the same node",)},
            missing={"hardware": ("logs of the machines",), "application": ("logs of the machines",)},
            checks=(),
            next_check=NextCheck(name="machine_logs", cost=Cost(node_seconds=0.0, text="nothing is run"),
                                 how="dataguard triage RUN --step 1203 --evidence HOST=dmesg.txt",
                                 could_be=(Verdict.HARDWARE,)),
        ),
        response=response(),
        checklist=(
            ChecklistStep(number=1, name="establish ground truth", done="partly", answer="a spike of +5.2 nats",
                          evidence=("the norm is 18 times its median",), missing=("a validation loss",)),
            ChecklistStep(number=2, name="narrow to category", done="yes", answer="data", evidence=(), missing=()),
            ChecklistStep(number=3, name="isolate the step", done="no", answer="nothing is known", evidence=(),
                          missing=(f"a replay {SCRIPT}",)),
        ),
        notes=("the newest second of telemetry may be missing",),
    )  # fmt: skip


def journal(number: int = 16) -> tuple[LogLine, ...]:
    """Events of several kinds."""
    texts = {
        "run-created": "run created: plan 0a1b, skip mode jump, fill mask",
        "attempt-begun": "attempt 1 from attempt 0: steps 1,000:2,000, 8 ranks * microbatches of 2",
        "spike-found": f"transient_spike in steps 1,200:1,212 {SCRIPT}",
        "skip-added": "skip steps 1,190:1,212 of attempt 1",
        "quarantined": f"quarantine {SHARD}: bad_data",
        "revoked": f"revoke event 3: {TERMINAL}",
    }
    kinds = list(texts)
    states = ("done", "done", "done", "applied", "pending", "revoked")
    return tuple(
        LogLine(
            number=i,
            time=f"2026-11-30T03:{i % 60:02d}:00Z",
            by=f"ann{i % 2}@<host>",
            kind=kinds[i % 6],
            state=states[i % 6],  # type: ignore[arg-type]
            text=texts[kinds[i % 6]],
            event=Revoked(event=3),
        )
        for i in range(number)
    )
