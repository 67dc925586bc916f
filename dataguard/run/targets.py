"""Which samples does a shard or a row stand for, and where does the stream hold them next?

Names are looked up in every manifest that the run or one of its attempts reads. What is said of them is counted by the
plan's own tables and found by the stream's own inverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dataguard.core.manifest import Manifest
from dataguard.errors import NotInRun
from dataguard.plan.attempts import in_force
from dataguard.plan.document import Root
from dataguard.plan.skips import SkippedBy
from dataguard.plan.steps import Steps
from dataguard.plan.tables import samples_of_blocks
from dataguard.run.amended import Place
from dataguard.run.run import Run
from dataguard.run.withhold import Target, resolve_targets

__all__ = ["AboutTargets", "about_targets", "known_targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutTargets:
    """What is worth saying of some shards and rows."""

    num_samples: int
    """Samples that they hold in one epoch, as the mixture in force reads them."""
    places: tuple[Place, ...]
    """Of a single row: where the stream holds it next."""
    notes: tuple[str, ...]


def known_targets(run: Run, targets: Iterable[Target]) -> list[Target]:
    """The same with canonical names, sorted, each once; NotInRun, with the nearest names, for what is not there."""
    return resolve_targets(targets, run.manifests.values(), seq_len=run.plan_document().root.seq_len)


def about_targets(run: Run, targets: list[Target], *, steps: Steps, attempt: int | None, start: int) -> AboutTargets:
    """Count targets, and find a single row in the stream.

    Parameters
    ----------
    targets
        With canonical names.
    steps
        The lineage whose steps are named.
    attempt
        Its leaf; None where no attempt has begun.
    start
        First position that matters: where an attempt that goes on would begin.
    """
    plan = run.plan if attempt is None else run.plan_of(attempt)
    mixture = in_force(plan.document.mixtures, start)[0]
    manifest, root = plan.manifests[mixture.manifest], plan.root
    counts = _Counts(manifest, root)
    notes: list[str] = []
    num_samples, unread, weightless = 0, 0, 0
    whole = {shard for shard, row in targets if row is None}
    for shard, row in targets:
        number = counts.numbers.get(shard)
        if number is None:
            unread += 1
        elif manifest.sources[manifest.shards[number].source].name not in mixture.weights:
            weightless += 1
        elif row is None:
            num_samples += counts.of_shard(number)
        elif shard not in whole:
            num_samples += counts.of_row(number, row)
    what = "it" if len(targets) == 1 else "{} of them"
    if unread:
        notes.append(f"{what.format(unread)} is not read by the mixture in force: nothing changes for its stream")
    if weightless:
        notes.append(f"{what.format(weightless)} belongs to a source without weight, which delivers nothing")
    if len(targets) == 1 and not num_samples and not unread and not weightless:
        notes.append("it holds no sample: what was rejected when the manifest was built is never delivered")
    places: tuple[Place, ...] = ()
    if len(targets) == 1 and targets[0][1] is not None and num_samples:
        places = _places(run, targets[0][0], targets[0][1], steps, attempt, start)
    return AboutTargets(num_samples=num_samples, places=places, notes=tuple(notes))


class _Counts:
    """Samples of the shards and rows of one manifest."""

    def __init__(self, manifest: Manifest, root: Root) -> None:
        self.manifest = manifest
        self.root = root
        self.numbers = {manifest.shard_name(i): i for i in range(len(manifest.shards))}
        self._samples = samples_of_blocks(manifest, root.form, root.seq_len)

    def of_shard(self, shard: int) -> int:
        first, stop = self.manifest.block_starts[shard], self.manifest.block_starts[shard + 1]
        return int(self._samples[first:stop].sum())

    def of_row(self, shard: int, row: int) -> int:
        """1 where the row is a sample, 0 where it was rejected or its shard excluded."""
        if self.root.form == "window":
            return int(row < self.of_shard(shard))
        if self.manifest.shards[shard].effect == "excluded" or row >= self.manifest.shards[shard].num_rows:
            return 0
        block = self.manifest.block_of(shard, row)
        first, stop = self.manifest.rejected_starts[block], self.manifest.rejected_starts[block + 1]
        return int(row not in self.manifest.rejected["row"][first:stop])


def _places(run: Run, shard: str, row: int, steps: Steps, attempt: int | None, start: int) -> tuple[Place, ...]:
    """Where the stream holds a row from `start` to the end of the epoch that its source is in."""
    stream = run.plan.stream() if attempt is None else run.stream_of(attempt)
    numbers = stream.manifest_set
    places: list[Place] = []
    for number in numbers.find_shards(shard):
        if numbers.shard_name(number) != shard:
            continue
        source = numbers.source_name(number)
        begun = stream.epochs_begun(source, start)
        try:
            stop = stream.end_of_epoch(source, 0 if begun is None else begun[1])
        except NotInRun:
            continue
        for found in stream.find(number, row, start=start, stop=max(start, stop)):
            located = steps.locate(found.position)
            step = None if isinstance(located, SkippedBy) else run.label(located.step)
            batch = run.label(steps.batch_index(found.position))
            places.append(Place(position=found.position, step=step, batch=batch, epoch=found.epoch))
    return tuple(sorted(places, key=lambda place: place.position))
