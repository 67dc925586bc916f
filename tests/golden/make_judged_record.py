"""Make the goldens of version 2 of the index record: frames and sealed files with verdicts and signals.

Run once, never again; see `tests.golden.make_record`.

    python -m tests.golden.make_judged_record FOLDER
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

from dataguard.run.exceptions import ExceptionReason, exception_record
from dataguard.run.layout import Layout
from dataguard.run.records import with_rank
from tests.run.recording import JUDGED_RECORD, judged_microbatch, open_writer

STEPS = range(40, 46)


def make(folder: Path) -> None:
    """Write ``frames-v2`` and ``index-v2`` under a folder."""
    run = folder / "run"
    layout = Layout(run)
    hot = open_writer(run, rank=2, first_step=40, record=JUDGED_RECORD)
    sealed = open_writer(run, rank=3, first_step=40, record=JUDGED_RECORD)
    for step in STEPS:
        for writer in (hot, sealed):
            writer.append(judged_microbatch(step, rank=writer.rank, num_ranks=4))
    sealed.append_exception(exception_record(step=41, position=655, reason=ExceptionReason.UNREADABLE, failed=1))
    sealed.append_exception(
        exception_record(
            step=45, position=720, reason=ExceptionReason.CHANGED, draw=2, delivered_shard=7, delivered_row=99,
            failed=0b110,
        )
    )  # fmt: skip
    hot.close(seal=False)
    sealed.close()
    frames, index = folder / "frames-v2", folder / "index-v2"
    for target in (frames, index):
        target.mkdir(exist_ok=True)
    shutil.copyfile(layout.hot_segment(1, 2, 40), frames / "index.frames")
    shutil.copyfile(layout.exceptions(1, 3), frames / "exceptions.frames")
    shutil.copyfile(layout.sealed(1, 3, 40, 46), index / "sealed.parquet")
    shutil.copyfile(layout.notable(1, 40, 46, rank=3), index / "notable.parquet")
    for target, rank in ((frames, 2), (index, 3)):
        records = [with_rank(judged_microbatch(step, rank=rank, num_ranks=4), rank) for step in STEPS]
        rows = [
            {name: _plain(value) for name, value in zip(part.dtype.names, row, strict=True)}
            for part in records
            for row in part.tolist()
        ]
        (target / "expected.json").write_text(json.dumps(rows, indent=0) + "\n")
    shutil.rmtree(run)


def _plain(value: Any) -> Any:
    """Digests as hexadecimal, a signal that is not kept as null."""
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    make(Path(sys.argv[1]))
