"""``dataguard init``: what it finds and writes, and that each script runs as it was written, and goes on."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.cli.frameworks import FRAMEWORKS, Found, find_framework
from dataguard.cli.main import main
from dataguard.cli.starting import script_text
from dataguard.gate.policy import named_policy
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.events import CheckpointSaved, SpikeFound
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.architecture.validation import validate
from tests.cli.started import run_all
from tests.corpus.making import jsonl, npy
from tests.examples.running import ENVIRONMENT
from tests.support.lineage import delivered, lineage

Capture = pytest.CaptureFixture[str]

KILLED_AT, NUM_STEPS = 2, 4
GLOBAL_BATCH = 16
STARTED = [*FRAMEWORKS, "torch_tokens", "none_tokens"]
NEEDED = {"torch": ["torch"], "hf": ["torch", "transformers", "accelerate"], "lightning": ["torch", "lightning"],
          "accelerate": ["torch", "accelerate"], "none": []}  # fmt: skip


def init(*words: str | Path) -> int:
    return main(["init", *map(str, words)])


def can_run(name: str) -> bool:
    return all(find_spec(package) is not None for package in NEEDED[name.partition("_")[0]])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each framework, begun with ``init``, run to one step and then to another."""
    root = tmp_path_factory.mktemp("started")
    words = "the quick brown fox jumps over the lazy dog; "
    for shard in range(2):
        jsonl(
            root / f"data/web/{shard}.jsonl",
            [f"record {row} of {shard}: " + words * (1 + row % 5) for row in range(60)],
        )
    npy(root / "data/ids/t.npy", np.arange(64 * 128) * 7919 % 50_000)
    names = [name for name in STARTED if can_run(name)]
    for name in names:
        source = "ids=" + str(root / "data/ids") if name.endswith("_tokens") else "web=" + str(root / "data/web")
        assert init(root / f"in_{name}", source, "--framework", name.partition("_")[0]) == 0
    told = run_all(root, [f"in_{name}" for name in names], [KILLED_AT, NUM_STEPS])
    assert told.count("kept step-") == 2 * len([name for name in names if name != "hf"])
    return root


@pytest.fixture(params=STARTED)
def run(request: pytest.FixtureRequest, root: Path) -> Run:
    if not can_run(request.param):
        pytest.skip("its packages are not installed; install dataguard[test]")
    return Run.open(root / f"in_{request.param}" / "runs" / "first")


def test_each_script_goes_on_where_it_stood(run: Run) -> None:
    assert [attempt.fork_step for attempt in lineage(run.path)] == [0, KILLED_AT]
    samples = delivered(run.path)
    assert [sample[:2] for sample in samples] == [(step, slot) for step in range(4) for slot in range(GLOBAL_BATCH)]


def test_what_each_script_was_fed_is_verified(run: Run) -> None:
    answer = verify_run(Lookup(run))
    assert answer.ok, [fault for check in answer.checks for fault in check.faults]
    assert all(check.checked for check in answer.checks)


def test_each_script_is_judged_by_the_policy_beside_it(run: Run) -> None:
    policy = (run.path.parents[1] / "policy.toml").read_text()
    assert run.begun(2).policy_name == "policy"
    assert (run.path / "policy" / f"{run.begun(2).policy}.toml").read_text() == policy


def test_each_script_logs_every_step_and_names_its_checkpoints(run: Run) -> None:
    rows = telemetry_of_lineage(run, names=["loss"])
    assert rows["step"].tolist() == [0, 1, 2, 3]
    assert np.isfinite(rows["value"]).all()
    assert (rows["value"] > 0).all()
    entries = run.read().entries
    saved = [event for _, event in noted(entries, CheckpointSaved)]
    assert [event.next_step for event in saved] == [KILLED_AT, NUM_STEPS]
    assert all(Path(event.path).exists() for event in saved)
    assert noted(entries, SpikeFound) == []


