"""Facts of runs made by hand: one that fills every field and means harm, one that is empty, and one that is large."""

from __future__ import annotations

import math

import msgspec

from dataguard.core.evidence import Verdict
from dataguard.report.run.facts import (
    AttemptMark,
    EventMark,
    RunFacts,
    SignalCurve,
    SkipMark,
    SourceShare,
    WithheldOfSource,
)
from dataguard.triage.diagnose import Diagnosis
from dataguard.triage.respond import Response
from tests.report.run.fed import PEAK, PREVIEWS, RULE, RUN, SCRIPT, SOURCE, TERMINAL, curve, heat
from tests.report.run.triaged import EVENTS, answer, journal


def marks() -> tuple[EventMark, ...]:
    """The same events, as they are drawn."""
    return tuple(
        EventMark(
            event_class=each.event_class,
            start=each.start,
            stop=each.stop,
            peak=each.peak,
            signal=each.signal,
            rank=each.rank,
            text="it goes on" if each.is_open else f"+5.2 nats, 61 robust sigmas {SCRIPT}",
        )
        for each in EVENTS
    )


def whole() -> RunFacts:
    """Every field filled, and nothing in it means well."""
    steps = range(2000)
    stretches = tuple(range(0, 2000, 20))
    jump = [1.0 if 1200 <= each < 1220 else 0.02 for each in stretches]
    return RunFacts(
        run=RUN,
        run_id="0f3c<s>",
        attempt=2,
        steps=(0, 2000),
        num_steps_delivered=2000,
        num_samples=64000,
        policy=f"default {SCRIPT}",
        curves=(
            curve("loss", None, steps),
            curve("grad_norm", None, steps),
            curve("lr", None, steps),
            *(curve("loss", rank, steps, width=4, shift=rank * 0.01) for rank in range(8)),
            curve("grad_norm", 3, steps, width=4),
            curve("<b>norm</b>", None, steps, width=10),
        ),
        events=marks(),
        skips=(
            SkipMark(event=6, step=1190, steps=(1190, 1212), batches=(1195, 1217), reason=SCRIPT, state="applied"),
            SkipMark(event=9, step=None, steps=None, batches=(90, 92), reason="an older one", state="pending"),
            SkipMark(event=3, step=None, steps=(5, 6), batches=(5, 6), reason=TERMINAL, state="revoked"),
        ),
        attempts=(
            AttemptMark(number=0, parent=None, begins=0, ends=1100, world_size=4, microbatch_size=4, global_batch=32,
                        live_until=1000, time="2026-11-29T10:00:00Z", policy=None, num_withheld=0),
            AttemptMark(number=1, parent=0, begins=1000, ends=1400, world_size=8, microbatch_size=2, global_batch=32,
                        live_until=1180, time="2026-11-29T18:00:00Z", policy="default", num_withheld=0),
            AttemptMark(number=2, parent=1, begins=1180, ends=2000, world_size=8, microbatch_size=2, global_batch=32,
                        live_until=2000, time="2026-11-30T03:20:00Z", policy=SCRIPT, num_withheld=4),
            AttemptMark(number=3, parent=1, begins=1100, ends=None, world_size=8, microbatch_size=2, global_batch=32,
                        live_until=None, time="2026-11-30T03:30:00Z", policy="default", num_withheld=4),
        ),
        checkpoints=tuple((step, f"ckpt/{step:06d}.pt") for step in range(200, 2000, 200)),
        heats=(heat(0, PEAK, 8, 24), heat(1, 1900, 8, 16), heat(2, 1960, 8, 16), heat(None, 40, 8, 8)),
        previews=PREVIEWS,
        signals=tuple(
            SignalCurve(
                name=name,
                unit=unit,
                steps=stretches,
                low=tuple(None if i == 3 else value * 0.6 for i, value in enumerate(values)),
                median=tuple(None if i == 3 else value for i, value in enumerate(values)),
                high=tuple(None if i == 3 else value * 1.7 for i, value in enumerate(values)),
                num_samples=(640,) * len(stretches),
                note="kept in 8 bits" if name == "byte_entropy" else None,
            )
            for name, unit, values in (
                ("byte_entropy", "bits", [4.1 + 0.2 * math.sin(i) for i in range(100)]),
                ("encoded_fraction", "fraction", jump),
                ("length_bytes", "bytes", [2000.0 + 40 * (i % 7) for i in range(100)]),
                ("mean_word_chars", "characters", [4.7 + each * 40 for each in jump]),
                ("<i>odd</i>", "x", [1.0] * 100),
            )
        ),
        withheld=(
            WithheldOfSource(source="web", num_slots=50000, by_rule={RULE: 41, "<u>rule</u>": 2},
                             by_status={"quarantined": 12, "refused": 40, "skipped": 704}),
            WithheldOfSource(source=SOURCE, num_slots=14000, by_status={}, by_rule={}),
        ),
        mixture=(
            SourceShare(
                source="web", asked=0.75, asked_over_time=(0.75,) * 100, delivered=0.78, num_delivered=49920,
                over_time=tuple(0.75 + 0.02 * math.sin(i) for i in range(100)), num_bytes=10**9,
            ),
            SourceShare(
                source=SOURCE, asked=None, asked_over_time=(*(0.25,) * 50, *(0.2,) * 49, None), delivered=0.22,
                num_delivered=14080, over_time=tuple(None if i == 5 else 0.25 for i in range(100)), num_bytes=None,
            ),
        ),
        mixture_steps=stretches,
        triage=answer(),
        journal=journal(),
        num_journal=120,
        notes=(f"web/part-003.jsonl cannot be read: {SCRIPT}", f"telemetry of rank 7 ends early {TERMINAL}"),
        limits=(f"93 names were logged; 24 of them are drawn {SCRIPT}",),
    )  # fmt: skip


