"""What is planned where somebody else decides the order?

A trainer that has a loader of its own gives the order from outside: its sampler says which row stands in which slot,
and nobody knows it before it happens. Such a run has a plan of form ``given``: one source, `SOURCE`, of one shard,
whose rows are the indices of the trainer's data set; or, where its batches come without indices, the ordinals of what
was delivered. There is one lane and no shuffle, so a step still is a stretch of positions, and a position still is a
slot; addresses, attempts, forks and exactly-once work as they always do. Which row stood at a position the index says,
and it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, ManifestSet, Shard, Source
from dataguard.errors import PlanError, UsageError
from dataguard.plan.document import ALGORITHMS, BatchSize, Mixture, PlanDocument, Root
from dataguard.plan.inverse import Placement
from dataguard.plan.plan import Plan
from dataguard.plan.stream import Samples, Stream

__all__ = ["MOST_ROWS", "SOURCE", "GivenStream", "RowKind", "given_plan", "require_planned_order", "row_kind"]

SOURCE = "dataset"
"""Name of the one source."""
MOST_ROWS = 1 << 60
"""Rows of a shard of ordinals: as many as there are positions."""

RowKind = Literal["indices", "ordinals"]
"""What a row number is: an index of the data set, or the how-many-th sample was delivered in this slot's place."""


def given_plan(*, num_rows: int | None, global_batch: int, first_label: Literal[0, 1] = 0) -> Plan:
    """The plan of a run whose order is given from outside.

    Parameters
    ----------
    num_rows
        Rows of the data set; None where batches come without indices, and rows are ordinals.
    global_batch
        Slots of a global batch.
    first_label
        What the trainer calls its first step.

    Raises
    ------
    PlanError
        A data set of no rows, or a batch of no slots.

    Examples
    --------
    >>> plan = given_plan(num_rows=1_000, global_batch=16)
    >>> plan.root.form, row_kind(plan), plan.steps().batch(2).positions.tolist()[:3]
    ('given', 'indices', [32, 33, 34])
    """
    if num_rows is not None and not 1 <= num_rows <= MOST_ROWS:
        raise PlanError(f"a data set of {num_rows:,} rows cannot be", allowed=f"1 to {MOST_ROWS:,}")
    manifest = _manifest("ordinals" if num_rows is None else "indices", MOST_ROWS if num_rows is None else num_rows)
    root = Root(
        manifest=manifest.digest,
        seed=0,
        form="given",
        seq_len=None,
        lanes=1,
        window_blocks=1,
        shuffle="none",
        algorithms=ALGORITHMS,
    )
    document = PlanDocument(
        root=root,
        mixtures=(Mixture(start=0, manifest=manifest.digest, weights={SOURCE: 1}),),
        batch_sizes=(BatchSize(start=0, size=global_batch),),
        first_label=first_label,
    )
    return Plan.from_document(document, {manifest.digest: manifest})


def row_kind(plan: Plan) -> RowKind:
    """What a row number of such a plan is."""
    manifest = plan.manifests[plan.root.manifest]
    return "ordinals" if manifest.shards[0].path == "ordinals" else "indices"


def require_planned_order(root: Root, what: str, *, todo: str) -> None:
    """UsageError where the order of a run is given from outside, so that `what` means nothing there."""
    if root.form == "given":
        raise UsageError(
            f"{what} means nothing in this run",
            found="its order is given from outside, by a loader that dataguard.torch.guard() watches and cannot move",
            todo=todo,
        )


def _manifest(kind: RowKind, num_rows: int) -> Manifest:
    blocks = np.zeros(1, BLOCK_DTYPE)
    blocks["num_rows"], blocks["offset_bytes"], blocks["group"] = num_rows, -1, -1
    shard = Shard(
        source=0,
        path=kind,
        format="given",
        compression="none",
        item_type="",
        size_bytes=0,
        digest="0" * 32,  # nobody has read the data set as a whole
        num_rows=num_rows,
        effect="clean",
    )
    return Manifest(
        sources=(Source(name=SOURCE, kind="tokens", text_field=""),),
        shards=(shard,),
        blocks=blocks,
        rejected=np.zeros(0, REJECTED_DTYPE),
        codes=(),
    )


class GivenStream(Stream):
    """The stream of such a plan: it has names and numbers of source and shard, and no order."""

    def __init__(self, root: Root, mixtures: Sequence[Mixture], manifests: Mapping[str, Manifest]) -> None:
        self.root = root
        self.mixtures = tuple(mixtures)
        self.manifest_set = ManifestSet([manifests[d] for d in dict.fromkeys(each.manifest for each in mixtures)])
        self.source_names = (SOURCE,)

    def samples(self, positions: NDArray[np.int64]) -> Samples:
        """PlanError: no plan says what stands at a position."""
        _no_order(f"what stands at positions {positions.min():,} and on" if len(positions) else "a stream of nothing")

    def substitute(self, position: int, source: int, generation: int, draw: int) -> tuple[int, int, int]:  # noqa: ARG002
        """PlanError: nothing is drawn in place of a sample."""
        _no_order(f"a substitute at position {position:,}")

    def is_removed(self, position: int, source: int, generation: int, shard: int) -> bool:  # noqa: ARG002
        """No shard is ever removed."""
        return False

    def find(self, shard: int, row: int, *, start: int = 0, stop: int) -> list[Placement]:  # noqa: ARG002
        """PlanError: no plan says where a row stands."""
        _no_order(f"where row {row:,} stands")

    def epochs_begun(self, source: str, position: int) -> tuple[int, int] | None:  # noqa: ARG002
        """None: whoever gives the order counts its epochs."""
        return None

    def end_of_epoch(self, source: str, epoch: int) -> int:  # noqa: ARG002
        """PlanError: no plan says where an epoch ends."""
        _no_order(f"where epoch {epoch} ends")

    def end_of_epochs(self, epochs: int) -> int:
        """PlanError: no plan says where an epoch ends."""
        _no_order(f"where {epochs} epochs end")


def _no_order(what: str) -> NoReturn:
    raise PlanError(
        f"{what} is in no plan",
        found="a run whose order is given from outside",
        todo="look it up in the index: dataguard inspect, where and seen do",
    )
