"""What a notebook shows of a diagnosis and of triage."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dataguard.core.evidence import Evidence, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.run.run import Run
from dataguard.triage.answers import EventShown, TriageAnswer
from dataguard.triage.diagnose import Diagnosis, diagnose
from dataguard.triage.triage import triage
from tests.core.test_notebook import HOSTILE, require_harmless
from tests.run.small import begin, make_run

EVIDENCE = Evidence(event=EventClass.TRANSIENT_SPIKE, data=Told.YES, texts={"data": ("three shards stand out",)})


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> TriageAnswer:
    run = make_run(tmp_path_factory.mktemp("run"))
    begin(run)
    return triage(Run.open(run.path))


def test_a_diagnosis_is_one_line_and_a_card() -> None:
    diagnosis = diagnose(EVIDENCE)
    assert diagnosis.verdict is Verdict.INCONCLUSIVE
    assert repr(diagnosis).startswith("<Diagnosis inconclusive by 'otherwise': ")
    assert "data=3" in repr(diagnosis)
    texts = require_harmless(diagnosis._repr_html_()).texts
    assert texts[0] == "Diagnosis: inconclusive"
    assert texts[texts.index("summary") + 1] == diagnosis.summary
    assert texts[texts.index("score") + 4] == "data", "the highest score stands first"
    assert any("three shards stand out" in text for text in texts)
    assert diagnosis.next_check is not None
    assert f"{diagnosis.next_check.name}: {diagnosis.next_check.how}" in texts


def test_where_nothing_is_to_be_done_it_says_so() -> None:
    diagnosis = msgspec.structs.replace(diagnose(Evidence(event=None)), next_check=None)
    assert "none could change the verdict" in require_harmless(diagnosis._repr_html_()).texts


def test_texts_of_machines_may_hold_anything() -> None:
    found = diagnose(EVIDENCE)
    many = tuple(f"{text} {number}" for number in range(50) for text in HOSTILE)
    hostile: Diagnosis = msgspec.structs.replace(
        found, summary=HOSTILE[0], for_={"data": many}, against={}, missing={}, next_check=None
    )
    text = hostile._repr_html_()
    require_harmless(text)
    assert len(text) < 30_000
    assert f"and {len(many) - 20:,} more" in text


def test_what_several_causes_lack_stands_once() -> None:
    found = diagnose(EVIDENCE)
    lacking = dict.fromkeys(found.scores, ("the replay",))
    shown = msgspec.structs.replace(found, missing=lacking)._repr_html_()
    assert require_harmless(shown).texts.count("the replay") == 1


def test_triage_of_a_run_that_logged_nothing(answer: TriageAnswer) -> None:
    assert repr(answer) == f"<TriageAnswer {answer.run!r} inconclusive: no event>"
    texts = require_harmless(answer._repr_html_()).texts
    assert texts[0] == "Triage: inconclusive"
    assert texts[texts.index("telemetry") + 1] == "none"
    assert texts[texts.index("event") + 1] == "none"


def test_triage_of_an_event(answer: TriageAnswer) -> None:
    event = EventShown(
        event_class=EventClass.HARD_BATCH, start=1_200, stop=1_203, peak=1_201, onset=None, size_nats=1.0, sigmas=9.0,
        aftermath_nats=None, grad_norm_ratio=None, signal="loss", rank=3, is_open=False,
    )  # fmt: skip
    found = msgspec.structs.replace(answer, event=event, events=(event,), notes=tuple(HOSTILE), not_noted="disk full")
    assert repr(found).endswith(": hard_batch at steps 1,200:1,203, peak 1,201, rank 3>")
    texts = require_harmless(found._repr_html_()).texts
    assert "disk full" in texts
    assert "hard_batch at steps 1,200:1,203, peak 1,201, rank 3" in texts


def test_documents_are_what_they_were(answer: TriageAnswer, tmp_path: Path) -> None:
    assert msgspec.json.decode(msgspec.json.encode(answer), type=TriageAnswer) == answer
