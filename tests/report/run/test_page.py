"""The page of a run: all of its facts, whole in itself, the same every time, and nothing from data that could act."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re

import msgspec
import pytest

from dataguard.core.evidence import RankPattern, Told, Verdict
from dataguard.report.html import PAGE_START, visible
from dataguard.report.run.drawing.charts import panels_of
from dataguard.report.run.drawing.grid import NUM_SHADES, Scale, heats_of
from dataguard.report.run.drawing.samples import samples_of
from dataguard.report.run.drawing.sparks import spark
from dataguard.report.run.drawing.words import head_of
from dataguard.report.run.facts import CellSample, Measure, RunFacts
from dataguard.report.run.page import page_of_run
from dataguard.triage.answers import LoggedSteps, SmallestSpike, TriageAnswer
from tests.report.audit.making import Read
from tests.report.run.fed import PEAK, RULE, SCRIPT, SHARD, SOURCE, curve
from tests.report.run.making import empty, large, quiet, whole
from tests.report.run.triaged import EVENTS

CONTROLS = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]"


@pytest.fixture(scope="module")
def facts() -> RunFacts:
    return whole()


@pytest.fixture(scope="module")
def content(facts: RunFacts) -> bytes:
    return page_of_run(facts)


@pytest.fixture(scope="module")
def page(content: bytes) -> Read:
    return Read(content)


def answer_of(facts: RunFacts) -> TriageAnswer:
    assert facts.triage is not None
    return facts.triage


def test_the_head_says_who_is_to_blame_and_what_to_type(facts: RunFacts, content: bytes, page: Read) -> None:
    answer = answer_of(facts)
    assert content.startswith(PAGE_START)
    assert "Bad data" in page.words
    assert {"class": "banner fail", "id": "verdict"} in [attrs for _, attrs in page.tags]
    head = page.text[: page.text.index("A column shows")]
    assert answer.diagnosis.summary in head
    for told in (
        "transient spike",
        "1,200:1,212",
        "peak 1,203, onset 1,201",
        "+5.21 nats",
        "it held samples",
        SHARD,
    ):
        assert told in head
    for command in answer.response.commands:
        assert command.text in head
    copied = [attrs for tag, attrs in page.tags if tag == "code" and "data-copy" in attrs]
    assert len(copied) >= len(answer.response.commands) + 1, "and the next check"
    for note in facts.notes:
        assert visible(note) in head, "what could not be read cannot be missed"
    for limit in facts.limits:
        assert visible(limit) in page.text
        assert visible(limit) not in head, "a healthy run carries no warning"


def test_every_fact_is_on_the_page(facts: RunFacts, page: Read) -> None:
    answer = answer_of(facts)
    texts = [
        *(visible(event.text) for event in facts.events),
        *(visible(skip.reason) for skip in facts.skips),
        *(visible(line.text) for line in facts.journal),
        *(visible(line.by) for line in facts.journal),
        *(attempt.time[:10] + " " + attempt.time[11:19] + " UTC" for attempt in facts.attempts),
        *(path for _, path in facts.checkpoints),
        *(signal.name for signal in facts.signals),
        *(row.source for row in (*facts.withheld, *facts.mixture)),
        *(visible(text) for fact in answer.facts for text in fact.texts),
        *(visible(text) for step in answer.checklist for text in (step.answer, *step.evidence, *step.missing)),
        *(each.summary for each in (*answer.experiments, *answer.canaries)),
        *(text for texts in (*answer.diagnosis.for_.values(), *answer.diagnosis.against.values()) for text in texts),
        *(text for texts in answer.diagnosis.missing.values() for text in texts),
        *(visible(text) for text in (*answer.notes, *answer.response.notes)),
        f"{RULE}\xa041",
        "stages differ",
        "The newest 16 of 120 events",
        "the newest before step 1,800",
        "--iterations-to-skip 1195",
        "4 of 4",
    ]
    for text in texts:
        assert text in page.text, text
    assert answer.localised is not None
    for sample in answer.localised.samples:
        assert f"{sample.shard}:{sample.row}" in page.text
        assert f"position {sample.position:,}" in page.text
        assert sample.digest in page.text
    assert SCRIPT in page.marked, "the span of a record that is marked"


def test_the_scripts_facts_are_those_of_the_run(facts: RunFacts, page: Read) -> None:
    data = json.loads(page.scripts[0][1])
    assert [curve["rank"] for curve in data["curves"]] == [curve.rank for curve in facts.curves]
    assert data["curves"][0]["steps"] == list(facts.curves[0].steps)
    assert data["curves"][0]["high"][1900] is None
    assert data["curves"][0]["bad"] == [[1900, 1]]
    for made, heat in zip(data["maps"], facts.heats, strict=True):
        assert made["steps"] == list(heat.steps)
        assert len(made["cells"]) == len(heat.cells)
        for cell, recorded in zip(made["cells"], heat.cells, strict=True):
            rank, step, attempt, num_samples, command, samples = cell
            assert (heat.ranks[rank], heat.steps[step], attempt) == (recorded.rank, recorded.step, recorded.attempt)
            assert (num_samples, command) == (recorded.num_samples, recorded.command)
            assert sorted(data["texts"][sample[4]] for sample in samples) == sorted(s.shard for s in recorded.samples)
            assert {sample[7] for sample in samples} == {sample.digest for sample in recorded.samples}
    assert len(data["previews"]) == len(facts.previews)


def test_nothing_from_data_is_an_element_an_attribute_or_a_script(page: Read) -> None:
    assert [attrs.get("type") for attrs, _ in page.scripts] == ["application/json", None, None, None]
    elements = {tag for tag, _ in page.tags}
    assert not elements & {"img", "iframe", "object", "embed", "form", "base", "s", "u"}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    for _, attrs in page.tags:
        for name in ("href", "src"):
            assert (attrs.get(name) or "#").startswith(("#", "data:,")), attrs
    for text in (SCRIPT, SHARD, SOURCE):
        assert text in page.text
    assert not [text for attrs, text in page.scripts[1:] if "window.hit" in text]


def test_only_the_scripts_of_the_page_may_run(content: bytes, page: Read) -> None:
    (policy,) = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for _, text in page.scripts[1:]]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert content.index(b"Content-Security-Policy") < content.index(b"<style")


def test_controls_and_directional_marks_are_spelled_out(content: bytes) -> None:
    text = content.decode()
    shown = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(CONTROLS, shown)
    assert '<span class="escape">␛</span>[31mred' in shown
    assert '<span class="escape">\\u202e</span>' in shown


def test_the_same_facts_give_the_same_bytes(content: bytes) -> None:
    assert page_of_run(whole()) == content


def test_a_run_of_ten_thousand_steps_on_eight_ranks_stays_small() -> None:
    content = page_of_run(large())
    assert len(content) < 8_000_000
    assert content.count(b"<td class=") >= 3 * 8 * 40


def test_an_empty_run_claims_nothing() -> None:
    page = Read(page_of_run(empty()))
    assert "Nothing has run yet" in page.words
    assert "banner nothing" in [attrs.get("class") for _, attrs in page.tags]
    assert "No incident" not in page.text
    assert "Nothing was logged and no attempt has begun" in page.text
    assert [attrs.get("type") for attrs, _ in page.scripts] == ["application/json", None, None], (
        "no chart, no plotly.js"
    )


def test_a_run_without_telemetry_is_not_green() -> None:
    page = Read(page_of_run(quiet()))
    assert "Nothing was logged" in page.words
    assert "banner nothing" in [attrs.get("class") for _, attrs in page.tags]
    assert "nothing is known of its loss" in page.text
    assert "Nothing was logged, so no event could be found." in page.text


def test_a_run_that_cannot_be_trusted_has_no_verdict() -> None:
    head = head_of(msgspec.structs.replace(whole(), triage=None))
    assert (head.title, head.tone, head.typed) == ("No verdict", "fail", ())
    page_of_run(msgspec.structs.replace(whole(), triage=None))


def test_a_quiet_run_says_what_it_could_have_shown() -> None:
    answer = answer_of(quiet())
    spike = SmallestSpike(step=9, nats=0.897, hardest_step=4, hardest_nats=2.06)
    heard = msgspec.structs.replace(
        answer, steps=LoggedSteps(first=0, last=9, logged=10), smallest_spike=spike, smallest_shift_nats=0.067
    )
    text = Read(page_of_run(msgspec.structs.replace(quiet(), triage=heard))).text
    assert "at step 9: 0.897 nats (most at step 4: 2.06 nats)" in text
    assert "the least lasting shift that this log can show: 0.067 nats" in text
    assert not head_of(whole()).could_show, "of an event that was found, its size is told"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_title_and_a_tone(verdict: Verdict) -> None:
    answer = answer_of(whole())
    diagnosis = msgspec.structs.replace(answer.diagnosis, verdict=verdict)
    head = head_of(msgspec.structs.replace(whole(), triage=msgspec.structs.replace(answer, diagnosis=diagnosis)))
    assert head.verdict == verdict.value
    assert head.tone == {
        "no_incident": "pass",
        "planned_change": "pass",
        "hard_batch": "flag",
        "inconclusive": "flag",
    }.get(verdict.value, "fail")


def test_a_rank_of_odd_samples_is_named_only_where_none_stands_out_itself() -> None:
    """Odd samples are everywhere by chance, and those that are listed are not all of one shard."""
    answer = answer_of(whole())
    assert answer.localised is not None
    by_chance = msgspec.structs.replace(answer.localised.ranks[1], num_outlying_samples=2)

    def told(*ranks: object) -> dict[str, tuple[str, str]]:
        localised = msgspec.structs.replace(answer.localised, ranks=ranks, samples=answer.localised.samples[:3])
        changed = msgspec.structs.replace(whole(), triage=msgspec.structs.replace(answer, localised=localised))
        return {fact.what: (fact.value, fact.more) for fact in head_of(changed).facts}

    told_of_both = told(answer.localised.ranks[0], by_chance)
    assert told_of_both["rank"] == ("3", "it held samples that stand out")
    assert told_of_both["shard"] == (answer.localised.shards[0].name, "samples that stand out: 4 of 4")
    assert told(by_chance)["rank"][0] == "5"


def test_who_was_not_looked_at_is_not_known() -> None:
    answer = answer_of(whole())
    assert answer.localised is not None

    def told(localised: object) -> dict[str, str]:
        changed = msgspec.structs.replace(answer, localised=localised)
        return {fact.what: fact.value for fact in head_of(msgspec.structs.replace(whole(), triage=changed)).facts}

    assert told(None)["rank"] == "not known"
    assert told(None)["shard"] == "not known"
    bare = msgspec.structs.replace(answer.localised, ranks=(), samples=(), shards=())
    none = msgspec.structs.replace(bare, pattern=RankPattern.NONE, data=Told.NO)
    assert told(none)["rank"] == "none stands out"
    assert told(none)["shard"] == "none stands out"
    unknown = msgspec.structs.replace(bare, pattern=RankPattern.UNKNOWN, data=Told.UNKNOWN)
    assert told(unknown)["rank"] == "not known"
    assert told(unknown)["shard"] == "not known"


def test_a_fault_has_no_size_and_says_what_it_is() -> None:
    answer = answer_of(whole())
    for shown, value in ((EVENTS[1], "NaN or infinite"), (EVENTS[2], "attention_logit_max/<b>blocks.3</b>")):
        made = msgspec.structs.replace(whole(), triage=msgspec.structs.replace(answer, event=shown))
        assert value in {fact.value for fact in head_of(made).facts}


def test_commands_that_do_the_same_are_copied_at_once() -> None:
    answer = answer_of(whole())
    first = answer.response.commands[1]
    rows = tuple(msgspec.structs.replace(first, text=f"dataguard quarantine r web/a:{row}") for row in range(9))
    response = msgspec.structs.replace(answer.response, commands=rows)
    made = msgspec.structs.replace(whole(), triage=msgspec.structs.replace(answer, response=response))
    (typed,) = [each for each in head_of(made).typed if "quarantine" in "".join(each.commands)]
    assert typed.commands == tuple(row.text for row in rows)


def test_what_is_skipped_already_is_not_asked_for_again() -> None:
    answer = answer_of(whole())
    assert answer.response.skip is not None
    skip = msgspec.structs.replace(answer.response.skip, by_event=(28,), num_samples_new=0)
    response = msgspec.structs.replace(answer.response, skip=skip, commands=answer.response.commands[1:])
    made = msgspec.structs.replace(whole(), triage=msgspec.structs.replace(answer, response=response))
    texts = [each.text for each in head_of(made).typed]
    assert texts[1] == "steps 1,190:1,212 (positions 38,240:38,944) are skipped already, by event 28"
    assert not [text for text in texts if text.startswith("skip ")]


def test_a_command_that_cannot_be_typed_as_shown_is_not_copied() -> None:
    answer = answer_of(whole())
    bad = msgspec.structs.replace(answer.response.commands[0], text="dataguard skip 'a\x1bb' 1:2", why="odd")
    response = msgspec.structs.replace(answer.response, commands=(bad,))
    made = msgspec.structs.replace(whole(), triage=msgspec.structs.replace(answer, response=response))
    page = Read(page_of_run(made))
    assert "dataguard skip 'a\\x1bb' 1:2" in page.words
    assert "is not typed as it stands" in page.text


def test_shades_follow_the_values_and_signs_stand_for_what_is_no_value(facts: RunFacts) -> None:
    view = heats_of(facts)[0]
    heat = view.heat
    loss = view.measures[0]
    peak = heat.steps.index(PEAK)
    assert loss.rows[3][peak] == str(NUM_SHADES - 1)
    assert loss.rows[5][peak] == "n"
    assert loss.rows[7][0] == "-"
    assert view.rows[3].cells[peak] == (f"q{NUM_SHADES - 1} out", "11.25, a sample stands out")
    assert view.rows[5].cells[peak] == ("qn", "NaN or infinite")
    assert view.rows[7].cells[0] == ("qx", "no value")
    assert [column.step for column in view.columns if column.is_peak] == [PEAK]
    assert [column.is_event for column in view.columns] == [1200 <= step < 1212 for step in heat.steps]
    early = heats_of(msgspec.structs.replace(facts, heats=(msgspec.structs.replace(heat, cells=()),)))[0]
    assert early.outlying == ()


@pytest.mark.parametrize(
    ("values", "is_log", "shades"),
    [
        ((1.0, 2.0, 3.0), False, (0, 5, 9)),
        ((1.0, 10.0, 1000.0), True, (0, 3, 9)),
        ((2.0, 2.0, math.nan), False, (0, 0, None)),
        ((0.0, 1.0, 1000.0), False, (0, 0, 9)),
    ],
)
def test_a_scale_is_logarithmic_only_where_it_can_be(
    values: tuple[float, ...], is_log: bool, shades: tuple[int | None, ...]
) -> None:
    scale = Scale.of(Measure(name="x", title="x", values=(values,)))
    assert scale is not None
    assert scale.is_log is is_log
    assert tuple(None if math.isnan(value) else scale.shade(value) for value in values) == shades
    assert Scale.of(Measure(name="x", title="x", values=((None, math.inf),))) is None


def test_panels_leave_out_the_steep_begin_and_no_spike() -> None:
    facts = msgspec.structs.replace(empty(), curves=(curve("loss", None, range(2000)),))
    (panel,) = panels_of(facts)
    assert not panel.is_log
    highest = max(value for value in facts.curves[0].high[40:] if value is not None)
    assert highest < panel.bounds[1] < max(value for value in facts.curves[0].high if value is not None)


def test_a_small_curve_shows_ranges_and_gaps() -> None:
    made = str(spark((0, 1, 2, 3), (1.0, 2.0, None, 1.0), (1.0, 5.0, None, 1.0), label="a<b", width=30, height=56))
    (path,) = re.findall(r'class="line" d="([^"]*)"', made)
    assert path.count("M") == 2, "a gap, and no line across it"
    assert "V" in path, "from the greatest to the least of a column"
    assert 'aria-label="a&lt;b"' in made
    assert str(spark((0,), (None,), (math.nan,), label="x")) == ""


def test_samples_of_a_run_without_localisation_are_those_of_the_cells(facts: RunFacts) -> None:
    answer = msgspec.structs.replace(answer_of(facts), localised=None)
    made = samples_of(msgspec.structs.replace(facts, triage=answer))
    outlying: list[CellSample] = [s for heat in facts.heats for cell in heat.cells for s in cell.samples if s.outlying]
    assert {(each.shard, each.row) for each in made} == {(sample.shard, sample.row) for sample in outlying}
    assert made[0].loss == "NaN"
