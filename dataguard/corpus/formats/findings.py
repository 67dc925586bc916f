"""What does a reason code mean, and what becomes of the record or shard that has it?

One table, `CODES`, shared by code, documentation and tests. A code has a scope and one of three effects:

- ``rejected``: the record is not delivered. It keeps its row number, so no other record's address moves.
- ``flagged``: something is wrong with the shard; its good records are delivered.
- ``excluded``: nothing of the shard can be trusted; nothing of it is delivered.

A code is never taken out of the table or given another effect: manifests that exist refer to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from dataguard.core.manifest import Effect
from dataguard.corpus.formats.protocol import Finding

__all__ = ["CODES", "Code", "effect_of", "shard_effect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One row of the table."""

    effect: Literal["rejected", "flagged", "excluded"]
    sentence: str
    """What is wrong, in words that a message or a page can use as they stand."""


_RECORDS = {
    "damaged-member": "the compressed member that holds the text cannot be decoded",
    "duplicate-member": "the record has two members with one ending, so it is undecided which is meant",
    "bad-sample": "the sizes in the record do not add up to its length",
    "duplicate-text": "the record has its text field more than once, so it is undecided which is meant",
    "invalid-json": "the line is not one JSON value",
    "invalid-utf8": "the record holds bytes that are not UTF-8",
    "lone-surrogate": "the record holds an escaped surrogate without its other half, which no UTF-8 can spell",
    "member-with-holes": "the member that holds the text is stored as a file with holes",
    "missing-text": "the record has no text field",
    "not-a-string": "the text field is no string",
    "not-an-object": "the line is valid JSON and no object",
    "null-text": "the text field is null",
    "record-too-large": "the record is larger than the limit",
    "too-deep": "the record is nested deeper than the limit",
    "unreadable-batch": "the record batch that holds the row cannot be decoded",
    "unreadable-group": "the row group that holds the row cannot be decoded",
}
_FLAGGED = {
    "footer-disagrees": "the schema in the footer of the Arrow file is not that of the message in front, which counts",
    "index-disagrees": "the index of the dataset says otherwise than the shard; what the shard says is delivered",
    "not-in-index": "no index of a dataset lists the shard; what the shard says is delivered",
    "bad-member-header": "a header of the archive makes no sense; the whole records before it are delivered",
    "repeated-key": "several records of the archive have one key; each is delivered as it lies",
    "bad-arrow-footer": "the footer of the Arrow file is missing or makes no sense; whole record batches are delivered",
    "bad-arrow-message": "a message of the Arrow data makes no sense; the record batches before it are delivered",
    "cut-short": "the data ends without its end mark; what stands whole before the cut is delivered",
    "damaged-batches": "some record batches cannot be decoded; the others are delivered",
    "damaged-groups": "some row groups cannot be decoded; the others are delivered",
    "trailing-bytes": "there are bytes after the end of the data; what stands before them is delivered",
    "unlisted-batches": "the Arrow file holds messages that its footer does not list; what it lists is delivered",
    "wrong-row-count": "the Parquet footer counts other rows than its row groups hold; what they hold is delivered",
    "truncated-stream": "the compressed stream ends early; the whole records before the cut are delivered",
}
_EXCLUDED = {
    "bad-arrow-header": "the Arrow data does not begin with a schema that can be read",
    "bad-checksum": "the decoded content is not what its checksum says",
    "bad-footer": "the Parquet footer is missing or makes no sense",
    "bad-idx": "the .idx of a pair is not what it should be, or contradicts itself",
    "bad-npy-header": "the file does not begin with a NumPy header, or its header makes no sense",
    "bad-mds": "the head of the MDS shard, or one of its samples of ids, makes no sense",
    "bad-pointers": "the offsets in the .idx are not those that its lengths add up to",
    "bad-shape": "the array has no dimension, or more than two",
    "bad-stream-header": "the file is not the compressed stream that its name says",
    "changed-while-scanned": "the file was written to while it was scanned",
    "compressed-container": "a file whose parts are reached at random lies inside a compressed stream",
    "corrupt-stream": "the compressed stream cannot be decoded any further",
    "duplicate-column": "several columns have the name of the text column",
    "encrypted": "the file is encrypted",
    "expands-too-much": "the compressed data decodes to more bytes than the limit",
    "fortran-order": "the array is stored column by column, so its flat order is not that of its rows",
    "id-too-large": "an id is larger than any that can be delivered",
    "missing-column": "there is no text column",
    "missing-half": "one of the files that make the shard is missing",
    "not-a-text-column": "the text column holds no text",
    "not-an-archive": "the file does not begin as a tar archive does",
    "not-integers": "the array holds no integers",
    "not-json-lines": "the file is text or JSON, and not one JSON object a line",
    "reader-died": "the process that read the file died",
    "reader-failed": "the reader of the file raised an error of its own",
    "reader-hung": "the reader of the file did not end within the time limit",
    "too-short": "the file is shorter than its header says",
    "too-many-members": "the archive holds more members than the limit",
    "unknown-type": "the file does not say of which type its ids are, and no type was given",
    "unreadable": "the file cannot be opened or read",
    "unreadable-batches": "no record batch can be decoded",
    "unreadable-groups": "no row group can be decoded",
    "window-too-large": "the compressed stream asks for a larger window than the limit",
}

CODES: Mapping[str, Code] = MappingProxyType(
    {code: Code(effect="rejected", sentence=sentence) for code, sentence in sorted(_RECORDS.items())}
    | {code: Code(effect="flagged", sentence=sentence) for code, sentence in sorted(_FLAGGED.items())}
    | {code: Code(effect="excluded", sentence=sentence) for code, sentence in sorted(_EXCLUDED.items())}
)
"""Reason code -> its effect and its sentence."""


def effect_of(code: str) -> Literal["rejected", "flagged", "excluded"]:
    """The effect of a reason code; KeyError where the table has none such.

    >>> effect_of("trailing-bytes"), effect_of("null-text")
    ('flagged', 'rejected')
    """
    return CODES[code].effect


def shard_effect(findings: Iterable[Finding], *, num_deliverable: int) -> Effect:
    """What becomes of a shard with these findings about the whole of it.

    A shard that has a finding and from which nothing can be delivered is excluded; one without a finding is clean
    though it be empty.

    Parameters
    ----------
    findings
        The findings of a `ScanEnd`, records' findings not among them.
    num_deliverable
        Rows of the shard that were not rejected.

    Examples
    --------
    >>> cut = Finding(code="truncated-stream", detail="ends at byte 70")
    >>> shard_effect([cut], num_deliverable=3), shard_effect([cut], num_deliverable=0)
    ('flagged', 'excluded')
    >>> shard_effect([], num_deliverable=0)
    'clean'
    """
    effects = {effect_of(finding.code) for finding in findings}
    assert "rejected" not in effects, "a record's finding is no finding of its shard"
    if not effects:
        return "clean"
    return "excluded" if "excluded" in effects or num_deliverable == 0 else "flagged"
