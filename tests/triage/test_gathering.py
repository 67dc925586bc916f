"""Each fact comes from its place, with its numbers; of experiments and canaries the newest that says anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dataguard.core.evidence import Evidence, Finite, GradNorm, HardwareLog, Mitigation, RankPattern, Replay, Told
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.events import CanaryCompared, ExperimentDone
from dataguard.run.logs.log import LogRows
from dataguard.triage import gathering
from dataguard.triage.diagnose.signs import UNKNOWN_OF
from dataguard.triage.evidence.lines import MachineLogs
from dataguard.triage.evidence.optimizer import OptimizerSign, SignKind
from dataguard.triage.gathering import Gathered, gather
from dataguard.triage.localise.answers import Localised, LocalisedRank, LookedAt
from dataguard.triage.respond import Sign

EVENT = SpikeEvent(
    event_class=EventClass.TRANSIENT_SPIKE, start=20, stop=24, peak=21, size_nats=1.0, sigmas=20.0, onset=19
)
DIGEST = "ab" * 32
LOCALISED = Localised(
    attempt=1,
    looked_at=LookedAt(steps=(18, 24), tested=(18, 19)),
    pattern=RankPattern.ONE_RANK,
    data=Told.YES,
    false_alarms=0.01,
    num_comparisons=9,
    ranks=(LocalisedRank(rank=2, outlying=True), LocalisedRank(rank=0)),
    texts=("ranks: rank 2 stands out", "data: 8 samples stand out", "shard web/z holds them"),
)
CANARY = CanaryCompared(attempt=1, step=3, differs=Told.NO, odd=(), results=DIGEST, summary="8 agree")


def experiment(outcome: Replay, number_type: Told, summary: str, *, step: int = 20) -> ExperimentDone:
    return ExperimentDone(
        attempt=1, step=step, outcome=outcome, number_type=number_type, first_layer=None, results=DIGEST,
        summary=summary,
    )  # fmt: skip


class Place:
    """What is asked of each place, and what it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        says: dict[str, Any] = {
            "rows_around": (np.empty(0), None),
            "finite_of": (Finite.EVERYWHERE, None, ("all finite",)),
            "grad_norm_of": (GradNorm.BURST, ("20 times",)),
            "planned_change": (Told.NO, ("no plan",)),
            "signs_found": (Told.YES, (OptimizerSign(kind=SignKind.CLIMBING_LOG_Z, text="logits climb"),), ()),
            "hosts_of": {0: "node-0", 1: "node-1", 2: "node-2", 3: "node-2"},
            "match": (HardwareLog.HARDWARE, ("XID 79",)),
            "mitigation_of": (Mitigation.SKIP, ("past it",)),
        }
        for name, answer in says.items():
            monkeypatch.setattr(gathering, name, self._of(name, answer))
        rows = LogRows()
        for step in range(40):
            rows.add(step, {"loss": 3.0}, time=1_000.0 + step)
        lineage = [SimpleNamespace(number=1, fork_step=0)]
        self.entries: list[Any] = []
        self.looked: Any = SimpleNamespace(
            run=SimpleNamespace(
                first_label=1,
                layout=None,
                label=lambda step: step + 1,
                step=lambda label: label - 1,
                begun=lambda attempt, read: SimpleNamespace(world_size=4),
                attempts=lambda read: SimpleNamespace(
                    lineage=lambda leaf: lineage, numbers=(1,), owner=lambda step, leaf: 1
                ),
            ),
            read=SimpleNamespace(entries=self.entries),
            leaf=1,
            facts=None,
            curve=rows.finish("a", "csv"),
            traces="traces",
            detection=None,
            silence=None,
            events=(EVENT,),
        )

    def _of(self, name: str, answer: Any) -> Any:
        def say(*given: Any, **named: Any) -> Any:
            self.asked[name] = given, named
            return answer

        return say

    def note(self, *events: Any) -> None:
        for event in events:
            self.entries.append(SimpleNamespace(event=event, number=len(self.entries) + 1, time="", by=""))

    def gather(self, event: SpikeEvent | None = EVENT, localised: Localised | None = LOCALISED) -> Gathered:
        return gather(self.looked, event, localised, MachineLogs(lines=(), sources=()))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


