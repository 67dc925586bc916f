"""What does one record of each frames file hold?

NumPy structured dtypes, packed and little-endian. A record whose bytes are all zero is *unused*: it fills up a frame
and is never read as data. (No real record is all zero: a delivered sample has a digest or a status, an exception a
reason, a seal a SHA-256, a value of telemetry a name.)

Version 1 of the index record, ``INDEX_RECORD``, is what an attempt without a policy writes. With a policy it is
version 2, `index_record`: the same fields, then one byte for each headline signal (see `headline`), then one float32
for each signal of the policy, NaN where it is not kept. The policy belongs to the attempt, so all records of an attempt
are of one size and frames stay of one size; the header's dtype names the signals. (A list of the kept ones alone would
be smaller, and would make frames of many sizes, which are neither found by ordinal nor told from damage.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.plan.slots import PADDING, SlotStatus

__all__ = [
    "EXCEPTION_RECORD",
    "HEADLINE_PREFIX",
    "INDEX_RECORD",
    "JUDGED_EXCEPTION_RECORD",
    "RANKED_RECORD",
    "RECORD_DTYPES",
    "RECORD_VERSIONS",
    "SEAL_RECORD",
    "SIGNAL_PREFIX",
    "STORE_RECORD",
    "TELEMETRY_NAME_BYTES",
    "TELEMETRY_RECORD",
    "FramesKind",
    "conformed",
    "headline_fields",
    "index_blocks",
    "index_record",
    "notable",
    "packed",
    "rounded",
    "signal_fields",
    "used",
    "with_rank",
    "without_rank",
]

FramesKind = Literal["index", "exceptions", "seals", "telemetry", "store"]

_ADDRESS = [("step", "<u8"), ("batch", "<u8")]
_SAMPLE = [
    ("microbatch", "<u4"),
    ("slot", "<u4"),  # 0-based within the global batch
    ("position", "<u8"),
    ("source", "<u2"),  # index into the stream's source names
    ("shard", "<u4"),  # numbered through the manifests of the plan, as the stream does
    ("row", "<u8"),
    ("status", "<u1"),  # plan.slots.SlotStatus
    ("delivered_shard", "<i8"),  # -1 unless another row was delivered
    ("delivered_row", "<i8"),
    ("length", "<u8"),  # bytes of the document, tokens of the window
    ("digest", "V8"),  # first 8 bytes of the xxh3-128 of the canonical bytes; zero where nothing was delivered
    ("verdict", "<u1"),  # of the gate, 0 pass
    ("rules", "<u8"),  # of the gate, a bit a rule that fired
    ("event", "<u4"),  # journal event that withheld the planned sample, 0 none
    ("microbatch_digest", "V16"),  # on the first record of a microbatch, zero on the others
]

_RANK = ("rank", "<u4")

HEADLINE_PREFIX = "headline_"
SIGNAL_PREFIX = "signal_"


@lru_cache(maxsize=64)
def packed(fields: tuple[tuple[str, str], ...]) -> np.dtype[np.void]:
    """The dtype of these fields (name, NumPy format), the same object for the same fields: comparing it is cheap."""
    return np.dtype(list(fields))


def index_record(headline: Iterable[str], signals: Iterable[str], *, ranked: bool = False) -> np.dtype[np.void]:
    """The index record of an attempt with a policy, version 2; without any names it is version 1.

    Parameters
    ----------
    headline, signals
        Names of signals: those kept as a byte for every sample, and those kept as float32 for some.
    ranked
        With the rank, as `RANKED_RECORD`.

    Examples
    --------
    >>> index_record(["byte_entropy"], ["length_bytes", "byte_entropy"]).names[-3:]
    ('headline_byte_entropy', 'signal_length_bytes', 'signal_byte_entropy')
    """
    return packed(
        (
            *_ADDRESS,
            *([_RANK] if ranked else []),
            *_SAMPLE,
            *((HEADLINE_PREFIX + name, "|u1") for name in headline),
            *((SIGNAL_PREFIX + name, "<f4") for name in signals),
        )
    )


def index_blocks(record: np.dtype[np.void]) -> np.dtype[np.void]:
    """A view of an index record of version 2 with all headline bytes, and all signals, as one field each.

    >>> record = index_record(["byte_entropy"], ["length_bytes", "byte_entropy"])
    >>> np.zeros(3, record).view(index_blocks(record))["signals"].shape
    (3, 2)
    """
    headline, signals = headline_fields(record), signal_fields(record)
    fields: Mapping[str, Any] = record.fields or {}
    start = record.itemsize - len(headline) - 4 * len(signals)
    assert all(fields[HEADLINE_PREFIX + name][1] == start + i for i, name in enumerate(headline))
    start += len(headline)
    assert all(fields[SIGNAL_PREFIX + name][1] == start + 4 * i for i, name in enumerate(signals))
    return np.dtype(
        {
            "names": ["headline", "signals"],
            "formats": [("u1", (len(headline),)), ("<f4", (len(signals),))],
            "offsets": [start - len(headline), start],
            "itemsize": record.itemsize,
        }
    )


INDEX_RECORD = index_record((), ())
"""One delivered sample, as its rank writes it at hand-over; version 1."""

RANKED_RECORD = index_record((), (), ranked=True)
"""The same with its rank, as sealed and compacted files hold it and lookups return it."""

EXCEPTION_RECORD = np.dtype(
    [
        ("step", "<u8"),
        ("position", "<u8"),
        ("reason", "<u1"),  # plan.slots.SlotStatus of what the environment decided, never 0
        ("draw", "<i1"),  # which substitute was delivered, -1 none
        ("delivered_shard", "<i8"),  # -1 none
        ("delivered_row", "<i8"),
    ]
)
"""What the environment decided about one position (an unreadable row), and what was delivered instead; version 1."""

JUDGED_EXCEPTION_RECORD = np.dtype([*EXCEPTION_RECORD.descr, ("failed", "<u2")])
"""The same in an attempt with a policy, version 2. Beside the environment the gate decides there, row by row, so it
says which of the slot's rows could not be read: bit 0 the one planned, bit k + 1 the substitute of draw k."""

