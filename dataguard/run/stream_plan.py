"""Which batches does a named stream have, and in which order?

``once`` is one whole pass: the sources one after the other, in the order of the manifest, so that the only padding is
behind the last sample of each (at most one slot a lane, and what fills up the last batch). It is not shuffled: every
sample comes anyway, and blocks are read in their order. Of a number of steps the samples are mixed and shuffled, since
the beginning of a corpus says little of the rest of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dataguard.errors import UsageError
from dataguard.plan.plan import Plan

if TYPE_CHECKING:
    from dataguard.core.manifest import Manifest
    from dataguard.plan.document import Form, Shuffle
    from dataguard.plan.plan import HasManifest, Weight

__all__ = ["stream_plan"]


def stream_plan(
    corpus: HasManifest | Manifest,
    *,
    end: int | str,
    global_batch: int,
    form: Form,
    seq_len: int | None,
    seed: int = 0,
    lanes: int | None = None,
    window_blocks: int = 256,
    shuffle: Shuffle | None = None,
    weights: Mapping[str, Weight] | None = None,
) -> tuple[Plan, int | None]:
    """The plan of a stream, and its number of steps; None for one whole pass.

    Parameters
    ----------
    end
        ``once``, or a number of steps.
    global_batch, form, seq_len
        Of a batch and of a sample. `Run.stream` takes what is left out from the run's own plan.
    seed
        0 unless told otherwise, and not the run's: runs of other seeds are compared on the same set.
    shuffle
        Default: ``none`` for a whole pass, ``blocks`` for a number of steps.
    weights
        For a number of steps; in a whole pass every source is had once.
    lanes, window_blocks
        As `Plan` takes them.

    Raises
    ------
    UsageError
        An end that cannot be, or weights beside ``once``.
    PlanError
        Anything else that cannot be.
    """
    once = end == "once"
    if not once and (isinstance(end, bool) or not isinstance(end, int) or end < 1):
        raise UsageError(f"a stream cannot end at {end!r}", allowed='"once" (one whole pass), or a number of steps')
    if once and weights is not None:
        raise UsageError(
            "a stream of one whole pass has no weights: every sample of every source comes once",
            todo="leave them out, or give end=NUMBER_OF_STEPS",
        )
    given = {
        "seed": seed,
        "global_batch": global_batch,
        "form": form,
        "seq_len": seq_len,
        "lanes": lanes,
        "window_blocks": window_blocks,
        "shuffle": ("none" if once else "blocks") if shuffle is None else shuffle,
    }
    if not once:
        assert isinstance(end, int)
        return Plan(corpus, weights=weights, **given), end  # type: ignore[arg-type]
    plan = Plan(corpus, **given)  # type: ignore[arg-type]
    names = [source.name for source in plan.manifests[plan.root.manifest].sources]
    if len(names) > 1:
        # A rare source among others would have its last sample far behind the last of theirs, and padding up to there.
        plan = _one_after_the_other(corpus, names, given)
    return plan, None


def _one_after_the_other(corpus: HasManifest | Manifest, names: list[str], given: Mapping[str, Any]) -> Plan:
    """A plan that goes through each source as a whole before it begins the next."""

    def only(name: str) -> dict[str, int]:
        return {each: int(each == name) for each in names}

    plan = Plan(corpus, weights=only(names[0]), **given)
    for before, name in pairwise(names):
        plan = plan.amended(plan.stream().end_of_epoch(before, 0), weights=only(name))
    return plan