def test_a_script_is_run_as_it_is_told_to_be(root: Path) -> None:
    """As the answer says, from another folder; and once its checkpoints are gone it begins anew."""
    folder = root / "typed"
    assert init(folder, f"web={root / 'data/web'}", "--framework", "none") == 0
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", folder / "train_with_dataguard.py", "--steps", "2"],
            env=ENVIRONMENT,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("step 1: loss ")
        (folder / "checkpoints" / "step-000000002.npz").unlink()
    tree = Run.open(folder / "runs" / "first").attempts()
    assert [(tree.attempt(number).parent, tree.attempt(number).fork_step) for number in tree.numbers] == [
        (None, 0),
        (1, 0),
    ]


# -- what is written, and said


def asked(capfd: Capture, *words: str | Path) -> Any:
    capfd.readouterr()
    assert init(*words, "--json") == 0
    document = json.loads(capfd.readouterr().out)
    validate(document, "init")
    return document


def test_without_data_it_says_to_build_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = asked(capfd)
    assert answer["wrote"] == ["policy.toml", "train_with_dataguard.py"]
    assert (answer["manifest"], answer["kind"]) == (None, "text")
    assert answer["next"][0] == "dataguard manifest build NAME=PATH ... -o M.parquet"
    assert Path("policy.toml").read_text().replace('"policy"', '"default"', 1) == named_policy("default").text
    assert 'MANIFEST = HERE / "M.parquet"  # FILL IN' in Path("train_with_dataguard.py").read_text()
    assert main(shlex.split(answer["next"][1])[1:]) == 0


def test_a_manifest_says_which_form_the_samples_have(tmp_path: Path, capfd: Capture) -> None:
    npy(tmp_path / "ids/t.npy", range(1000))
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    assert main(["manifest", "build", str(tmp_path / "ids"), "-o", str(tmp_path / "T.parquet")]) == 0
    answer = asked(capfd, tmp_path / "new", "--manifest", tmp_path / "T.parquet", "--framework", "torch")
    assert answer["kind"] == "tokens"
    text = Path(answer["script"]).read_text()
    assert 'form="window"' in text
    assert f'MANIFEST = "{tmp_path}/T.parquet"' in text
    both = [str(tmp_path / name) for name in ("ids", "web")]
    assert main(["manifest", "build", *both, "-o", str(tmp_path / "B.parquet")]) == 0
    assert init(tmp_path / "both", "--manifest", tmp_path / "B.parquet") == 2
    assert "a plan is of one kind" in capfd.readouterr().err
    assert not (tmp_path / "both").exists()


def test_a_manifest_that_stands_there_is_what_the_script_reads(tmp_path: Path, capfd: Capture) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    assert main(["manifest", "build", str(tmp_path / "web"), "-o", str(tmp_path / "M.parquet")]) == 0
    answer = asked(capfd, tmp_path)
    assert answer["manifest"] == str(tmp_path / "M.parquet")
    assert answer["remarks"] == [f"{tmp_path}/M.parquet stands there, so it is what the script reads"]


@pytest.mark.parametrize("name", ["policy.toml", "train_with_dataguard.py", "M.parquet"])
def test_nothing_that_stands_is_overwritten(name: str, tmp_path: Path, capfd: Capture) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / name).write_text("mine")
    assert init(folder, f"web={tmp_path}/web") == 2
    assert f"{folder / name} stands already" in capfd.readouterr().err
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "mine"


def test_a_manifest_and_paths_are_not_both_taken(tmp_path: Path, capfd: Capture) -> None:
    assert init(tmp_path, "web=x", "--manifest", "M.parquet") == 2
    assert "cannot both be given" in capfd.readouterr().err


def test_paths_may_come_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    monkeypatch.chdir(tmp_path)
    answer = asked(capfd, "web=web", "more=web")
    assert answer["folder"] == "."
    assert answer["wrote"] == ["M.parquet", "policy.toml", "train_with_dataguard.py"]
    (tmp_path / "a=b").mkdir()
    assert asked(capfd, "a=b")["folder"] == "a=b"


