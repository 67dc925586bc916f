"""What is typed is understood or refused, and what is refused leaves nothing in the way of the mended command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataguard.audit.mixture import parse_weights
from dataguard.audit.sample import parse_sample
from dataguard.cli.main import main
from dataguard.core.parse import exact_number
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.errors import DataguardError, PolicyError, UsageError
from tests.audit.making import PROSE, audit, corpus, policy_of
from tests.corpus.making import jsonl, npy

ELSEWHERE = '[[rules]]\nname = "few"\nsignal = "length_words"\nbelow = 2\naction = "mask"\nsources = ["nope"]\n'


@pytest.mark.parametrize(
    "asked", ["1e-99999999", "1E99999999", "1_0%", "%", "1%%", "\N{ARABIC-INDIC DIGIT FIVE}", "1" * 5000]
)
def test_a_number_that_nobody_means_is_refused_at_once(asked: str) -> None:
    """The exact value of 1e-99999999 takes minutes to write out."""
    with pytest.raises(UsageError, match="share"):
        parse_sample(asked)
    with pytest.raises(UsageError, match="weight"):
        parse_weights({"web": asked.replace("1" * 5000, "x")}, ["web"])
    assert exact_number(asked) is None


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (UsageError, {"weights": {"nope": "1"}}),
        (PolicyError, {"policy": policy_of(ELSEWHERE)}),
        (UsageError, {"sample": "0"}),
        (UsageError, {"roots": {"nope": "x"}}),
    ],
)
def test_what_was_refused_is_not_begun(
    tmp_path: Path, error: type[DataguardError], wrong: dict[str, Any], *, is_given: bool
) -> None:
    folder = corpus(tmp_path / "in") / "web"
    if is_given:
        build_manifest_file([str(folder)], tmp_path / "M.parquet")
    path = tmp_path / "M.parquet" if is_given else folder
    with pytest.raises(error):
        audit(tmp_path / "out", path, **wrong)
    assert not list(tmp_path.glob("out/*"))
    assert audit(tmp_path / "out", path).account.balanced


def test_what_was_begun_is_not_lost_by_a_refusal(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in") / "web"
    audit(tmp_path / "out", folder)
    before = sorted((tmp_path / "out").rglob("*"))
    with pytest.raises(UsageError):
        audit(tmp_path / "out", folder, resume=True, weights={"nope": "1"})
    with pytest.raises(UsageError, match="fail on"):
        audit(tmp_path / "out", folder, resume=True, fail_on=("flag",))
    assert sorted((tmp_path / "out").rglob("*")) == before


def test_a_manifest_is_audited_alone(tmp_path: Path) -> None:
    """Among paths it would be a damaged shard."""
    folder = corpus(tmp_path / "in") / "web"
    build_manifest_file([str(folder)], tmp_path / "M.parquet")
    with pytest.raises(UsageError, match="is a manifest, which is audited alone"):
        audit(tmp_path / "out", folder, tmp_path / "M.parquet")
    assert not (tmp_path / "out").exists()


def test_what_differs_is_told_in_words(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in") / "web"
    audit(tmp_path / "out", folder)
    scan = ScanOptions(block_bytes=1000, block_tokens=100, text_field="body")
    with pytest.raises(UsageError) as caught:
        audit(tmp_path / "out", tmp_path / "in/ids", resume=True, policy="olmo", vocab_size=9, scan=scan)
    error = caught.value
    assert error.found == f"paths {tmp_path}/in/ids; options of the scan text_field body; policy olmo; vocab size 9"
    assert error.allowed == f"paths {folder}; options of the scan text_field text; policy default; vocab size none"


def test_remarks_are_sentences(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE)
    npy(tmp_path / "in/ids/a.npy", list(range(3000)))
    audit(tmp_path / "first", tmp_path / "in/web")
    profile = tmp_path / "first/profile.json"
    jsonl(tmp_path / "in/code/a.jsonl", PROSE)
    summary = audit(tmp_path / "out", tmp_path / "in/code", tmp_path / "in/ids", profile=profile)
    told = [remark for remark in summary.remarks if "length_outlier" in remark]
    assert len(told) == 1
    assert told[0].startswith("policy default, line ")
    assert "the profile does not know the source: code" in told[0]
    assert any("out_of_vocabulary" in remark and "vocab size" in remark for remark in summary.remarks)
    assert not any("Problem(" in remark or "None" in remark for remark in summary.remarks)


def test_a_rule_that_had_nothing_to_judge_is_told(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE[:5])
    rules = "".join(
        f'[[rules]]\nname = "{name}"\n{what}\naction = "mask"\n'
        for name, what in (
            ("tokens", 'signal = "token_entropy"\nbelow = 1'),
            ("long", 'all = [{signal = "byte_entropy", below = 1}, {signal = "length_bytes", at_least = 9999}]'),
            ("text", 'signal = "byte_entropy"\nbelow = 1'),
        )
    )
    summary = audit(tmp_path / "out", tmp_path / "in/web", policy=policy_of(rules))
    assert (summary.verdict, [rule.evaluated for rule in summary.rules]) == ("pass", [0, 0, 5])
    (remark,) = summary.remarks
    assert remark == (
        "2 of 3 rules were evaluated on nothing: tokens (for another kind of source), long (every sample is too short)"
    )


def test_many_rules_that_had_nothing_to_judge_are_counted(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE[:5])
    names = [f"tokens_{number}" for number in range(6)]
    rules = "".join(
        f'[[rules]]\nname = "{name}"\nsignal = "token_entropy"\nbelow = 1\naction = "mask"\n' for name in names
    )
    rules += '[[rules]]\nname = "text"\nsignal = "byte_entropy"\nbelow = 1\naction = "mask"\n'
    summary = audit(tmp_path / "out", tmp_path / "in/web", policy=policy_of(rules))
    assert summary.remarks == ("6 of 7 rules were evaluated on nothing: 6 rules (for another kind of source)",)


def test_a_folder_inside_of_what_is_audited_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jsonl(tmp_path / "web/a.jsonl", PROSE)
    assert main(["audit", f"{tmp_path}/web", "-o", f"{tmp_path}/web/AUDIT", "--json"]) == 0
    assert "web/AUDIT lies in" in capfd.readouterr().err
    assert main(["audit", f"{tmp_path}/web/a.jsonl", "-o", f"{tmp_path}/other", "--json"]) == 0
    assert "lies in" not in capfd.readouterr().err
