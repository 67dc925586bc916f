"""Where do canary records and what was found by them stay? In ``triage/`` of the run, and as files between hosts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from dataguard.core.digests import sha256_hex
from dataguard.errors import InputError, RunDamaged
from dataguard.run.events import CanaryCompared
from dataguard.run.notes import keep_document
from dataguard.run.run import Run
from dataguard.torch.canary.answers import (
    CanaryComparison,
    CanaryRecord,
    decode_record,
    encode_comparison,
    encode_record,
)

__all__ = ["keep_record", "kept_records", "note_comparison", "read_records"]

_RECORD = "canary-record"


def keep_record(run: Run, record: CanaryRecord) -> Path:
    """Write a record to ``triage/canary-record-<digest>.json`` of the run, and give the path."""
    return run.layout.triage(_RECORD, keep_document(run.layout, _RECORD, encode_record(record)))


def kept_records(run: Run, step: int | None = None) -> list[CanaryRecord]:
    """The records that lie in the run, of one step (in the trainer's labels) or all, by time.

    Raises
    ------
    RunDamaged
        A file holds other bytes than its name says.
    """
    found = []
    for path in sorted((run.path / "triage").glob(f"{_RECORD}-*.json")):
        document = path.read_bytes()
        if sha256_hex(document) != path.stem.removeprefix(f"{_RECORD}-"):
            raise RunDamaged(f"{path} holds other bytes than its name says", todo="remove it, and make the record anew")
        found.append(decode_record(document))
    return sorted((each for each in found if step is None or each.step == step), key=lambda each: each.time)


def read_records(paths: Iterable[str | Path]) -> list[CanaryRecord]:
    """Records in files.

    Raises
    ------
    InputError
        A file cannot be read, or holds no record.
    """
    records = []
    for path in paths:
        try:
            records.append(decode_record(Path(path).read_bytes()))
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{path} cannot be read as a canary record", found=str(error)) from error
    return records


def note_comparison(
    run: Run, comparison: CanaryComparison, *, attempt: int | None = None, by: str | None = None
) -> CanaryComparison:
    """Keep a comparison in ``triage/`` of the run, and note it in the journal."""
    digest = keep_document(run.layout, "canary", encode_comparison(comparison))
    note = CanaryCompared(
        attempt=attempt,
        step=run.step(comparison.step),
        differs=comparison.differs,
        odd=comparison.odd,
        results=digest,
        summary=comparison.summary,
    )
    run.journal.append(note, by=by)
    return msgspec.structs.replace(comparison, results=digest)
