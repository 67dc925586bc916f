"""What kind of training log is this, and what does it say?

Content decides, never the name:

1. The checksum of a first record: a TensorBoard event file.
2. A JSON document: golden values of Megatron, the state of a Trainer, an array of rows; else JSON objects, one a line.
3. A first line that names a column of steps: a table.
4. Lines of a step and a number: a list of losses.
5. The first line anywhere that one of the text formats knows: that format.

What is none of them is refused with everything that was tried. A folder is read as the event files in it, oldest first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from dataguard.errors import InputError, UsageError
from dataguard.run.logs import json_documents, llm_c, megatron, modded_nanogpt, torchtitan
from dataguard.run.logs.delimited import delimiter_of, read_delimited
from dataguard.run.logs.json_rows import json_of, read_json_lines
from dataguard.run.logs.log import LogRows, TrainingLog
from dataguard.run.logs.opening import LogFile
from dataguard.run.logs.tensorboard import is_event_file, read_tensorboard
from dataguard.run.logs.text import TextFormat, read_text, shown_lines

__all__ = ["FORMATS", "read_log"]

_TEXT_FORMATS: dict[str, TextFormat] = {
    "megatron": megatron,
    "llm-c": llm_c,
    "modded-nanogpt": modded_nanogpt,
    "torchtitan": torchtitan,
}

FORMATS = (
    *("csv", "json", "jsonl", "llm-c", "losses", "megatron", "megatron-golden", "modded-nanogpt", "tensorboard"),
    *("torchtitan", "trainer-state"),
)
"""What a log can be."""

_FIRST_LINES = 20
_MOST_DOCUMENT_BYTES = 1 << 30


def read_log(path: str | os.PathLike[str], *, step_column: str | None = None) -> TrainingLog:
    """Read a training log of any kind that people have.

    Parameters
    ----------
    path
        A file, plain, gzip or zstd; or a folder of TensorBoard event files.
    step_column
        The column that counts steps, for tables and rows of JSON; by default it is found by its name.

    Raises
    ------
    UsageError
        There is no such file, or a folder without event files.
    InputError
        It is no training log that is known, it is damaged, or it holds no points.
    """
    where = Path(path)
    rows = LogRows()
    if where.is_dir():
        return _read_folder(where, rows)
    file = LogFile(where)
    name, read = _sniff(file, step_column)
    read(rows)
    if file.torn:
        rows.problem("torn", None, "its compressed bytes end too early")
    log = rows.finish(str(path), name)
    if not len(rows):
        raise InputError(
            f"{path} holds no points", found=f"{name}; {'; '.join(map(str, log.problems)) or 'nothing to read'}"
        )
    return log


def _read_folder(folder: Path, rows: LogRows) -> TrainingLog:
    found = sorted(path for path in folder.iterdir() if "tfevents" in path.name and path.is_file())
    if not found:
        raise UsageError(
            f"{folder} holds no TensorBoard event files", allowed="a log, or a folder with *tfevents* files in it"
        )
    for path in found:
        file = LogFile(path)
        if file.head(1):  # a writer that logged nothing leaves an empty file
            if not is_event_file(file.head(12)):
                raise InputError(f"{path} is no TensorBoard event file", found="a first record without its checksum")
            read_tensorboard(file, rows)
    if not len(rows):
        raise InputError(f"{folder} holds no scalars", found=f"{len(found)} event files")
    return rows.finish(str(folder), "tensorboard")


def _sniff(file: LogFile, wanted: str | None) -> tuple[str, Callable[[LogRows], None]]:
    head = file.head(1 << 16)
    tried = []
    if is_event_file(head[:12]):
        return "tensorboard", lambda rows: read_tensorboard(file, rows)
    tried.append("tensorboard: no checksummed record at its beginning")
    first = [line for _, line in islice(((n, text) for n, text in file.lines() if text.strip()), _FIRST_LINES)]
    if not first:
        raise InputError(f"{file.path} holds nothing")
    if first[0].lstrip().startswith(("{", "[")):
        found = _sniff_json(file, first, wanted, tried)
        if found is not None:
            return found
    else:
        tried.append("json, jsonl: it does not begin with an object or an array")
    delimiter = delimiter_of(first[0], wanted)
    if delimiter is not None:
        return "csv", lambda rows: read_delimited(file, rows, delimiter=delimiter, wanted=wanted)
    tried.append(
        f"csv: its first line names no column {wanted!r}"
        if wanted is not None
        else "csv: its first line names no column of steps (name it with --step-column)"
    )
    if torchtitan.is_pair(first[0]) and sum(map(torchtitan.is_pair, first)) * 2 > len(first):
        return "losses", lambda rows: torchtitan.read_pairs(file, rows)
    tried.append("losses: its lines are no pairs of a step and a number")
    for _, line in shown_lines(file):
        for name, reader in _TEXT_FORMATS.items():
            if reader.lead.search(line) is not None:
                return name, _text_reader(file, reader)
    tried.append(f"{', '.join(_TEXT_FORMATS)}: none of its lines is one of theirs")
    raise InputError(
        f"{file.path} is no training log that is known",
        found="".join(f"\n    not {each}" for each in tried),
        allowed=", ".join(FORMATS),
    )


def _text_reader(file: LogFile, reader: TextFormat) -> Callable[[LogRows], None]:
    return lambda rows: read_text(file, rows, reader)


def _sniff_json(
    file: LogFile, first: list[str], wanted: str | None, tried: list[str]
) -> tuple[str, Callable[[LogRows], None]] | None:
    if sum(_is_object(line) for line in first) * 2 > len(first) and not _is_document(first[0]):
        return "jsonl", lambda rows: read_json_lines(file, rows, wanted=wanted)
    content = b"".join(_at_most(file.chunks(), _MOST_DOCUMENT_BYTES))
    try:
        document = json_of(content)
    except ValueError as error:
        tried.append(f"json: {error}")
        return None
    name = json_documents.document_format(document)
    source = str(file.path)
    if name == "megatron-golden":
        return name, lambda rows: json_documents.read_golden(document, rows, source=source)
    if name == "trainer-state":
        return name, lambda rows: json_documents.read_trainer_state(document, rows, source=source, wanted=wanted)
    if name == "json":
        return name, lambda rows: json_documents.read_array(document, rows, source=source, wanted=wanted)
    tried.append("json: neither golden values, nor a Trainer's state, nor an array of rows")
    return None


def _is_object(line: str) -> bool:
    return isinstance(_value(line), dict)


def _is_document(line: str) -> bool:
    return json_documents.document_format(_value(line)) is not None


def _value(line: str) -> Any:
    try:
        return json_of(line)
    except ValueError:
        return None


def _at_most(chunks: Iterator[bytes], most: int) -> Iterator[bytes]:
    left = most
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            return
        yield chunk
