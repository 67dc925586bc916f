"""Files of facts: every problem with its line; the template holds every fact there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from dataguard.core.trainer import TrainerFacts
from dataguard.errors import InputError, UsageError
from dataguard.triage.preflight import TEMPLATE, load_facts, read_facts


def problems_of(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_facts(text, name="f.toml")
    return str(caught.value)


def test_all_problems_are_told_at_once_each_with_its_line() -> None:
    told = problems_of(
        "[optimizer]\n"  # 1
        "epsilonn = 1e-8\n"
        "beta1 = 1.0\n"  # 3
        "clip_norm = -1\n"
        "weight_decay = nan\n"  # 5
        "name = 3\n"
        "[schedule]\n"  # 7
        "total_steps = 0\n"
        "warmup_steps = 1.5\n"  # 9
        "[precision]\n"
        'compute = "bf16"\n'  # 11
        "loss_scaling = 1\n"
        "[archtecture]\n"  # 13
        "[[changes]]\n"
        'what = "x"\n'  # 15
    )
    lines = dict(re.findall(r"line (\d+): (.*)", told))
    assert sorted(map(int, lines)) == [2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 14]
    assert "did you mean epsilon?" in lines["2"]
    assert "did you mean architecture?" in lines["13"]
    assert "has no 'step'" in lines["14"]
    assert "precision.compute: float32, bfloat16, float16, float8" in told
    assert "11 problems" in told


@pytest.mark.parametrize(
    "text", ["optimizer = 3\n", "[data]\nheld_out_sets = 'web'\n", "[data]\nheld_out_sets = [1]\n", "changes = 1\n"]
)
def test_what_is_of_another_shape_is_refused(text: str) -> None:
    assert "1 problem" in problems_of(text)


def test_what_is_no_toml_or_no_file_is_told(tmp_path: Path) -> None:
    assert "is no TOML" in problems_of("[optimizer\n")
    with pytest.raises(InputError, match="cannot be read"):
        load_facts(tmp_path / "nosuch.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is no text"):
        load_facts(tmp_path / "x.toml")


def test_the_template_says_nothing_until_it_is_filled_in() -> None:
    assert read_facts(TEMPLATE, name="template") == TrainerFacts()


def test_the_template_holds_every_fact_and_each_as_it_may_be() -> None:
    filled = re.sub(r"^# (?=[a-z_0-9]+ = |\[\[)", "", TEMPLATE, flags=re.MULTILINE)
    parsed = tomllib.loads(filled)
    expected = {
        each.name: {inner.name for inner in msgspec.structs.fields(each.type)}
        for each in msgspec.structs.fields(TrainerFacts)
        if each.name != "changes"
    }
    assert {name: set(section) for name, section in parsed.items() if name != "changes"} == expected
    facts = read_facts(filled, name="template")
    assert facts.changes[0].step == 100_000
    assert facts.optimizer.epsilon == 1e-8
