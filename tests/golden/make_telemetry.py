"""Make the golden of telemetry, version 1: a frames file, and what it holds.

Run once for each version of the format, never again: what it made is committed, and reading it is law.

    python -m tests.golden.make_telemetry FOLDER
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path

from dataguard.run.layout import Layout
from dataguard.run.telemetry import telemetry_records
from tests.run.recording import open_telemetry_writer

BEGAN_NS = 1_767_322_800_000_000_000


def make(folder: Path) -> None:
    """Write ``telemetry-v1`` under a folder."""
    run, target = folder / "run", folder / "telemetry-v1"
    expected = []
    with open_telemetry_writer(run, attempt=2, rank=3, first_step=40) as writer:
        for step in range(40, 44):
            time_ns = BEGAN_NS + step * 250_000_001
            loss = {41: math.nan, 42: math.inf, 43: -math.inf}.get(step, 2.5)
            values = {"loss": loss, "grad_norm": 1 / 3, "lr": 1e-3 / step, "grad_norm/Schicht.ä": 0.1, "n" * 64: -0.0}
            for names, numbers, slots in (
                (list(values), list(values.values()), [-1] * len(values)),
                (["loss"] * 2, [2.25, 2.75], [6, 7]),
            ):
                writer.append(telemetry_records(step, names, numbers, time_ns=time_ns, slots=slots))
                expected += [
                    [step, time_ns, name, slot, float(number).hex()]
                    for name, number, slot in zip(names, numbers, slots, strict=True)
                ]
    target.mkdir(exist_ok=True)
    shutil.copyfile(Layout(run).telemetry(2, 3), target / "telemetry.frames")
    (target / "expected.json").write_text(json.dumps(expected, indent=0, ensure_ascii=False) + "\n")
    shutil.rmtree(run)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
