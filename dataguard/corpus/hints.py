"""Nothing of this source can be delivered: was the text field misnamed?

Where no shard of a source has the text field, the fields that its first records do have are named, so that the answer
to "0 documents" is the ``--text-field`` to give. Where some shards have it and others do not, those that do not are
named.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dataguard.corpus.account import SourceAccount
from dataguard.corpus.formats.streams import decode_head
from dataguard.corpus.formats.textfield import ALLOWED
from dataguard.corpus.scan import ScanJob, ShardScan
from dataguard.corpus.storage import open_root

__all__ = ["fields_instead"]

_HEAD_BYTES = 1 << 16
_MOST_SHOWN = 20
_LACKING = {"missing-text", "missing-column"}


def fields_instead(account: SourceAccount, jobs: Sequence[ScanJob], scans: Sequence[ShardScan]) -> str:
    """What the records of a source have instead of the text field, or which shards lack it, one line.

    Empty where the field is not the trouble.

    Parameters
    ----------
    account
        Of the source.
    jobs, scans
        Its shards, and what they hold.
    """
    if account.kind != "text":
        return ""
    if account.num_delivered:
        return _some_lack_it(jobs, scans)
    codes = set(account.rejected_by_code) | {finding.code for scan in scans for finding in scan.findings}
    if not codes or not codes <= _LACKING:
        return ""
    for job, scan in zip(jobs, scans, strict=True):
        for finding in scan.findings:
            return finding.detail
        if scan.rejected and ALLOWED.format("objects") in scan.rejected[0].detail:
            return scan.rejected[0].detail
        names = _names(job)
        if names:
            return f"no field {job.options.text_field!r}; there are: {', '.join(names)}"
        for record in scan.rejected:
            return record.detail
    return ""


def _some_lack_it(jobs: Sequence[ScanJob], scans: Sequence[ShardScan]) -> str:
    lacking = [job.name for job, scan in zip(jobs, scans, strict=True) if _lacks_it(scan)]
    if not lacking:
        return ""
    shown = ", ".join(lacking[:_MOST_SHOWN]) + (", ..." if len(lacking) > _MOST_SHOWN else "")
    return f"no field {jobs[0].options.text_field!r} in {len(lacking):,} of {len(jobs):,} shards: {shown}"


def _lacks_it(scan: ShardScan) -> bool:
    """Whether the text field is all that a shard is without."""
    codes = {finding.code for finding in scan.findings}
    if codes:
        return codes <= _LACKING
    return len(scan.rejected) == scan.num_rows > 0 and {record.code for record in scan.rejected} <= _LACKING


def _names(job: ScanJob) -> list[str]:
    """Keys of the first record that is a JSON object, as far as the file's head goes."""
    try:
        with open_root(job.root).open(job.path) as file:
            head = decode_head(file.read(_HEAD_BYTES), _HEAD_BYTES)
    except OSError:
        return []  # the shard was read a moment ago; this is a hint and no finding
    for line in head.split(b"\n"):
        try:
            return sorted(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return []
