"""What scalars does a TensorBoard event file hold?

The file is a row of records (TFRecord): length (u64), its masked CRC-32C, that many bytes, theirs. Each is an ``Event``
message: wall time, step, and a summary of values by tag. A scalar is a `simple_value`, or (TensorFlow 2, and PyTorch's
new style) a tensor of one number. Pictures, histograms and texts are passed by.

A writer that died leaves an incomplete last record: everything before it is read, and that it is torn is told. A record
whose CRC does not fit is damage: nothing behind it can be told from noise. No package is needed for any of this.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from dataguard.errors import InputError
from dataguard.run.logs.crc32c import crc32c, masked
from dataguard.run.logs.log import LogRows
from dataguard.run.logs.opening import LogFile
from dataguard.run.logs.protobuf import fields_of, signed, varints_of

__all__ = ["is_event_file", "read_tensorboard"]

_HEAD = struct.Struct("<QI")
_MOST_BYTES = 1 << 31
_EVENT_TIME, _EVENT_STEP, _EVENT_SUMMARY = 1, 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR, _VALUE_METADATA = 1, 2, 8, 9
_TENSOR_TYPE, _TENSOR_SHAPE, _TENSOR_CONTENT = 1, 2, 4
_FLOAT_VALUES, _DOUBLE_VALUES, _INT_VALUES, _INT64_VALUES, _HALF_VALUES, _UINT64_VALUES = 5, 6, 7, 10, 13, 17
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 17: "<H", 19: "<e", 22: "<I", 23: "<Q"}
"""Number of a tensor's type -> how its content is packed."""
_BFLOAT16, _HALF = 14, 19


def is_event_file(head: bytes) -> bool:
    """Whether these first bytes (12 are enough) begin a row of records."""
    if len(head) < _HEAD.size:
        return False
    length, crc = _HEAD.unpack_from(head)
    return bool(length < _MOST_BYTES and crc == masked(crc32c(head[:8])))


def read_tensorboard(file: LogFile, rows: LogRows) -> None:
    """Read the scalars of one event file.

    Raises
    ------
    InputError
        A record is damaged.
    """
    plugins: dict[str, str] = {}
    for number, record in enumerate(_records(file, rows), start=1):
        try:
            _add_event(record, rows, plugins, number)
        except ValueError as error:
            raise InputError(f"{file.path}: record {number:,} is no event", found=str(error)) from error


def _records(file: LogFile, rows: LogRows) -> Iterator[bytes]:
    kept, number = bytearray(), 0
    wanted = _HEAD.size
    for chunk in file.chunks():
        kept += chunk
        if len(kept) < wanted:
            continue
        at = 0
        while len(kept) - at >= _HEAD.size:
            head = bytes(kept[at : at + _HEAD.size])
            if not is_event_file(head):
                if not any(kept[at:]):
                    break  # zeros to the end so far: a node that died before the system wrote
                raise InputError(
                    f"{file.path} is damaged", found=f"the length of record {number + 1:,} does not fit its checksum"
                )
            length = _HEAD.unpack(head)[0]
            wanted = _HEAD.size + length + 4
            if len(kept) - at < wanted:
                break
            record = bytes(kept[at + _HEAD.size : at + _HEAD.size + length])
            if int.from_bytes(kept[at + wanted - 4 : at + wanted], "little") != masked(crc32c(record)):
                raise InputError(f"{file.path} is damaged", found=f"record {number + 1:,} does not fit its checksum")
            number += 1
            yield record
            at += wanted
            wanted = _HEAD.size
        del kept[:at]
    if kept:
        rows.problem("torn", number + 1, f"{len(kept):,} bytes of an incomplete record")


