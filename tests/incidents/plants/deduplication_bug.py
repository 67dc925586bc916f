"""Deduplication took two fifths of the code and put copies of prose in its place; no curve shows it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from dataguard import Run
from dataguard.core.evidence import Verdict
from tests.incidents.corpus import code_of_library, prose, write_corpus
from tests.incidents.incident import Incident, Played, Segment, shards_of
from tests.incidents.places import nowhere
from tests.incidents.stage import Settings, Stage
from tests.support.commands import dataguard, lines_of

_PROSE, _CODE, _LOST = 640, 480, 192


def _healthy(generator: random.Random) -> tuple[list[str], list[str]]:
    return prose(generator, _PROSE), code_of_library(generator, _CODE)


def _segments(generator: random.Random) -> Sequence[Segment]:
    text, code = _healthy(generator)
    return [Segment(text + text[:_LOST]), Segment(code[_LOST:], source="code")]


def _audits(stage: Stage, settings: Settings, run: Run) -> Mapping[str, Any]:
    """What was there before the bug was audited once; the corpus of the run is audited against it."""
    text, code = _healthy(random.Random(f"deduplication_bug {stage.seed}"))
    before = stage.folder / "before"
    shards, _ = shards_of([Segment(text), Segment(code, source="code")])
    write_corpus(before, shards)
    dataguard("audit", before / "M.parquet", "-o", before / "AUDIT", "--json")
    profile = before / "AUDIT" / "profile.json"
    words = ("--baseline", profile, "--fail-on", "drift", "--json")
    done = dataguard("audit", stage.manifest, "-o", stage.folder / "AUDIT", *words, code=None)
    return {"code": done.returncode, "summary": lines_of(done)[-1]}


def _place(played: Played) -> tuple[str, bool]:
    told, is_nowhere = nowhere(played)
    summary = played.more["summary"]
    lost = [
        each["source"]
        for each in summary["drift"]["sources"]
        if each["state"] in {"drifted", "gone"} and each["change"] < 0
    ]
    copied = [each["source"] for each in summary["duplicates"]["by_source"] if each["copies"]]
    audit = (
        f"audit {summary['verdict']}: {', '.join(lost) or 'nothing'} lost, copies in {', '.join(copied) or 'nothing'}"
    )
    is_told = played.more["code"] == 1 and "code" in lost and copied == ["text"]
    return audit if is_nowhere else f"{audit}, {told}", is_nowhere and is_told


INCIDENT = Incident(
    name="deduplication_bug",
    segments=_segments,
    settings=lambda seed: Settings(num_steps=130),
    classes=frozenset({None}),
    verdicts=frozenset({Verdict.NO_INCIDENT}),
    place=_place,
    after=_audits,
)
