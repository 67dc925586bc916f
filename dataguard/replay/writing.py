"""How is a replayed step written down for whoever wants to look at it?

``samples.parquet``, a row a slot; and, where the tensors that were delivered are known, one safetensors file a
microbatch, ``rank=R/microbatch=M.safetensors``, by the names they were delivered under.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dataguard.core.safetensors import safetensors_parts
from dataguard.errors import WriteFailed
from dataguard.replay.answers import ReplayAnswer
from dataguard.replay.rebuild import Rebuilt
from dataguard.run.atomic import publish, write_failed
from dataguard.score.registry import SIGNALS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_samples", "write_tensors"]

_OURS = re.compile(r"rank=\d+/microbatch=\d+\.safetensors")


def write_tensors(answer: ReplayAnswer, rebuilt: list[Rebuilt], out: Path) -> list[Path]:
    """Write ``OUT/rank=R/microbatch=M.safetensors`` of each microbatch whose tensors are known; which ones.

    Files of these names that an earlier replay left there are removed first: a folder holds one step, never two.

    The files' metadata say attempt, step (in the trainer's labels), rank, microbatch, digests and where they come from.

    Raises
    ------
    WriteFailed
        A folder cannot be made or written.
    """
    _remove_earlier(out)
    written = []
    for each, compared in zip(rebuilt, answer.microbatches, strict=True):
        if each.tensors is None:
            continue
        facts = {
            "attempt": answer.attempt,
            "step": answer.step,
            "rank": compared.rank,
            "microbatch": compared.microbatch,
            "digest": compared.digest,
            "made_of": compared.made_of,
            "origin": compared.origin,
            "status": compared.status,
        }
        parts = safetensors_parts(each.tensors, {name: str(value) for name, value in facts.items()})
        path = out / f"rank={compared.rank}" / f"microbatch={compared.microbatch}.safetensors"
        publish(path, lambda stream, parts=parts: stream.writelines(parts), tmp=out)  # type: ignore[misc]
        written.append(path)
    return written


def _remove_earlier(out: Path) -> None:
    for path in out.glob("rank=*/microbatch=*.safetensors"):
        if _OURS.fullmatch(path.relative_to(out).as_posix()):
            try:
                path.unlink()
            except OSError as error:
                raise write_failed(path, error, doing="remove") from error
            with suppress(OSError):  # there is something else in it
                path.parent.rmdir()


def write_samples(
    answer: ReplayAnswer, rebuilt: list[Rebuilt], out: Path, *, spell: Callable[[NDArray[Any]], bytes] | None = None
) -> Path:
    """Write ``OUT/samples.parquet``: a row a slot.

    Columns: address, sample, status, digests; what the gate says now (verdict, rules, and a column for each signal of
    the policy and the headline, in full precision; absent without a policy); the text (bytes) or ids.

    Parameters
    ----------
    spell
        Gives the text of the ids of a window, which is written beside them.

    Raises
    ------
    WriteFailed
        The folder cannot be made or written.
    """
    import pyarrow.parquet as pq

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(f"{out} cannot be made", found=error.strerror, todo="name another folder with -o") from error
    path = out / "samples.parquet"
    table = _table(answer, rebuilt, spell)

    def write(stream: object) -> None:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)

    publish(path, write, tmp=out)
    return path


def _table(answer: ReplayAnswer, rebuilt: list[Rebuilt], spell: Callable[[NDArray[Any]], bytes] | None) -> pa.Table:
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    windows = any(each.microbatch.ids is not None for each in rebuilt)
    judged = any(each.answers is not None for each in rebuilt)
    signals = dict.fromkeys(name for m in answer.microbatches for s in m.samples for name in s.signals or ())
    for each, compared in zip(rebuilt, answer.microbatches, strict=True):
        microbatch = each.microbatch
        for i, sample in enumerate(compared.samples):
            content: dict[str, Any]
            if microbatch.ids is None:
                # Fetched as tensors: there is no text.
                content = {"text": None if microbatch.records is None else microbatch.records[i]}
            else:
                content = {"ids": microbatch.ids[i].tolist()}
                if spell is not None:
                    content["text"] = spell(microbatch.ids[i]) if microbatch.lengths[i] else b""
            rows.append(
                {
                    "step": answer.step,
                    "rank": compared.rank,
                    "microbatch": compared.microbatch,
                    "slot": sample.slot,
                    "position": sample.position,
                    "source": sample.source,
                    "shard": sample.shard,
                    "row": sample.row,
                    "delivered_shard": sample.delivered.shard if sample.delivered else None,
                    "delivered_row": sample.delivered.row if sample.delivered else None,
                    "status": sample.status,
                    "digest": sample.digest,
                    "recorded_digest": sample.recorded,
                    "verdict": sample.verdict,
                    "rules": sample.rules,
                    **(sample.signals or {}),
                    **content,
                }
            )
    integers = ("step", "rank", "microbatch", "slot", "position", "row", "delivered_row")
    fields = [
        pa.field(name, pa.int64() if name in integers else pa.string())
        for name in (
            *("step", "rank", "microbatch", "slot", "position", "source", "shard", "row"),
            *("delivered_shard", "delivered_row", "status", "digest", "recorded_digest"),
        )
    ]
    if judged:
        fields += [pa.field("verdict", pa.string()), pa.field("rules", pa.list_(pa.string()))]
        fields += [pa.field(name, pa.int64() if SIGNALS[name].whole else pa.float64()) for name in signals]
    fields += [pa.field("ids", pa.list_(pa.int64()))] if windows else []
    fields += [pa.field("text", pa.large_binary())] if not windows or spell is not None else []
    return pa.Table.from_pylist(rows, schema=pa.schema(fields, metadata={"dataguard.samples": "1"}))
