"""Every example runs as its first lines say, and shows what it claims.

Those of a framework are run in tests/examples, `train.py` in test_train.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.architecture.tree import TOP

RUN_BY = {
    "accelerate_loop.py": "tests/examples/test_frameworks.py",
    "audit_on_ray.py": "tests/examples/test_audit_on_ray.py",
    "guard_accelerate.py": "tests/examples/test_frameworks.py",
    "guard_hf_trainer.py": "tests/examples/test_frameworks.py",
    "guard_lightning.py": "tests/examples/test_frameworks.py",
    "hf_trainer.py": "tests/examples/test_frameworks.py",
    "investigate.py": "tests/examples/test_investigate.py",
    "lightning_fit.py": "tests/examples/test_frameworks.py",
    "plain_loop.py": "tests/examples/test_frameworks.py",
    "rehearse_and_replay.py": "tests/end_to_end/test_examples.py",
    "texts.py": "examples/tiny.py",  # what the others share
    "tiny.py": "examples/train.py",
    "train.py": "tests/end_to_end/test_train.py",
}


def test_every_example_is_run_by_a_test() -> None:
    assert sorted(path.name for path in (TOP / "examples").glob("*.py")) == sorted(RUN_BY)
    assert [path.name for path in (TOP / "examples" / "ci").iterdir()] == ["data.yml"], "tests/examples/test_ci.py"
    for example, test in RUN_BY.items():
        assert example.removesuffix(".py") in (TOP / test).read_text(), f"{test} runs {example}"


def test_the_table_names_every_example_and_runs_it_as_its_first_lines_say() -> None:
    table = (TOP / "examples" / "README.md").read_text()
    assert {name.rpartition("/")[2] for name in re.findall(r"\]\((.*?)\)", table)} == {*RUN_BY, "data.yml"}
    rows = re.findall(r"^\| \[(.*\.py)\].* \| `(.*)` \| .* \|$", table, re.MULTILINE)
    assert {name for name, _ in rows} == {*RUN_BY} - {"texts.py", "tiny.py"}
    for name, command in rows:
        first_lines = (TOP / "examples" / name).read_text().partition("\n\nfrom __future__")[0]
        assert f"\n    {command.replace(name, f'examples/{name}')}" in first_lines


def run(name: str, *words: str) -> str:
    command = [sys.executable, "-P", "-W", "error", str(TOP / "examples" / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("num_steps", [10])
def test_rehearse_and_replay(tmp_path, num_steps) -> None:
    told = run("rehearse_and_replay.py", str(tmp_path / "new")).splitlines()
    assert told[0].endswith("holds 200 samples")
    assert told[1] == f"{num_steps * 2 * 2} microbatches were delivered and recorded"
    microbatches = [line.split() for line in told if line.startswith("step ") and line.endswith(" exact")]
    assert len({words[-2] for words in microbatches}) == 4, "four microbatches, four digests"
    slots = [
        re.fullmatch(r"  slot (\d): web/part-(\d).jsonl:(\d+) = 'record (\d+) of shard (\d)'", line) for line in told
    ]
    held = [match.groups() for match in slots if match]
    assert [int(slot) for slot, *_ in held] == list(range(8))
    for _, shard, row, told_row, told_shard in held:
        assert (told_shard, told_row) == (shard, row), "what was delivered is what stands at that address"
    assert told[-1] == "4 microbatches of step 6 are exact"
