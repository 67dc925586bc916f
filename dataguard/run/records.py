"""What does one record of each frames file hold?

NumPy structured dtypes, packed and little-endian, version 1 each. A record whose bytes are all zero is *unused*: it
fills up a frame and is never read as data. (No real record is all zero: a delivered sample has a digest or a status,
an exception a reason, a seal a SHA-256.)
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.plan.slots import PADDING, SlotStatus

__all__ = [
    "EXCEPTION_RECORD",
    "INDEX_RECORD",
    "RANKED_RECORD",
    "RECORD_DTYPES",
    "RECORD_VERSIONS",
    "SEAL_RECORD",
    "FramesKind",
    "notable",
    "used",
    "with_rank",
    "without_rank",
]

FramesKind = Literal["index", "exceptions", "seals", "telemetry"]

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

INDEX_RECORD = np.dtype(_ADDRESS + _SAMPLE)
"""One delivered sample, as its rank writes it at hand-over."""

RANKED_RECORD = np.dtype([*_ADDRESS, ("rank", "<u4"), *_SAMPLE])
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
"""What the environment decided about one position (an unreadable row), and what was delivered instead."""

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

RECORD_DTYPES: dict[FramesKind, np.dtype[np.void]] = {
    "index": INDEX_RECORD,
    "exceptions": EXCEPTION_RECORD,
    "seals": SEAL_RECORD,
}
"""Record of each kind, newest version."""

RECORD_VERSIONS: dict[FramesKind, int] = {"index": 1, "exceptions": 1, "seals": 1}
"""Version of each record; another dtype is a new number here, and a new golden."""


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


def with_rank(records: NDArray[np.void], rank: int) -> NDArray[np.void]:
    """Records of one rank (INDEX_RECORD) as RANKED_RECORD.

    >>> with_rank(np.zeros(2, INDEX_RECORD), 7)["rank"].tolist()
    [7, 7]
    """
    ranked: NDArray[np.void] = np.empty(len(records), RANKED_RECORD)
    for name in INDEX_RECORD.names or ():
        ranked[name] = records[name]
    ranked["rank"] = rank
    return ranked


def without_rank(ranked: NDArray[np.void]) -> NDArray[np.void]:
    """The inverse of `with_rank`, for comparing with frames."""
    records: NDArray[np.void] = np.empty(len(ranked), INDEX_RECORD)
    for name in INDEX_RECORD.names or ():
        records[name] = ranked[name]
    return records


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