def test_every_fact_is_that_of_its_place_with_its_numbers(place: Place) -> None:
    place.note(experiment(Replay.BATCH, Told.NO, "the batch does it"), CANARY)
    found = place.gather().evidence
    texts = found.texts
    assert found == Evidence(
        event=EVENT.event_class,
        planned_change=Told.NO,
        finite=Finite.EVERYWHERE,
        ranks=RankPattern.ONE_RANK,
        optimizer=Told.YES,
        data=Told.YES,
        replay=Replay.BATCH,
        canary=Told.NO,
        hardware_log=HardwareLog.HARDWARE,
        number_type=Told.NO,
        grad_norm=GradNorm.BURST,
        mitigation=Mitigation.SKIP,
        texts=texts,
    )
    assert all(getattr(found, name) is not unknown for name, unknown in UNKNOWN_OF.items()), "a fact that this forgot"
    assert texts == {
        "finite": ("all finite",),
        "grad_norm": ("20 times",),
        "planned_change": ("no plan",),
        "optimizer": ("logits climb",),
        "ranks": ("ranks: rank 2 stands out",),
        "data": ("data: 8 samples stand out",),
        "replay": ("the batch does it",),
        "number_type": ("the batch does it",),
        "canary": ("8 agree",),
        "hardware_log": ("XID 79",),
        "mitigation": ("past it",),
    }


def test_machines_are_asked_of_the_odd_rank_s_host_from_before_the_onset_to_after_the_end(place: Place) -> None:
    found = place.gather()
    assert (found.odd_rank, found.odd_hosts) == (2, ("node-2",))
    assert place.asked["match"][1] == {
        "start_time": 1_018.0, "stop_time": 1_024.0, "hosts": ("node-2",), "devices_per_host": 2
    }  # fmt: skip
    assert place.asked["finite_of"][1] == {"first_label": 1, "world_size": 4}


def test_a_canary_that_differs_names_its_machines_too(place: Place) -> None:
    place.note(CanaryCompared(attempt=1, step=3, differs=Told.YES, odd=("node-7/cuda:3",), results=DIGEST, summary="1"))
    assert place.gather().odd_hosts == ("node-7", "node-2")
    place.note(CANARY)
    found = place.gather()
    assert (found.evidence.canary, found.odd_hosts) == (Told.NO, ("node-2",)), "the newest comparison counts"


def test_of_several_experiments_the_newest_that_says_anything_counts(place: Place) -> None:
    place.note(
        experiment(Replay.STATE, Told.YES, "first"),
        experiment(Replay.BATCH, Told.UNKNOWN, "second"),
        experiment(Replay.INCONCLUSIVE, Told.UNKNOWN, "third"),
        experiment(Replay.NODE, Told.NO, "of another step", step=300),
    )
    found = place.gather()
    assert (found.evidence.replay, found.evidence.number_type) == (Replay.BATCH, Told.YES)
    assert found.evidence.texts["replay"] == ("second",)
    assert found.signs == {Sign.NUMBER_TYPE: "first", Sign.RISING_OUTPUT_LOGITS: "logits climb"}
    assert len(found.experiments) == 3


def test_without_an_event_nothing_is_asked_of_it(place: Place) -> None:
    place.note(experiment(Replay.BATCH, Told.NO, "the batch does it"), CANARY)
    found = place.gather(None, None)
    assert found.evidence == Evidence(
        event=None, planned_change=Told.NO, canary=Told.NO, hardware_log=HardwareLog.HARDWARE,
        texts=found.evidence.texts,
    )  # fmt: skip
    assert set(place.asked) == {"planned_change", "match", "hosts_of"}
