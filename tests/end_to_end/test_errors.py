"""What goes wrong for people, over all commands: the code of the design, one to four lines, and what to do next."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli.main import COMMANDS, main

PLAN = "plan M.parquet --seed 7 --global-batch 4"
SPAN = ("5:5", "5:3", "-1:2", "x", "5:", "1.5")

WRONG: dict[int, list[str]] = {
    2: [
        # ---- missing, or of another kind ----
        *(f"{command} nowhere" for command in ("manifest show", "manifest verify", "plan --seed 7 --global-batch 4")),
        *("manifest show RUN", "manifest verify RUN", "manifest show empty", f"{PLAN.replace('M.parquet', 'RUN')}"),
        *("manifest build nowhere -o X", "manifest build empty -o X", "manifest build web -o empty"),
        *("audit nowhere -o A", "audit empty -o A", "audit M.parquet -o RUN", "audit M.parquet -o A --policy nope"),
        *("policy check nowhere.toml", "policy check RUN", "policy explain nope", "policy check M.parquet"),
        *("report nowhere -o r.html", "report empty -o r.html", "report empty -o empty"),
        *(
            f"{name} {what}"
            for name in ("log", "verify", "seal", "compact")
            for what in ("nowhere", "empty", "M.parquet")
        ),
        *(f"{name} --step 3" for name in ("inspect nowhere", "inspect M.parquet", "replay M.parquet", "seen empty")),
        *("where M.parquet web/a.jsonl:1", "triage M.parquet", "store list garbage.txt", "store show nowhere --step 1"),
        *("telemetry import RUN nowhere", "telemetry import M.parquet empty.csv", "telemetry show nowhere"),
        *("telemetry import RUN empty", "spikes nowhere", "spikes empty", "spikes RUN", "preflight nowhere"),
        *("preflight garbage.txt", "preflight empty", "canary nowhere --compare", "canary RUN --compare"),
        *("rehearse nowhere --run R --seed 7 --global-batch 4 --steps 3", "rehearse --run R --steps 3"),
        "rehearse RUN --run R --seed 7 --global-batch 4 --steps 3",
        # ---- ranges and numbers ----
        *(f"{PLAN} --step={span}" for span in SPAN),
        *(f"inspect RUN --step={span}" for span in SPAN),
        *(f"skip RUN --reason x -- {span}" for span in SPAN),
        *("skip RUN -1:2 --reason x", "skip RUN 5 --reason x", "telemetry show RUN --step 5:5"),
        *("inspect RUN --step 70", "inspect RUN --batch 1000", "replay RUN --step 70", "seen RUN --step 1000"),
        *(
            "store show RUN --step 1000",
            "rehearse --run RUN --steps 3 --from-step 100",
            "inspect RUN --step 1 --rank 9",
        ),
        *(
            "inspect RUN --step 3 --attempt 9",
            "verify RUN --attempt 9",
            "triage RUN --attempt 9",
            "where RUN web/a.jsonl:99",
        ),
        *("where RUN web/a.jsonl:x", "where RUN web/a.jsonl:-1", "revoke RUN 99", "revoke RUN 1", "revoke RUN x"),
        *("revoke RUN 0", "seen RUN --step x", f"{PLAN} --seed x", f"{PLAN} --lanes 3", f"{PLAN} --world-size 3"),
        *(f"{PLAN} --rank 0", f"{PLAN} --world-size 2 --rank 2", "rehearse --run RUN --steps 0"),
        *(
            "audit M.parquet -o A --sample 200%",
            "audit M.parquet -o A --sample x",
            "manifest build web --workers 0 -o X",
        ),
        # ---- names nobody knows ----
        *("where RUN nope:3", "quarantine RUN nope --reason x", "release RUN nope", "release RUN web/a.jsonl"),
        *("inspect RUN --step 3 --root nope=x", "manifest verify M.parquet --root nope=x", f"{PLAN} --weight nope=1"),
        *(f"{PLAN} --weight web=x", f"{PLAN} --weight web=-1", "manifest verify M.parquet --root web", "schema nope"),
        *("telemetry show RUN --name nope", "log RUN --stream nope", "manifest build web --format nope -o X"),
        *("manifest build web --dtype nope -o X", "rehearse --run RUN --steps 3 --store nope", "completion tcsh"),
        *(
            "spikes garbage.txt --profile nope",
            "replay RUN --step 3 --transform nope:nope",
            "replay RUN --step 3 --transform x",
        ),
        *("canary RUN --load nope:f --loss nope:f", "policy init --from nope", "audit M.parquet -o A --engine nope"),
        *("inspct", "store lst", "manifest nope", "--nope", "inspect RUN --stepp 3"),
        # ---- what does not go together, or is missing ----
        *("inspect", "inspect RUN", "inspect RUN --step 3 --batch 4", "plan M.parquet", "rehearse M.parquet --run R"),
        *("skip RUN 40:45", "skip RUN 40:45 --reason ''", "quarantine RUN --reason x", "where RUN web", "seen RUN"),
        *("store prune RUN", "store show RUN", "canary RUN", "canary RUN x", "preflight", "preflight RUN --template"),
        *(
            "triage RUN --dry-run",
            "triage RUN --checkpoint x",
            "telemetry import RUN empty.csv --map x",
            "spikes a b c",
        ),
        *("policy explain default --manifest M.parquet", "policy check default --vocab-size 5", "manifest build web"),
        *("manifest build web --scan-timeout-seconds 5 -o X", "audit M.parquet -o A --ray-address x:1"),
        *("audit M.parquet -o A --fail-on drift", "rehearse --run RUN --steps 3 --lanes 8", "schema plan --write x"),
        *(
            "policy init -o garbage.txt",
            "report empty -o garbage.txt",
            "demo --keep RUN",
            "rehearse M.parquet --run RUN --seed 8 --global-batch 4 --steps 1",
        ),
        *("manifest build web -o /dev/full", "triage RUN --experiment nope"),
        *("watch nowhere --once", "watch M.parquet --once", "init mine --framework nope"),
    ],
    3: [
        *("manifest show garbage.txt", "manifest verify garbage.txt", f"{PLAN.replace('M.parquet', 'garbage.txt')}"),
        *(
            f"{PLAN} --withhold nowhere",
            f"{PLAN} --withhold garbage.txt",
            "quarantine RUN --withhold nowhere --reason x",
        ),
        *(
            "audit M.parquet -o A --profile nowhere",
            "audit M.parquet -o A --profile garbage.txt",
            "preflight M.parquet",
        ),
        *(
            "audit M.parquet -o A --baseline garbage.txt",
            "telemetry import RUN garbage.txt",
            "telemetry import RUN empty.csv",
        ),
        *("spikes garbage.txt", "spikes empty.csv", "spikes M.parquet", "triage RUN --evidence nowhere"),
        *("canary RUN --compare garbage.txt", "preflight RUN --facts nowhere"),
    ],
    4: [
        *("audit M.parquet -o garbage.txt", "replay RUN --step 3 -o garbage.txt", "schema --write garbage.txt"),
        *(
            "warmup --cache-dir garbage.txt",
            "seen RUN --step 3 --rows /dev/full",
            "seen RUN --step 3 --rows garbage.txt/x",
        ),
        *("replay RUN --step 3 -o /dev/full", "audit M.parquet -o /dev/full", "schema --write /dev/full"),
    ],
}
CASES = [(line, code) for code, lines in WRONG.items() for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, its manifest, a run, and things that are none of them."""
    base = tmp_path_factory.mktemp("wrong")
    (base / "web").mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"text": f"record {row} of {name}"}) + "\n" for row in range(40)]
        (base / "web" / f"{name}.jsonl").write_text("".join(lines))
    (base / "empty").mkdir()
    (base / "empty.csv").write_text("step,loss\n")
    (base / "garbage.txt").write_text("garbage\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        assert main(shlex.split("manifest build web=web -o M.parquet")) == 0
        made = f"{PLAN.replace('plan', 'rehearse')} --run RUN --world-size 2 --microbatch-size 1 --steps 6"
        assert main(shlex.split(made)) == 0
    return base


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "code"), CASES, ids=[line for line, _ in CASES])
def test_an_error_says_what_to_do_next(folder, line, code, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    before = everything(folder)
    full = Path("/dev/full").stat().st_rdev
    assert main(shlex.split(line)) == code
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert lines[0].startswith("error: ")
    assert 1 <= len(lines) <= 4, told.err
    assert "Traceback" not in told.err
    assert "[Errno" not in told.err, "the system's words, not Python's"
    assert any(each.startswith(("  next: ", "  allowed: ")) for each in lines[1:]), told.err
    assert all(re.match(r"  (found|allowed|next): \S", each) for each in lines[1:]), told.err
    assert max(map(len, lines)) <= 340, told.err
    assert everything(folder) == before, "an error leaves nothing behind"
    assert Path("/dev/full").stat().st_rdev == full, "a device is still one"


def test_every_command_has_its_errors_tried() -> None:
    tried = {shlex.split(line)[0] for line, _ in CASES}
    assert {entry.name for entry in COMMANDS} <= tried


@pytest.mark.parametrize(
    "line",
    [
        "--debug inspect RUN --step 70",
        "inspect --debug RUN --step 70",
        "inspect RUN --step 70 --debug",
        "--debug manifest show nowhere",
        "manifest --debug show nowhere",
        "manifest show nowhere --debug",
        "--debug store lst",
        "skip RUN 5:3 --reason x --debug",
    ],
)
def test_debug_shows_the_traceback_wherever_it_stands(folder, line, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    plain = [word for word in shlex.split(line) if word != "--debug"]
    code = main(plain)
    without = capsys.readouterr().err
    assert main(shlex.split(line)) == code == 2
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert "Traceback" not in without
    assert told.splitlines()[-1] == without.splitlines()[-1]


def test_a_long_list_is_cut_and_counted(capsys) -> None:
    assert main(["schema", "nope"]) == 2
    told = capsys.readouterr().err
    assert re.search(r"allowed: amended, .* \.\.\. and \d+ more\n", told)
    assert main(["--debug", "schema", "nope"]) == 2
    assert "where" in capsys.readouterr().err.splitlines()[-1], "--debug shows all of it"


def test_many_problems_of_a_policy_are_told_in_four_lines(tmp_path, capsys) -> None:
    rules = [f'[[rule]]\nname = "r{n}"\nsignal = "no_such_{n}"\nmax = 1\naction = "flag"\n' for n in range(9)]
    (tmp_path / "p.toml").write_text("\n".join(rules))
    assert main(["policy", "explain", str(tmp_path / "p.toml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 4
    assert lines[-1].startswith("  next: ")


def test_no_permission(folder, tmp_path, monkeypatch, capsys) -> None:
    """Root may do everything, so there it is the system's refusal itself that is put in."""
    monkeypatch.chdir(folder)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.geteuid() == 0:
        inner = Path.open

        def refused(path: Path, *words: Any, **named: Any) -> Any:
            if closed in path.parents:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return inner(path, *words, **named)

        monkeypatch.setattr(Path, "open", refused)
    assert main(["seen", "RUN", "--step", "3", "--rows", str(closed / "rows.parquet")]) == 4
    told = capsys.readouterr().err
    assert "Permission denied" in told
    assert "  next: give this user" in told
