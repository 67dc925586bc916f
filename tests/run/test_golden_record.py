"""What version 1 wrote stays readable, value for value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dataguard.plan.slots import SlotStatus
from dataguard.run.columns import FileName, read_identity, read_records
from dataguard.run.frames import FramesHeader, scan_frames
from dataguard.run.records import EXCEPTION_RECORD, INDEX_RECORD, SEAL_RECORD, notable
from dataguard.run.seal import Seal, file_sha256
from tests.run.recording import DIGESTS, HEAD, RUN_ID

GOLDEN = Path(__file__).parents[1] / "golden"
NAME = FileName(kind="sealed", run_id=RUN_ID, attempt=1, rank=3, first=40, stop=46)


def rows(records: np.ndarray) -> list[dict[str, object]]:
    return [
        {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in zip(records.dtype.names, row, strict=True)
        }
        for row in records.tolist()
    ]


def expected(folder: str, *, without: tuple[str, ...] = ()) -> list[dict[str, object]]:
    entries = json.loads((GOLDEN / folder / "expected.json").read_text())
    return [{name: value for name, value in entry.items() if name not in without} for entry in entries]


def test_index_frames() -> None:
    scan = scan_frames(GOLDEN / "frames-v1" / "index.frames", "index")
    assert (scan.num_frames, scan.torn_bytes, scan.damage) == (6, 0, ())
    assert rows(scan.records) == expected("frames-v1", without=("rank",))
    header = scan.header
    assert header is not None
    assert (header.run_id, header.attempt, header.rank, header.first_step) == (RUN_ID, 1, 2, 40)
    assert (header.digests, header.journal_head) == (DIGESTS, HEAD)


def test_exceptions_and_seals_frames() -> None:
    scan = scan_frames(GOLDEN / "frames-v1" / "exceptions.frames", "exceptions")
    assert scan.records.tolist() == [(41, 655, 1, -1, -1, -1), (45, 720, 2, 2, 7, 99)]
    scan = scan_frames(GOLDEN / "frames-v1" / "seals.frames", "seals")
    (seal,) = Seal.all_of(scan.records)
    assert (seal.first, seal.stop, seal.num_records) == (40, 46, 24)
    assert (seal.sha256, seal.size_bytes) == file_sha256(GOLDEN / "index-v1" / "sealed.parquet")


def test_sealed_and_notable_files() -> None:
    records = read_records(GOLDEN / "index-v1" / "sealed.parquet", NAME)
    assert rows(records) == expected("index-v1")
    identity = read_identity(GOLDEN / "index-v1" / "notable.parquet")
    assert (identity.kind, identity.digests, identity.journal_head) == ("notable", DIGESTS, HEAD)
    name = FileName(kind="notable", run_id=RUN_ID, attempt=1, rank=3, first=40, stop=46)
    assert rows(read_records(GOLDEN / "index-v1" / "notable.parquet", name)) == rows(records[notable(records)])


@pytest.mark.parametrize(
    ("kind", "record", "file"),
    [("index", INDEX_RECORD, "index"), ("exceptions", EXCEPTION_RECORD, "exceptions"), ("seals", SEAL_RECORD, "seals")],
)
def test_the_records_of_this_version_are_those_of_the_golden(kind: str, record: np.dtype, file: str) -> None:
    """Whoever changes a record gives it a new version and a new golden."""
    first = (GOLDEN / "frames-v1" / f"{file}.frames").read_bytes()[: 4096 - 17]
    written = json.loads(first)
    assert (written["format"], written["version"], written["record_version"]) == ("dataguard-frames", 1, 1)
    assert np.dtype([tuple(field) for field in written["dtype"]]) == record
    again = FramesHeader.of(
        kind,
        records_per_frame=written["records_per_frame"],
        run_id=RUN_ID,
        attempt=1,
        rank=written["rank"],
        first_step=40,
        digests=DIGESTS,
        journal_head=HEAD,
        created=written["created"],
    )
    assert again.encode() == (GOLDEN / "frames-v1" / f"{file}.frames").read_bytes()[:4096]


def test_the_numbers_of_statuses_on_disk() -> None:
    assert [(status.name, status.value) for status in SlotStatus] == [
        ("LIVE", 0),
        ("SUBSTITUTED", 1),
        ("QUARANTINED", 2),
        ("UNREADABLE", 3),
        ("SKIPPED", 4),
        ("ENDED", 5),
        ("REFUSED", 6),
        ("REMOVED", 7),
    ]