def empty() -> RunFacts:
    """A run that was created, and nothing more."""
    return RunFacts(
        run="b", run_id="1", attempt=None, steps=None, num_steps_delivered=0, num_samples=0, policy=None, curves=(),
        events=(), skips=(), attempts=(), checkpoints=(), heats=(), previews=(), signals=(), withheld=(), mixture=(),
        mixture_steps=(), triage=None, journal=journal(1), num_journal=1, notes=(), limits=(),
    )  # fmt: skip


def quiet() -> RunFacts:
    """A run without telemetry: nothing is known of its loss."""
    nothing = Diagnosis(verdict=Verdict.NO_INCIDENT, rule="nothing", summary="no event was detected", scores={},
                        for_={}, against={}, missing={}, checks=(), next_check=None)  # fmt: skip
    told = answer()
    return msgspec.structs.replace(
        empty(),
        attempt=0,
        steps=(0, 10),
        num_steps_delivered=10,
        num_samples=80,
        attempts=(msgspec.structs.replace(whole().attempts[0], ends=10, live_until=10),),
        triage=msgspec.structs.replace(
            told, steps=None, event=None, events=(), smallest_shift_nats=None, localised=None, experiments=(),
            canaries=(), facts=(), diagnosis=nothing, checklist=(), notes=(),
            response=Response(verdict=Verdict.NO_INCIDENT, event_class=None, run="b", attempt=0, first_label=0,
                              skip_mode="jump", journal=(1, "0" * 64), nothing=True),
        ),
    )  # fmt: skip


def large(*, num_steps: int = 10_000, num_ranks: int = 8, window: int = 40, num_samples: int = 8) -> RunFacts:
    """As many steps and ranks as a real run has."""
    width = max(1, num_steps // 2000)
    stretch = max(1, num_steps // 200)
    base = whole()
    maps = tuple(heat(i, peak, num_ranks, window, num_samples=num_samples) for i, peak in enumerate((PEAK, 1900, 1960)))
    curves = [curve(name, None, range(num_steps), width=width) for name in ("loss", "grad_norm", "lr")]
    curves += [curve("loss", rank, range(num_steps), width=width * 4) for rank in range(min(num_ranks, 8))]
    steps = tuple(range(0, num_steps, stretch))
    return msgspec.structs.replace(
        base,
        steps=(0, num_steps),
        num_steps_delivered=num_steps,
        curves=tuple(curves),
        heats=maps,
        signals=tuple(
            msgspec.structs.replace(base.signals[i % 5], name=f"signal_{i}", steps=steps,
                                    low=tuple(1.0 + j % 9 / 7 for j in range(len(steps))),
                                    median=tuple(2.0 + j % 9 / 7 for j in range(len(steps))),
                                    high=tuple(3.0 + j % 9 / 7 for j in range(len(steps))),
                                    num_samples=(64,) * len(steps))
            for i in range(20)
        ),
        journal=journal(500),
    )  # fmt: skip
