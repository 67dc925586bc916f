"""Make the goldens of the record's formats: frames, and a sealed index file.

Run once for each version of a format, never again: what it made is committed, and reading it is law. A change of a
format is a new version, a new folder beside this one, and the old folder stays readable.

    python -m tests.golden.make_record FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from dataguard.run.exceptions import ExceptionReason, exception_record
from dataguard.run.layout import Layout
from dataguard.run.records import with_rank
from tests.run.recording import microbatch, open_writer

STEPS = range(40, 46)


def make(folder: Path) -> None:
    """Write ``frames-v1`` and ``index-v1`` under a folder."""
    run = folder / "run"
    layout = Layout(run)
    hot = open_writer(run, rank=2, first_step=40)
    sealed = open_writer(run, rank=3, first_step=40)
    for step in STEPS:
        for writer in (hot, sealed):
            writer.append(microbatch(step, rank=writer.rank, num_ranks=4))
    unreadable, changed = ExceptionReason.UNREADABLE, ExceptionReason.CHANGED
    sealed.append_exception(exception_record(step=41, position=655, reason=unreadable))
    sealed.append_exception(
        exception_record(step=45, position=720, reason=changed, draw=2, delivered_shard=7, delivered_row=99)
    )
    hot.close(seal=False)
    sealed.close()
    frames, index = folder / "frames-v1", folder / "index-v1"
    for target in (frames, index):
        target.mkdir(exist_ok=True)
    shutil.copyfile(layout.hot_segment(1, 2, 40), frames / "index.frames")
    shutil.copyfile(layout.exceptions(1, 3), frames / "exceptions.frames")
    shutil.copyfile(layout.seals(1, 3), frames / "seals.frames")
    shutil.copyfile(layout.sealed(1, 3, 40, 46), index / "sealed.parquet")
    shutil.copyfile(layout.notable(1, 40, 46, rank=3), index / "notable.parquet")
    for target, rank in ((frames, 2), (index, 3)):
        records = [with_rank(microbatch(step, rank=rank, num_ranks=4), rank) for step in STEPS]
        rows = [
            {
                name: value.hex() if isinstance(value, bytes) else value
                for name, value in zip(part.dtype.names, row, strict=True)
            }
            for part in records
            for row in part.tolist()
        ]
        (target / "expected.json").write_text(json.dumps(rows, indent=0) + "\n")
    shutil.rmtree(run)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