SEAL_RECORD = np.dtype(
    [
        ("first_step", "<u8"),
        ("stop_step", "<u8"),
        ("hot_bytes", "<u8"),  # bytes of the frames file the sealed file covers, header included
        ("size_bytes", "<u8"),  # of the sealed file
        ("num_records", "<u8"),
        ("footer_digest", "<u8"),  # xxh3-64 of the sealed file's footer, see columns.footer_digest
        ("sha256", "V32"),  # of the sealed file's bytes
    ]
)
"""One finished sealed or compacted file."""

STORE_RECORD = np.dtype(
    [
        ("step", "<u8"),
        ("microbatch", "<u4"),
        ("num_bytes", "<u8"),  # of its tensors
        ("reason", "<u1"),  # store_ledger.LetGo, never 0
    ]
)
"""One microbatch that the batch store was to keep and let go of; version 1."""

TELEMETRY_NAME_BYTES = 64

TELEMETRY_RECORD = packed(
    (
        ("step", "<u8"),  # counted from 0
        ("time", "<i8"),  # when it was logged: unix time in nanoseconds
        ("name", f"|S{TELEMETRY_NAME_BYTES}"),  # UTF-8, padded with zeros
        ("slot", "<i4"),  # of the global batch; -1 where the value is no sample's
        ("value", "<f8"),
    )
)
"""One value that the trainer logged; version 1."""

RECORD_DTYPES: dict[FramesKind, np.dtype[np.void]] = {
    "index": INDEX_RECORD,
    "exceptions": EXCEPTION_RECORD,
    "seals": SEAL_RECORD,
    "store": STORE_RECORD,
    "telemetry": TELEMETRY_RECORD,
}
"""Record of each kind, version 1."""

RECORD_VERSIONS: dict[FramesKind, int] = {"index": 2, "exceptions": 2, "seals": 1, "store": 1, "telemetry": 1}
"""Newest version of each record; another dtype is a new number here, and a new golden."""


