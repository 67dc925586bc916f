"""Records with signals: how values are rounded, and what is kept of them through frames, sealing and compaction."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataguard.run.compact import compact
from dataguard.run.frames import scan_frames
from dataguard.run.frames_header import HEADER_BYTES
from dataguard.run.index import Index, merge
from dataguard.run.layout import Layout
from dataguard.run.records import INDEX_RECORD, conformed, index_record, notable, rounded, with_rank, without_rank
from dataguard.run.seal import seal_attempt
from dataguard.score.registry import HEADLINE, TEXT_SIGNALS
from tests.run.recording import JUDGED_RECORD, header, judged_microbatch, microbatch, open_writer


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(3.401992901712019e38)
@example(-3.401992901712019e38)
def test_rounded_to_ten_bits(value: float) -> None:
    told = float(rounded(np.array([value]))[0])
    mantissa, _ = math.frexp(told)
    assert mantissa * 2**11 == int(mantissa * 2**11) or abs(told) < 2.0**-126
    if 2.0**-126 <= abs(value) < 2.0**127:
        assert abs(told - value) <= abs(value) * 2.0**-11
    assert math.copysign(1, told) == math.copysign(1, value)


def test_nan_is_one_nan_and_ends_stay_ends() -> None:
    odd = np.array([0x7FC00001, 0xFFC00000, 0x7F800000, 0x7F7FFFFF], np.uint32).view(np.float32)
    assert rounded(odd).view(np.uint32).tolist() == [0x7FC00000, 0x7FC00000, 0x7F800000, 0x7F7FE000]


def judged_run(root: Path, *, ranks: int = 2, steps: int = 30, seal: bool) -> np.ndarray:
    parts = []
    for rank in range(ranks):
        writer = open_writer(root, rank=rank, record=JUDGED_RECORD)
        for step in range(steps):
            records = judged_microbatch(step, rank=rank, num_ranks=ranks)
            writer.append(records)
            parts.append(with_rank(records, rank))
        writer.close(seal=seal)
    return merge(parts)


def test_the_same_from_frames_sealed_and_compacted_files(tmp_path: Path) -> None:
    wanted = judged_run(tmp_path, seal=False)
    layout, index = Layout(tmp_path), Index(Layout(tmp_path))
    for make in (lambda: None, lambda: seal_attempt(layout, 1), lambda: compact(layout, 1)):
        make()
        assert merge(list(index.records(1))).tobytes() == wanted.tobytes()
        assert merge(list(index.notable(1))).tobytes() == wanted[notable(wanted)].tobytes()
        assert index.step(1, 17, num_ranks=2).records.tobytes() == wanted[wanted["step"] == 17].tobytes()
        assert not index.check(1, num_ranks=2).problems


def test_a_column_a_signal_null_where_it_is_not_kept(tmp_path: Path) -> None:
    wanted = judged_run(tmp_path, ranks=1, seal=True)
    table = pq.read_table(Layout(tmp_path).sealed(1, 0, 0, 30))
    assert table.column("signal_byte_entropy").null_count == int(np.isnan(wanted["signal_byte_entropy"]).sum()) > 0
    assert table.column("headline_byte_entropy").null_count == 0
    assert table.column("headline_byte_entropy").to_numpy().tolist() == wanted["headline_byte_entropy"].tolist()


def test_a_lost_header_costs_the_signals_and_no_record(tmp_path: Path) -> None:
    wanted = judged_run(tmp_path, ranks=2, seal=False)
    layout = Layout(tmp_path)
    path = layout.hot_segment(1, 1, 0)
    raw = bytearray(path.read_bytes())
    raw[100:200] = bytes(100)
    path.write_bytes(raw)
    scan = scan_frames(path, "index")
    assert scan.header is None
    assert len(scan.records) == 30 * 4
    damage: list[str] = []
    found = merge(list(Index(layout).records(1, num_ranks=2, damage=damage)))
    assert damage
    names = list(with_rank(np.zeros(0, INDEX_RECORD), 0).dtype.names)
    assert found[names].tolist() == wanted[names].tolist()
    assert np.isnan(found["signal_byte_entropy"][found["rank"] == 1]).all()


def test_every_text_signal_fits_the_header() -> None:
    record = index_record(HEADLINE["text"], [spec.name for spec in TEXT_SIGNALS])
    facts = header(record=record, digests={"plan": "a" * 64, "attempt": "b" * 64})
    assert len(facts.encode()) == HEADER_BYTES
    assert facts.record_dtype == record


def test_a_record_without_a_policy_is_version_1() -> None:
    assert index_record((), ()) is INDEX_RECORD
    assert (header().record_version, header(record=JUDGED_RECORD).record_version) == (1, 2)


def test_conformed_fills_what_is_missing() -> None:
    plain = microbatch(5)
    grown = conformed(plain, JUDGED_RECORD)
    assert conformed(grown, INDEX_RECORD).tobytes() == plain.tobytes()
    assert without_rank(with_rank(grown, 3)).tobytes() == grown.tobytes()
    assert np.isnan(grown["signal_byte_entropy"]).all()
    assert not grown["headline_byte_entropy"].any()


def test_a_record_of_other_signals_is_refused(tmp_path: Path) -> None:
    with open_writer(tmp_path, record=JUDGED_RECORD) as writer, pytest.raises(ValueError, match="not"):
        writer.append(microbatch(0))
