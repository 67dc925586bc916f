"""How is a named stream of a run evaluated?

By a `Loader` over the stream's own folder, that begins an evaluation where another would begin an attempt: at step 0,
with the end that the stream has. Everything else is a loader's: ranks agree, read ahead, and record each microbatch
before it is handed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataguard.core.address import Geometry
from dataguard.errors import UsageError
from dataguard.loader.loader import Loader
from dataguard.run.streams import NamedStream

__all__ = ["evaluation_settings", "stream_loader"]

_FIXED = frozenset(
    (
        *("steps", "epochs", "from_step", "parent", "global_batch", "corpus", "weights", "policy", "profile"),
        *("vocab_size", "steps_per_epoch"),
    )
)
"""What a stream has once and for all."""


def stream_loader(
    stream: NamedStream,
    *,
    geometry: Geometry | None = None,
    rank: int = 0,
    **settings: Any,
) -> Loader:
    """One evaluation of a stream, as an iterator of the microbatches of one rank.

    Parameters
    ----------
    geometry
        World size and microbatch size, the same on all ranks; any that divides the stream's global batch gives the same
        batches. Default: one rank, a microbatch a step.
    rank
        This rank.
    settings
        at_step and at_attempt say where the training stands, in the trainer's labels: recorded, and the same on all
        ranks. Default: what a loader of this process and rank was handed last; else nothing is recorded of it. All
        others are as `Loader` takes them: launch_id (it may be that of the training), num_threads, prefetch,
        on_unreadable, roots, cache_bytes, join_timeout_seconds, fsync, peers. A row that cannot be read is masked,
        unless `on_unreadable` is ``halt``.

    Raises
    ------
    GeometryError
        World size and microbatch size do not divide the stream's global batch.
    UsageError
        A setting that would change what the stream gives.
    """
    if geometry is None:
        geometry = Geometry(world_size=1, microbatch_size=stream.plan.global_batch)
    return Loader(stream.run, geometry=geometry, rank=rank, **evaluation_settings(stream, settings, rank=rank))


def evaluation_settings(stream: NamedStream, settings: Mapping[str, Any], *, rank: int | None) -> dict[str, Any]:
    """Settings of a loader over ``stream.run`` that evaluates the stream; for adapters.

    Parameters
    ----------
    settings
        As they were given: those of a `Loader`, and at_step and at_attempt.
    rank
        Of this process; None where it is not known yet.

    Raises
    ------
    UsageError
        A setting that would change what the stream gives.
    """
    fixed = sorted(_FIXED & {*settings})
    if fixed:
        raise UsageError(
            f"{', '.join(fixed)} cannot be given for an evaluation: stream {stream.name!r} is a fixed set",
            todo="add another stream, under another name",
        )
    given = dict(settings)
    at = stream.at(given.pop("at_step", None), given.pop("at_attempt", None), rank=rank)
    return {**given, "evaluation": at, **stream.end_settings}