def test_a_field_of_another_name_is_told(tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web/a.jsonl").write_text('{"content": "one"}\n' * 3)
    answer = asked(capfd, tmp_path / "new", f"web={tmp_path}/web")
    assert any("content" in remark and "--text-field" in remark for remark in answer["remarks"])


@pytest.mark.parametrize(
    "name", ["a\"b'c.parquet", "new\nline.parquet", "{{ x }}.parquet", "\\d.parquet", "é😀.parquet"]
)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_whatever_a_manifest_is_called_the_script_names_it(name: str, framework: str, tmp_path: Path) -> None:
    found = Found(framework=framework, why="", package="lightning" if framework == "lightning" else "")
    for manifest, expected in (
        (str(tmp_path / name), f"HERE / {name!r}"),
        (f"/elsewhere/{name}", repr(f"/elsewhere/{name}")),
    ):
        text = script_text(found, kind="text", manifest=manifest, folder=tmp_path)
        compile(text, "script", "exec")
        (line,) = [line for line in text.splitlines() if line.startswith("MANIFEST = ")]
        assert eval(line.partition(" = ")[2], {"HERE": Path("x")}) == eval(expected, {"HERE": Path("x")})


# -- which framework


@pytest.mark.parametrize(
    ("files", "framework", "why"),
    [
        ({"a.py": "import torch\n"}, "torch", "a.py imports it"),
        ({"a.py": "import torch\n", "b.py": "  from accelerate import Accelerator\n"}, "accelerate", "b.py imports it"),
        ({"a.py": "import lightning as L\nfrom transformers import Trainer\n"}, "lightning", "a.py imports it"),
        ({"a.py": "from pytorch_lightning import Trainer\n"}, "lightning", "a.py imports it"),
        ({"a.py": "from transformers import AutoTokenizer\nimport torch\n"}, "torch", "a.py imports it"),
        ({"a.py": "from transformers import (\n    Trainer,\n)\n"}, "hf", "a.py imports it"),
        ({"a.py": "import jax\nimport flax\n"}, "none", "a.py imports flax, jax"),
        (
            {"a.py": "# import torch\n", "requirements.txt": "torch>=2\ntransformers\n"},
            "torch",
            "requirements.txt names it",
        ),
        ({"requirements-gpu.txt": "transformers==5\naccelerate\n"}, "hf", "requirements-gpu.txt names it"),
        (
            {"pyproject.toml": 'dependencies = [\n  "numpy",\n  "lightning>=2",\n]\n'},
            "lightning",
            "pyproject.toml names it",
        ),
    ],
)
def test_the_framework_of_a_folder(files: dict[str, str], framework: str, why: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = find_framework(tmp_path)
    assert (found.framework, found.why) == (framework, why)
    if framework == "lightning":
        assert found.package == ("pytorch_lightning" if "pytorch_lightning" in files.get("a.py", "") else "lightning")


@pytest.mark.parametrize(
    ("there", "framework"),
    [
        (("torch",), "torch"),
        (("torch", "transformers"), "torch"),
        (("torch", "transformers", "accelerate"), "hf"),
        (("torch", "accelerate"), "accelerate"),
        (("torch", "transformers", "accelerate", "pytorch_lightning"), "lightning"),
        ((), "none"),
    ],
)
def test_without_scripts_it_is_what_is_installed(
    there: tuple[str, ...], framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataguard.cli.frameworks.find_spec", lambda name: name if name in there else None)
    assert find_framework(tmp_path).framework == framework


def test_what_a_script_needs_and_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setattr("dataguard.cli.frameworks.find_spec", lambda name: "torch" if name == "torch" else None)
    assert asked(capfd, tmp_path / "a", "--framework", "hf")["lacking"] == ["transformers", "accelerate"]
    assert asked(capfd, tmp_path / "b", "--framework", "lightning")["lacking"] == ["lightning"]
    assert asked(capfd, tmp_path / "c")["lacking"] == []


def test_looking_for_frameworks_imports_none(tmp_path: Path) -> None:
    code = (
        "import sys; from dataguard.cli.main import main\n"
        f"assert main(['init', {str(tmp_path / 'new')!r}]) == 0\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'torch', 'transformers', 'accelerate', 'lightning', 'numba', 'polars', 'pyarrow'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
