"""What is the corpus that the demo trains on, and what is wrong with it?

Passages from the standard library's source files and documentation strings (`texts`), some two hundred bytes each, as
two sources: ``code``, mostly Parquet, and ``docs``, JSON lines. One shard of ``code`` came from a mainframe, and was
read with the wrong table: sources in EBCDIC (code page 037), taken for text of a PC (code page 437). It is valid UTF-8,
and no word of it means anything. Each record is as long as the passage that stands at its place in a clean corpus, to
the byte: whoever looks at lengths alone sees nothing. Hardly a byte of it is one that a model of sources has ever seen.
"""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataguard.cli.demo.damaged import too_little
from dataguard.cli.demo.texts import documentation, library_folder, passages, source_files
from dataguard.cli.demo.writing import write_json_lines, write_parquet

__all__ = ["Lengths", "TrainedCorpus", "write_trained_corpus"]

_CODE_SHARDS, _CODE_RECORDS = 28, 288
_DOCS_SHARDS, _DOCS_RECORDS = 12, 96
_GROUP_ROWS = 16
_ODD_PLACE, _ODD_RECORDS = 17, 160
"""Which shard of ``code`` it is, and how many records it holds."""
_EXAMPLE_CHARACTERS = 48
_BLANK = " ".encode("cp037").decode("cp437")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What a check of lengths sees of some records: bytes."""

    shortest: int
    median: int
    longest: int

    @classmethod
    def of(cls, records: Sequence[dict[str, str]]) -> Lengths:
        """Of the texts of records, as UTF-8."""
        sizes = [len(record["text"].encode()) for record in records]
        return cls(shortest=min(sizes), median=round(statistics.median(sizes)), longest=max(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCorpus:
    """What was written."""

    sources: tuple[str, ...]
    """Names of the two folders, which become the names of the sources."""
    num_records: int
    odd: str
    """Name of the shard that is poisoned, or would be."""
    odd_records: int
    poisoned: bool
    odd_lengths: Lengths
    other_lengths: Lengths
    """Of the other records of its source."""
    example: tuple[str, str] | None
    """How one of its records begins as it stands there, and as it was meant; None where it is not poisoned."""
    num_outside: int
    """Records of the shard that are shorter or longer than any other of their source."""


def write_trained_corpus(folder: Path, *, poisoned: bool, library: Path | None = None) -> TrainedCorpus:
    """Write the corpus into `folder`, which exists; its layout is the same with the poison and without.

    Parameters
    ----------
    folder
        Gets the folders ``code`` and ``docs``.
    poisoned
        Whether the odd shard holds the misread text, or the passages that stood there.
    library
        Where the sources are read from; the standard library of this Python where None.

    Raises
    ------
    InputError
        This Python has too little text in its standard library.
    """
    library = library_folder() if library is None else library
    files = list(source_files(library))
    code = _mixed(each for name, text in files for each in passages(name, text))
    docs = _mixed(
        each
        for name, text in files
        for string in documentation(name, text)
        for each in passages(string["name"], string["text"])
    )
    needed = (_CODE_SHARDS * _CODE_RECORDS + _ODD_RECORDS, _DOCS_SHARDS * _DOCS_RECORDS)
    if len(code) < needed[0] or len(docs) < needed[1]:
        found = f"{len(code):,} passages of code and {len(docs):,} of documentation in {library}"
        raise too_little(found, f"at least {needed[0]:,} and {needed[1]:,}")
    odd, code, docs = code[:_ODD_RECORDS], code[_ODD_RECORDS : needed[0]], docs[: needed[1]]
    if poisoned:
        odd = _in_place_of(odd, files)
    places = [place for place in range(_CODE_SHARDS + 1) if place != _ODD_PLACE]
    for number, place in enumerate(places):
        own = code[number * _CODE_RECORDS : (number + 1) * _CODE_RECORDS]
        write_parquet(folder / "code" / f"part-{place:02}.parquet", own, group_rows=_GROUP_ROWS)
    name = f"code/part-{_ODD_PLACE:02}.jsonl.zst"
    write_json_lines(folder / name, odd)
    for place in range(_DOCS_SHARDS):
        own = docs[place * _DOCS_RECORDS : (place + 1) * _DOCS_RECORDS]
        write_json_lines(folder / "docs" / f"part-{place:02}.jsonl.zst", own)
    lengths, others = Lengths.of(odd), Lengths.of(code)
    outside = [size for size in _sizes(odd) if not others.shortest <= size <= others.longest]
    return TrainedCorpus(
        sources=("code", "docs"),
        num_records=len(odd) + len(code) + len(docs),
        odd=name,
        odd_records=len(odd),
        poisoned=poisoned,
        odd_lengths=lengths,
        other_lengths=others,
        example=_example(odd) if poisoned else None,
        num_outside=len(outside),
    )


def _mixed(found: Iterator[dict[str, str]]) -> list[dict[str, str]]:
    """Each text once, in an order that has nothing to do with where it stood: that of checksums of the texts."""
    once = {record["text"]: record for record in found}
    return sorted(once.values(), key=lambda record: (zlib.crc32(record["text"].encode()), record["name"]))


def _in_place_of(records: Sequence[dict[str, str]], files: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Records of the same lengths, filled with sources of the library that were read with the wrong table."""
    sizes = _sizes(records)
    read = ""
    for _, text in files:
        if text.isascii():
            read += text.encode("cp037").decode("cp437")
        if len(read) > sum(sizes):  # a byte or more each
            break
    made, start = [], 0
    for record, size in zip(records, sizes, strict=True):
        text = read[start : start + size].encode()[:size].decode(errors="ignore")  # whole characters of so many bytes
        start += len(text)
        text += _BLANK * (size - len(text.encode()))
        made.append({"text": text, "name": record["name"]})
    return made


def _example(odd: Sequence[dict[str, str]]) -> tuple[str, str]:
    begins = [record["text"][:_EXAMPLE_CHARACTERS] for record in odd]
    shown = next((begin for begin in begins if begin.isprintable()), "")
    meant = shown.encode("cp437").decode("cp037").partition("\n")[0]
    return shown[: len(meant)], meant


def _sizes(records: Sequence[dict[str, str]]) -> list[int]:
    return [len(record["text"].encode()) for record in records]
