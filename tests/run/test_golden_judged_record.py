"""What version 2 of the index record wrote, verdicts and signals with it, stays readable, value for value."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from dataguard.run.columns import FileName, read_identity, read_records
from dataguard.run.frames import FramesHeader, scan_frames
from dataguard.run.headline import SCALES_VERSION, decode
from dataguard.run.records import headline_fields, notable, signal_fields
from tests.run.recording import DIGESTS, HEAD, HEADLINE, JUDGED_RECORD, RUN_ID, SIGNALS, judged_microbatch

GOLDEN = Path(__file__).parents[1] / "golden"


def rows(records: np.ndarray) -> list[dict[str, Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.hex()
        return None if isinstance(value, float) and math.isnan(value) else value

    return [
        {name: plain(value) for name, value in zip(records.dtype.names, row, strict=True)} for row in records.tolist()
    ]


def expected(folder: str, *, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    entries = json.loads((GOLDEN / folder / "expected.json").read_text())
    return [{name: value for name, value in entry.items() if name not in without} for entry in entries]


def test_index_frames() -> None:
    scan = scan_frames(GOLDEN / "frames-v2" / "index.frames", "index")
    assert (scan.num_frames, scan.torn_bytes, scan.damage) == (6, 0, ())
    assert rows(scan.records) == expected("frames-v2", without=("rank",))
    assert scan.header is not None
    assert (scan.header.version, scan.header.record_version, scan.header.scales) == (1, 2, 1)
    assert (headline_fields(scan.records.dtype), signal_fields(scan.records.dtype)) == (HEADLINE, SIGNALS)


def test_exceptions_say_which_rows_failed() -> None:
    scan = scan_frames(GOLDEN / "frames-v2" / "exceptions.frames", "exceptions")
    assert scan.records.tolist() == [(41, 655, 1, -1, -1, -1, 1), (45, 720, 2, 2, 7, 99, 6)]
    assert scan.header is not None
    assert scan.header.record_version == 2


def test_sealed_and_notable_files() -> None:
    name = FileName(kind="sealed", run_id=RUN_ID, attempt=1, rank=3, first=40, stop=46)
    records = read_records(GOLDEN / "index-v2" / "sealed.parquet", name)
    assert rows(records) == expected("index-v2")
    identity = read_identity(GOLDEN / "index-v2" / "notable.parquet")
    assert (identity.version, identity.headline, identity.signals, identity.scales) == (2, HEADLINE, SIGNALS, 1)
    name = FileName(kind="notable", run_id=RUN_ID, attempt=1, rank=3, first=40, stop=46)
    assert rows(read_records(GOLDEN / "index-v2" / "notable.parquet", name)) == rows(records[notable(records)])


def test_the_record_of_this_version_is_that_of_the_golden() -> None:
    """Whoever changes the record or a scale gives it a new version and a new golden."""
    first = (GOLDEN / "frames-v2" / "index.frames").read_bytes()[:4096]
    again = FramesHeader.of(
        "index", records_per_frame=4, run_id=RUN_ID, attempt=1, rank=2, first_step=40, digests=DIGESTS,
        journal_head=HEAD, created="2026-01-02T03:04:05Z", record=JUDGED_RECORD,
    )  # fmt: skip
    assert again.encode() == first
    assert SCALES_VERSION == 1
    scan = scan_frames(GOLDEN / "frames-v2" / "index.frames", "index")
    assert scan.records[:4].tobytes() == judged_microbatch(40, rank=2, num_ranks=4).tobytes()


def test_what_the_bytes_of_scales_1_say() -> None:
    told = {name: decode(name, [1, 2, 64, 128, 200, 255]).round(6).tolist() for name in HEADLINE}
    assert told == {
        "length_outlier": [-16.0, -15.874016, -8.062992, 0.0, 9.070866, 16.0],
        "byte_entropy": [0.0, 0.031496, 1.984252, 4.0, 6.267717, 8.0],
        "dup_5gram_char_fraction": [0.0, 0.003937, 0.248031, 0.5, 0.783465, 1.0],
        "byte_periodic_repeats": [0.0, 1.0, 116.296195, 15767.475069, 3948965.897275, 268435456.0],
        "nontext_fraction": [0.0, 6.1e-05, 0.000658, 0.007664, 0.121289, 1.0],
    }
