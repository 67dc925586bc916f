"""``dataguard policy``: what is written, every problem with exit code 2, and one record beside the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli.main import main
from dataguard.cli.options import POLICY_NAMES as SPELLED
from dataguard.gate.policy import POLICY_NAMES, named_policy
from dataguard.score.profile import ProfileBuilder, encode_profile
from tests.architecture.validation import validate
from tests.corpus.making import jsonl, npy

Capture = pytest.CaptureFixture[str]
SPAM = "g4OD" * 500


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "web/a.jsonl", ["one two", None, f"\x1b[31m{SPAM}"])
    npy(tmp_path / "ids/t.npy", [*range(100, 200), *[7] * 40, *range(200, 260)])
    assert main(["manifest", "build", "web", "ids", "-o", "M.parquet"]) == 0
    return tmp_path


def run(capfd: Capture, *words: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(["policy", *words])
    told = capfd.readouterr()
    return code, told.out, told.err


def asked(capfd: Capture, *words: str, schema: str) -> tuple[int, Any]:
    code, out, _ = run(capfd, *words, "--json")
    document = json.loads(out)
    validate(document, schema)
    return code, document


def test_names_on_the_command_line_are_those_that_ship() -> None:
    assert SPELLED == POLICY_NAMES


def test_init_writes_a_policy_that_checks_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capfd, "init")
    assert (code, err) == (0, "")
    assert "policy.toml: policy policy, as default" in out
    text = Path("policy.toml").read_text()
    assert text.replace('name = "policy"', 'name = "default"', 1) == named_policy("default").text
    code, out, err = run(capfd, "check", "policy.toml")
    assert (code, err) == (0, "")
    assert "no problem" in out
    code, out, err = run(capfd, "init", "--from", "gopher")
    assert (code, out) == (2, "")
    assert "is there already" in err
    assert Path("policy.toml").read_text() == text
    code, written = asked(capfd, "init", "-o", "g.toml", "--from", "gopher", schema="policy-init")
    assert code == 0
    assert (written["name"], written["based_on"], written["path"]) == ("g", "gopher", "g.toml")
    code, checked = asked(capfd, "check", "g.toml", schema="policy-check")
    assert (code, checked["digest"]) == (0, written["digest"])
    code, out, err = run(capfd, "init", "-o", "a b.toml")
    assert (code, out) == (2, "")
    assert "no name of a policy" in err
    assert not Path("a b.toml").exists()


def test_check_tells_every_problem_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(
        '[[rules]]\nname = "a"\nsignal = "byte_entrpy"\nbelow = 2\naction = "flag"\n'
        '[[rules]]\nname = "a"\nsignal = "digit_fraction"\nabove = 1.5\naction = "flag"\n'
    )
    code, out, err = run(capfd, "check", "p.toml")
    assert (code, err) == (2, "")
    first, second, third, total = out.splitlines()
    assert first == "line 3, rule 'a': there is no signal 'byte_entrpy'; did you mean byte_entropy?"
    assert second.startswith("line 7, rule 'a': two rules have this name, the other on line 2")
    assert third.startswith("line 9, rule 'a': above 1.5 lies outside of what digit_fraction can be")
    assert total == "p.toml: 3 problems"
    code, checked = asked(capfd, "check", "p.toml", schema="policy-check")
    assert (code, checked["ok"], checked["digest"]) == (2, False, None)
    assert [(each["line"], each["kind"]) for each in checked["problems"]] == [
        (3, "unknown-signal"), (7, "doubled-name"), (9, "out-of-range"),
    ]  # fmt: skip
    code, out, err = run(capfd, "check", "missing.toml")
    assert (code, out) == (2, "")
    assert "there is no policy 'missing.toml'" in err


def test_check_against_a_manifest(corpus: Path, capfd: Capture) -> None:
    code, checked = asked(capfd, "check", "default", "--manifest", "M.parquet", schema="policy-check")
    assert (code, checked["ok"], checked["sources"]) == (0, True, ["ids", "web"])
    assert sorted(each["where"] for each in checked["remarks"]) == [
        "rule 'length_outlier'", "rule 'out_of_vocabulary'", "rule 'token_entropy'",
    ]  # fmt: skip
    Path("p.toml").write_text(
        '[[rules]]\nname = "a"\nsignal = "digit_fraction"\nabove = 0.5\naction = "flag"\nsources = ["wbe"]\n'
    )
    assert run(capfd, "check", "p.toml")[0] == 0
    code, out, _ = run(capfd, "check", "p.toml", "--manifest", "M.parquet")
    assert code == 2
    assert "line 1, rule 'a': no source is called 'wbe'" in out
    assert "did you mean web?" in out


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_explain_says_what_a_policy_means(name: str, capfd: Capture) -> None:
    code, shown = asked(capfd, "explain", name, schema="policy-explain")
    assert code == 0
    policy = named_policy(name)
    every = [*policy.rules, *policy.batch_rules, *policy.shard_rules]
    assert [rule["rule"] for rule in shown["rules"]] == [rule.name for rule in every]
    code, out, err = run(capfd, "explain", name)
    assert (code, err) == (0, "")
    for rule in every:
        assert rule.name in out
        assert rule.text in out


def test_explain_shows_every_signal_of_a_record_beside_the_rules(corpus: Path, capfd: Capture) -> None:
    words = ("explain", "default", "--manifest", "M.parquet", "--shard", "web/a.jsonl", "--row", "2")
    code, answer = asked(capfd, *words, schema="policy-explain")
    assert code == 0
    assert (answer["shard"], answer["row"], answer["source"], answer["kind"]) == ("web/a.jsonl", 2, "web", "text")
    assert (answer["length"], answer["verdict"], answer["mask_spans"]) == (2005, "mask", None)
    assert "byte_periods" in answer["fired"]
    values = {each["signal"]: each for each in answer["signals"]}
    assert values["byte_periodic_repeats"]["value"] == 500
    assert values["byte_periodic_repeats"]["spans"] == [[5, 2005]]
    assert values["byte_periodic_repeats"]["rules"] == ["byte_periods"]
    assert values["length_outlier"]["value"] is None
    assert "--profile" in values["length_outlier"]["why"]
    states = {each["rule"]: each["state"] for each in answer["rules"]}
    assert (states["byte_periods"], states["digits"], states["token_periods"]) == ("fired", "quiet", "skipped")
    code, out, err = run(capfd, *words)
    assert (code, err) == (0, "")
    assert "verdict mask: byte_periods" in out
    assert "\x1b" not in out
    for each in answer["signals"]:
        assert each["signal"] in out


def test_explain_by_a_profile(corpus: Path, capfd: Capture) -> None:
    import numpy as np

    builder = ProfileBuilder()
    builder.add("web", {"length_bytes": np.array([90, 100, 110])})
    Path("profile.json").write_bytes(encode_profile(builder.profile()))
    record = ("--manifest", "M.parquet", "--shard", "web/a.jsonl", "--row", "2")
    code, answer = asked(capfd, "explain", "default", *record, "--profile", "profile.json", schema="policy-explain")
    assert code == 0
    assert "length_outlier" in answer["fired"]
    code, _, err = run(capfd, "explain", "default", *record, "--profile", "none.json")
    assert code == 2
    assert "none.json cannot be read" in err
    check = ("check", "default", "--manifest", "M.parquet", "--profile", "profile.json", "--vocab-size", "300")
    assert asked(capfd, *check, schema="policy-check")[1]["remarks"] == []
    assert run(capfd, "check", "default", "--profile", "profile.json")[0] == 2
    Path("profile.json").write_bytes(b"{}")
    assert run(capfd, "explain", "default", *record, "--profile", "profile.json")[0] == 3


def test_explain_a_window_of_tokens(corpus: Path, capfd: Capture) -> None:
    record = ("--manifest", "M.parquet", "--shard", "ids/t.npy", "--row", "1", "--seq-len", "100")
    code, answer = asked(capfd, "explain", "olmo", *record, schema="policy-explain")
    assert code == 0
    assert (answer["kind"], answer["length"], answer["verdict"]) == ("tokens", 100, "mask")
    assert answer["mask_spans"] == [[0, 40]]
    code, out, _ = run(capfd, "explain", "olmo", *record)
    assert code == 0
    assert "masked positions: 0:40" in out
    assert "mask its span" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--shard", "web/a.jsonl", "--row", "2"), 2, "--manifest is missing"),
        (("--manifest", "M.parquet"), 2, "--shard and --row are missing"),
        (("--manifest", "M.parquet", "--shard", "web/b.jsonl", "--row", "2"), 2, "no shard is called"),
        (("--manifest", "M.parquet", "--shard", "web/a.jsonl", "--row", "3"), 2, "row 3 is not in shard"),
        (("--manifest", "M.parquet", "--shard", "web/a.jsonl", "--row", "1"), 3, "is rejected"),
        (("--manifest", "M.parquet", "--shard", "ids/t.npy", "--row", "0"), 2, "which window"),
        (("--manifest", "M.parquet", "--shard", "ids/t.npy", "--row", "2", "--seq-len", "100"), 2, "window 2"),
        (("--manifest", "M.parquet", "--shard", "web/a.jsonl", "--row", "0", "--seq-len", "8"), 2, "holds text"),
    ],
)
def test_records_that_cannot_be_explained(
    corpus: Path, capfd: Capture, words: tuple[str, ...], code: int, told: str
) -> None:
    ended, out, err = run(capfd, "explain", "olmo", *words)
    assert (ended, out) == (code, "")
    assert told in err


def test_a_shard_that_is_gone_is_an_input_error(corpus: Path, capfd: Capture) -> None:
    Path("web/a.jsonl").unlink()
    code, out, err = run(capfd, "explain", "default", "--manifest", "M.parquet", "--shard", "web/a.jsonl", "--row", "0")
    assert (code, out) == (3, "")
    assert "missing" in err


def test_the_schema_of_a_policy_accepts_those_that_ship_and_not_a_misspelt_one() -> None:
    import tomllib

    import jsonschema

    for name in POLICY_NAMES:
        validate(tomllib.loads(named_policy(name).text), "policy")
    with pytest.raises(jsonschema.ValidationError):
        validate({"rules": [{"name": "a", "action": "flag", "signall": "x"}]}, "policy")
