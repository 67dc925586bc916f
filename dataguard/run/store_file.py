"""What is one file of the batch store, and when can it be trusted?

``store/attempt=0001/step-000009000/rank=00000.safetensors.zst`` holds the microbatches of one rank and step that were
kept: their tensors, in one safetensors file inside one zstd frame with checksum and content size. A tensor is called
``microbatch=M/NAME``; the metadata (``dataguard``, one JSON document) say which run, attempt, rank and step it is of
and give two digests a microbatch:

- `made_of`, over slot order, mask and canonical bytes of the samples, and
- `digest`, the one that the index keeps: over the tensors and `made_of`, or, where the samples were handed over as
  they are, `made_of` itself.

A microbatch is kept in one of three forms. ``records``: ``bytes`` (u8, all records one behind the other), ``offsets``
(i64, shape (n + 1,)) and ``mask`` (bool, shape (n,)). ``ids``: ``ids`` and ``mask``, both of shape (n, seq_len). Both
have ``delivered`` (bool, shape (n,)), which is False where a slot delivers nothing. ``tensors``: what a transform made,
by its names.

Reading decompresses under a limit, refuses a file that stands in another's place, and takes every digest again. What is
wrong with a file is one error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from dataguard.core.digests import canonical_json, canonical_tokens, microbatch_digest, sample_digest
from dataguard.core.microbatch import NOTHING
from dataguard.core.safetensors import safetensors_parts, split_safetensors
from dataguard.core.tensors import NamedTensor, Tensors, tensors_digest
from dataguard.errors import RunDamaged

__all__ = ["MOST_BYTES", "KeptMicrobatch", "StoreFile", "StoredMicrobatch", "encode_store", "read_store"]

MOST_BYTES = 1 << 31
"""Of one file before compression: more is neither written nor read."""
_LEVEL = 1
_KEY = "dataguard"

StoredForm = Literal["records", "ids", "tensors"]
NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
"""xxh3-128, hexadecimal."""


class StoredMicrobatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a store file says of one of its microbatches."""

    microbatch: NonNegative
    form: StoredForm
    slots: tuple[NonNegative, NonNegative]
    """Of the global batch, half-open."""
    made_of: Digest
    """Over slot order, mask and canonical bytes of the samples."""
    digest: Digest
    """As the index keeps it."""


class StoreFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a store file says about itself: its metadata ``dataguard``. Steps count from 0."""

    version: Literal[1] = 1
    run: str
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    rank: NonNegative
    step: NonNegative
    microbatches: tuple[StoredMicrobatch, ...]
    """In order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptMicrobatch:
    """One microbatch for the store, or out of it."""

    microbatch: int
    form: StoredForm
    slots: range
    made_of: bytes
    """16 bytes."""
    digest: bytes
    """16 bytes."""
    tensors: Tensors
    """By the names that the form has."""

    @property
    def num_bytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())

    def owned(self) -> KeptMicrobatch:
        """The same with buffers of its own: what was handed over may be changed by whoever has it."""
        tensors = {
            name: tensor if isinstance(tensor.data, bytes) else replace(tensor, data=memoryview(tensor.data).tobytes())
            for name, tensor in self.tensors.items()
        }
        return replace(self, tensors=tensors)

    def records(self) -> tuple[bytes, ...]:
        """Form ``records``: the record of each slot."""
        offsets = _array(self.tensors["offsets"], "<i8").tolist()
        content = memoryview(self.tensors["bytes"].data)
        return tuple(bytes(content[a:b]) for a, b in pairwise(offsets))

    def ids(self) -> NDArray[Any]:
        """Form ``ids``: shape (n, seq_len)."""
        ids = self.tensors["ids"]
        return _array(ids, {"I32": "<i4", "I64": "<i8"}[ids.dtype])

    def mask(self) -> NDArray[np.bool_]:
        """Forms ``records`` and ``ids``: True where it counts."""
        return _array(self.tensors["mask"], "?")

    def delivered(self) -> NDArray[np.bool_]:
        """Forms ``records`` and ``ids``: False where a slot delivers nothing."""
        return _array(self.tensors["delivered"], "?")

    def sample_digests(self) -> tuple[bytes, ...] | None:
        """xxh3-128 of each sample's canonical bytes; None where tensors are kept alone."""
        if self.form == "tensors":
            return None
        delivered = self.delivered().tolist()
        return tuple(
            sample_digest(content) if there else NOTHING
            for content, there in zip(self._canonical(), delivered, strict=True)
        )

    def digest_again(self) -> bytes:
        """The digest of what is here. ValueError where the tensors are not those of its form."""
        if self.form == "tensors":
            return tensors_digest(self.made_of, self.tensors)
        try:
            masks = [line.tobytes() for line in self.mask().view(np.uint8)]
            return microbatch_digest(self._canonical(), masks)
        except (KeyError, ValueError, IndexError) as error:
            raise ValueError(f"microbatch {self.microbatch} has not the tensors of form {self.form}") from error

    def _canonical(self) -> list[bytes]:
        if self.form == "records":
            return list(self.records())
        delivered = self.delivered().tolist()
        return [canonical_tokens(line) if there else b"" for line, there in zip(self.ids(), delivered, strict=True)]