def notable(records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which samples were withheld, substituted or flagged (padding is neither): bool, one a record.

    >>> records = np.zeros(3, INDEX_RECORD)
    >>> records["status"] = SlotStatus.LIVE, SlotStatus.SUBSTITUTED, SlotStatus.SKIPPED
    >>> notable(records).tolist()
    [False, True, False]
    """
    status = records["status"]
    withheld = (status != SlotStatus.LIVE) & ~np.isin(status, PADDING)
    answer: NDArray[np.bool_] = withheld | (records["verdict"] != 0)
    return answer


def headline_fields(dtype: np.dtype[np.void]) -> tuple[str, ...]:
    """Signals of which a record of that dtype holds a byte, in order."""
    return tuple(_without(name, HEADLINE_PREFIX) for name in dtype.names or () if name.startswith(HEADLINE_PREFIX))


def signal_fields(dtype: np.dtype[np.void]) -> tuple[str, ...]:
    """Signals of which a record of that dtype holds a float32, in order."""
    return tuple(_without(name, SIGNAL_PREFIX) for name in dtype.names or () if name.startswith(SIGNAL_PREFIX))


def _without(name: str, prefix: str) -> str:
    return name[len(prefix) :]


def rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    """Values as the index keeps them: float32 rounded to 10 mantissa bits, ties to even; NaN is one NaN.

    What would be rounded up beyond the greatest such number stays that number: rounding makes nothing infinite.

    >>> rounded(np.array([1 / 3, 2047.0, 2049.0])).tolist()
    [0.333251953125, 2047.0, 2048.0]
    """
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype="<f4")
    bits = single.view("<u4")
    kept = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    finite = np.isfinite(single)
    beyond = (kept & np.uint32(0x7FFFFFFF)) == np.uint32(0x7F800000)
    if finite.all() and not beyond.any():
        return kept.view("<f4")
    kept[beyond] -= np.uint32(0x2000)
    answer: NDArray[np.float32] = np.where(finite, kept.view("<f4"), single)
    answer[np.isnan(single)] = np.nan
    return answer


def with_rank(records: NDArray[np.void], rank: int) -> NDArray[np.void]:
    """Records of one rank (`index_record`) as the same with the rank.

    >>> with_rank(np.zeros(2, INDEX_RECORD), 7)["rank"].tolist()
    [7, 7]
    """
    ranked = conformed(records, _twin(records.dtype, ranked=True))
    ranked["rank"] = rank
    return ranked


def without_rank(ranked: NDArray[np.void]) -> NDArray[np.void]:
    """The inverse of `with_rank`, for comparing with frames."""
    return conformed(ranked, _twin(ranked.dtype, ranked=False))


def _twin(dtype: np.dtype[np.void], *, ranked: bool) -> np.dtype[np.void]:
    return index_record(headline_fields(dtype), signal_fields(dtype), ranked=ranked)


def conformed(records: NDArray[np.void], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Records with just the fields of another index record; a signal they do not hold is NaN, all else 0."""
    if records.dtype == dtype:
        return records.copy()
    answer: NDArray[np.void] = np.zeros(len(records), dtype)
    known = set(records.dtype.names or ())
    for name in dtype.names or ():
        if name in known:
            answer[name] = records[name]
        elif name.startswith(SIGNAL_PREFIX):
            answer[name] = np.nan
    return answer


def used(frames: NDArray[Any]) -> NDArray[np.void]:
    """The records of whole frames, shape (frames, records a frame), as one array without the unused ones."""
    num_frames, per_frame = frames.shape
    flat: NDArray[np.void] = frames.reshape(-1)
    if not num_frames:
        return flat
    # Frames are filled from the front, so a frame whose last record is used is used whole.
    last = np.ascontiguousarray(frames[:, -1]).view(np.uint8).reshape(num_frames, -1).any(axis=1)
    if last.all():
        return flat
    keep = np.ascontiguousarray(flat).view(np.uint8).reshape(num_frames * per_frame, -1).any(axis=1)
    return flat[keep]
