"""Small runs whose samples, losses and gradient norms are known, and into which one thing is planted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dataguard.core.address import Geometry
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.loader.rehearse import rehearse
from dataguard.plan.plan import Plan
from dataguard.run.index import Index
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records

_LINES = (
    "the of and to in is was for that with as his on be at by had not are but from or have an they which one you were",
    "all her she there would their we him been has when who will no more if out so up said what its about than into",
)
WORDS = tuple(word for line in _LINES for word in line.split())


def prose(random: np.random.Generator, num_words: int) -> str:
    """Words as often as words are, each ninth with a capital and a full stop."""
    drawn = random.zipf(1.3, num_words) % len(WORDS)
    return " ".join(WORDS[k] if i % 9 else WORDS[k].capitalize() + "." for i, k in enumerate(drawn.tolist()))


def ordinary(random: np.random.Generator, num_rows: int) -> list[str]:
    """Records of prose whose lengths are log-normal."""
    return [prose(random, int(np.clip(random.lognormal(3.4, 0.5), 5, 300))) for _ in range(num_rows)]


def write(folder: Path, shards: Mapping[str, Sequence[str]]) -> Corpus:
    """JSON lines by ``SOURCE/NAME``, and their manifest."""
    sources: dict[str, Path] = {}
    for name, texts in shards.items():
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts))
        sources[name.partition("/")[0]] = path.parent
    made_of = [f"{source}={path}" for source, path in sources.items()]
    build_manifest_file(made_of, folder / "M.parquet", num_workers=1)
    return Corpus.open(folder / "M.parquet")


@dataclass(kw_only=True)
class Planted:
    """A run that has been walked, and what was delivered in it."""

    run: Run
    records: np.ndarray
    """Index records of attempt 1, in order."""
    num_ranks: int
    random: np.random.Generator
    losses: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        steps = self.records["step"].astype(float)
        self.losses = 2 + 4 * np.exp(-steps / 60) + self.random.normal(0, 0.1, len(steps))

    def shard(self, name: str) -> np.ndarray:
        """Which samples are of a shard."""
        manifests = self.run.stream_of(1).manifest_set
        (number,) = manifests.find_shards(f"web/{name}.jsonl")
        return self.records["shard"] == number

    def log(
        self,
        *,
        samples: bool = True,
        ranks: bool = True,
        reduced: bool = False,
        norms: np.ndarray | None = None,
        change: Callable[[np.ndarray], None] | None = None,
        attempt: int = 1,
    ) -> None:
        """Write telemetry of every rank; `change` may change the table of losses by step and rank in place."""
        steps = np.unique(self.records["step"]).astype(int)
        table = np.zeros((len(steps), self.num_ranks))
        for i, step in enumerate(steps):
            for rank in range(self.num_ranks):
                mine = (self.records["step"] == step) & (self.records["rank"] == rank)
                table[i, rank] = self.losses[mine].mean()
        if change is not None:
            change(table)
        if reduced:
            table[:] = table.mean(axis=1, keepdims=True)
        for rank in range(self.num_ranks):
            with open_telemetry(self.run, attempt, rank, fenced=False) as writer:
                for i, step in enumerate(steps):
                    mine = (self.records["step"] == step) & (self.records["rank"] == rank)
                    if samples:
                        slots = self.records["slot"][mine].astype(int)
                        writer.append(telemetry_records(int(step), "loss", self.losses[mine], time_ns=1, slots=slots))
                    if ranks:
                        writer.append(telemetry_records(int(step), ["loss"], [table[i, rank]], time_ns=1))
                    if norms is not None:
                        names = ["local_grad_norm/a", "local_grad_norm/b"]
                        both = [0.6 * norms[i, rank], 0.8 * norms[i, rank]]
                        writer.append(telemetry_records(int(step), names, both, time_ns=1))


def walk(
    path: Path,
    corpus: Corpus,
    *,
    num_ranks: int = 1,
    steps: int = 60,
    global_batch: int = 8,
    seed: int = 7,
    policy: str | None = None,
    **plan: object,
) -> Planted:
    """Deliver all steps of a new run to all ranks."""
    run = Run.create(path, Plan(corpus, **{"seed": seed, "global_batch": global_batch, **plan}), policy=policy)
    rehearse(run, geometry=Geometry(world_size=num_ranks, microbatch_size=global_batch // num_ranks), steps=steps)
    parts = [*Index(run.layout).records(1, num_ranks=num_ranks)]
    records = np.concatenate(parts)
    order = np.lexsort((records["slot"], records["step"]))
    return Planted(run=run, records=records[order], num_ranks=num_ranks, random=np.random.default_rng(seed))


def event_at(step: int, *, event_class: EventClass = EventClass.HARD_BATCH, **more: int) -> SpikeEvent:
    """One step that stands out."""
    return SpikeEvent(event_class=event_class, start=step, stop=step + 1, peak=step, size_nats=1.0, sigmas=9.0, **more)