def _array(tensor: NamedTensor, dtype: str) -> NDArray[Any]:
    return np.frombuffer(tensor.data, dtype).reshape(tensor.shape)


def encode_store(header: Mapping[str, Any], kept: Sequence[KeptMicrobatch]) -> bytes:
    """The bytes of a store file.

    Parameters
    ----------
    header
        run, attempt, rank and step.
    kept
        At least one microbatch, in order.

    Examples
    --------
    >>> one = KeptMicrobatch(microbatch=0, form="tensors", slots=range(2), made_of=bytes(16), digest=bytes(16),
    ...                      tensors={"x": NamedTensor(dtype="BF16", shape=(1, 2), data=b"abcd")})
    >>> encode_store({"run": "r", "attempt": 1, "rank": 0, "step": 9}, [one])[:4].hex()
    '28b52ffd'
    """
    document = StoreFile(
        microbatches=tuple(
            StoredMicrobatch(
                microbatch=each.microbatch,
                form=each.form,
                slots=(each.slots.start, each.slots.stop),
                made_of=each.made_of.hex(),
                digest=each.digest.hex(),
            )
            for each in kept
        ),
        **header,
    )
    tensors = {f"{_prefix(each.microbatch)}{name}": tensor for each in kept for name, tensor in each.tensors.items()}
    parts = safetensors_parts(tensors, {_KEY: canonical_json(document).decode()})
    size = sum(memoryview(part).nbytes for part in parts)
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True).compressobj(size=size)
    # Buffers are given as bytes: a tensor's may have several axes.
    packed = [packer.compress(memoryview(part).cast("B")) for part in parts if memoryview(part).nbytes]
    return b"".join([*packed, packer.flush()])


def read_store(path: Path, *, run: str, attempt: int, rank: int, step: int) -> tuple[StoreFile, list[KeptMicrobatch]]:
    """A store file and the microbatches in it, every digest checked.

    Parameters
    ----------
    run, attempt, rank, step
        Whose it must be.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    RunDamaged
        It cannot be trusted; the error names it and says why.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunDamaged(f"store file {path} cannot be read", found=error.strerror or str(error)) from error
    try:
        return _decoded(raw, {"run": run, "attempt": attempt, "rank": rank, "step": step})
    except (ValueError, zstandard.ZstdError) as error:
        raise RunDamaged(
            f"store file {path} cannot be trusted",
            found=str(error),
            todo="what it held is rebuilt from the plan where the shards are there; "
            "`dataguard store prune` removes the file",
        ) from error


def _decoded(raw: bytes, whose: Mapping[str, Any]) -> tuple[StoreFile, list[KeptMicrobatch]]:
    size = zstandard.frame_content_size(raw)
    if size < 0 or not zstandard.get_frame_parameters(raw).has_checksum:
        raise ValueError("it does not say how large its content is, or has no checksum")
    if size > MOST_BYTES:
        raise ValueError(f"its content would be {size:,} bytes, and at most {MOST_BYTES:,} are read")
    content = zstandard.ZstdDecompressor().decompress(raw, max_output_size=size, allow_extra_data=False)
    metadata, tensors = split_safetensors(content)
    if _KEY not in metadata:
        raise ValueError(f"its metadata have no {_KEY!r}")
    document = _document(metadata[_KEY].encode())
    stands = {name: getattr(document, name) for name in whose}
    if stands != whose:
        raise ValueError(f"it is another file in this one's place: it says {_told(stands)}, not {_told(whose)}")
    kept = [_kept(each, tensors) for each in document.microbatches]
    if tensors:
        raise ValueError(f"tensor {min(tensors)!r} belongs to none of its microbatches")
    for each in kept:
        again = each.digest_again()
        if again != each.digest:
            raise ValueError(f"microbatch {each.microbatch} has digest {again.hex()}, not {each.digest.hex()}")
    return document, kept


class _Version(msgspec.Struct, frozen=True):
    version: int


def _document(content: bytes) -> StoreFile:
    version = msgspec.json.decode(content, type=_Version).version
    if version != 1:
        raise ValueError(f"it has format version {version}, and this dataguard reads version 1")
    return msgspec.json.decode(content, type=StoreFile)


def _kept(said: StoredMicrobatch, tensors: dict[str, NamedTensor]) -> KeptMicrobatch:
    """One microbatch; its tensors are taken out of `tensors`."""
    prefix = _prefix(said.microbatch)
    own = [name for name in tensors if name.startswith(prefix)]
    return KeptMicrobatch(
        microbatch=said.microbatch,
        form=said.form,
        slots=range(*said.slots),
        made_of=bytes.fromhex(said.made_of),
        digest=bytes.fromhex(said.digest),
        tensors={name.removeprefix(prefix): tensors.pop(name) for name in own},
    )


def _prefix(microbatch: int) -> str:
    return f"microbatch={microbatch}/"


def _told(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