def _add_event(event: bytes, rows: LogRows, plugins: dict[str, str], number: int) -> None:
    time, step, points = math.nan, 0, {}
    for field, _, value in fields_of(event):
        if field == _EVENT_TIME and isinstance(value, int):
            time = _double(value)
        elif field == _EVENT_STEP and isinstance(value, int):
            step = signed(value)
        elif field == _EVENT_SUMMARY and isinstance(value, bytes):
            for inner, _, content in fields_of(value):
                if inner == _SUMMARY_VALUE and isinstance(content, bytes):
                    tag, scalar = _scalar(content, plugins)
                    if scalar is not None:
                        points[tag] = scalar
    rows.add(step, points, line=number, time=time)


def _scalar(message: bytes, plugins: dict[str, str]) -> tuple[str, float | None]:
    tag, simple, tensor = "", None, None
    for field, _, value in fields_of(message):
        if field == _VALUE_TAG and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == _VALUE_SIMPLE and isinstance(value, int):
            simple = _float(value)
        elif field == _VALUE_TENSOR and isinstance(value, bytes):
            tensor = value
        elif field == _VALUE_METADATA and isinstance(value, bytes):
            plugins.setdefault(tag, _plugin(value))
    if simple is not None:
        return tag, simple
    if tensor is None or plugins.get(tag, "") not in ("", "scalars"):
        return tag, None
    return tag, _tensor(tensor)


def _plugin(metadata: bytes) -> str:
    for field, _, value in fields_of(metadata):
        if field == 1 and isinstance(value, bytes):
            for inner, _, name in fields_of(value):
                if inner == 1 and isinstance(name, bytes):
                    return name.decode("utf-8", "replace")
    return ""


def _tensor(message: bytes) -> float | None:
    """The one number of a tensor; None where it holds another count of them, or no numbers."""
    kind, content, numbers = 0, b"", list[float]()
    for field, wire, value in fields_of(message):
        if field == _TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif (
            field == _TENSOR_SHAPE and isinstance(value, bytes) and any(inner != 3 for inner, _, _ in fields_of(value))
        ):
            if _num_values(value) != 1:
                return None
        elif field == _TENSOR_CONTENT and isinstance(value, bytes):
            content = value
        elif field == _FLOAT_VALUES:
            numbers += [_float(each) for each in _fixed(value, 4)]
        elif field == _DOUBLE_VALUES:
            numbers += [_double(each) for each in _fixed(value, 8)]
        elif field in (_INT_VALUES, _INT64_VALUES):
            numbers += [float(signed(each)) for each in _varints(value, wire)]
        elif field == _UINT64_VALUES:
            numbers += [float(each) for each in _varints(value, wire)]
        elif field == _HALF_VALUES:
            numbers += [_half(each, kind) for each in _varints(value, wire)]
    if content:
        if kind == _BFLOAT16:
            numbers = [_half(int.from_bytes(content, "little"), kind)] if len(content) == 2 else []
        else:
            packing = _FORMATS.get(kind)
            fits = packing is not None and struct.calcsize(packing) == len(content)
            numbers = [float(struct.unpack(packing, content)[0])] if packing is not None and fits else []
    return numbers[0] if len(numbers) == 1 else None


def _num_values(shape: bytes) -> int:
    count = 1
    for field, _, dimension in fields_of(shape):
        if field == 2 and isinstance(dimension, bytes):
            sizes = [value for inner, _, value in fields_of(dimension) if inner == 1 and isinstance(value, int)]
            count *= signed(sizes[0]) if sizes else 0
    return count


def _fixed(value: int | bytes, size: int) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [int.from_bytes(value[at : at + size], "little") for at in range(0, len(value), size)]


def _varints(value: int | bytes, wire: int) -> list[int]:
    return [value] if isinstance(value, int) and wire == 0 else varints_of(value) if isinstance(value, bytes) else []


def _float(bits: int) -> float:
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def _double(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def _half(bits: int, kind: int) -> float:
    if kind == _BFLOAT16:
        return _float((bits & 0xFFFF) << 16)
    return float(struct.unpack("<e", (bits & 0xFFFF).to_bytes(2, "little"))[0])
