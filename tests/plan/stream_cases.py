"""Small manifests, roots and mixtures for the tests of the stream, and the Hypothesis strategies that make them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.plan.document import ALGORITHMS, Mixture, Root
from dataguard.plan.stream import Samples, Stream


@dataclass(frozen=True)
class ShardSpec:
    """Blocks as strings of '.' (delivered) and 'x' (rejected) rows; for tokens, of '.' tokens."""

    path: str
    blocks: tuple[str, ...]
    digest: str = "d0"
    excluded: bool = False


def make_manifest(sources: dict[str, list[ShardSpec]], *, kind: str = "text", text_field: str = "text") -> Manifest:
    shards, blocks, rejected = [], [], []
    names = sorted(sources, key=str.encode)
    for i, name in enumerate(names):
        for spec in sorted(sources[name], key=lambda spec: spec.path.encode()):
            row = 0
            for block in spec.blocks:
                bad = [row + k for k, mark in enumerate(block) if mark == "x"]
                rejected += [(len(blocks), r, 0) for r in bad]
                blocks.append((len(shards), row, len(block), len(bad), -1, -1, -1, len(block), b""))
                row += len(block)
            shards.append(
                Shard(
                    source=i,
                    path=spec.path,
                    format="jsonl" if kind == "text" else "npy",
                    compression="none",
                    item_type="" if kind == "text" else "<u2",
                    size_bytes=row,
                    digest=spec.digest,
                    num_rows=row,
                    effect="excluded" if spec.excluded else "clean",
                )
            )
    return Manifest(
        sources=tuple(Source(name=name, kind=kind, text_field=text_field if kind == "text" else "") for name in names),
        shards=tuple(shards),
        blocks=np.array(blocks, dtype=BLOCK_DTYPE),
        rejected=np.array(rejected, dtype=REJECTED_DTYPE),
        codes=("bad",) if rejected else (),
    )


def wide_manifest(sources: dict[str, tuple[int, int, int]]) -> Manifest:
    """Sources of (shards, blocks a shard, rows a block), made at once."""
    shards, blocks = [], []
    for i, (_, (num_shards, per_shard, rows)) in enumerate(sorted(sources.items())):
        for s in range(num_shards):
            table = np.zeros(per_shard, dtype=BLOCK_DTYPE)
            table["shard"], table["num_rows"] = len(shards), rows
            table["first_row"] = np.arange(per_shard) * rows
            blocks.append(table)
            shards.append(
                Shard(
                    source=i,
                    path=f"{s:06}",
                    format="jsonl",
                    compression="none",
                    item_type="",
                    size_bytes=1,
                    digest=f"{s:032x}",
                    num_rows=per_shard * rows,
                    effect="clean",
                )
            )
    return Manifest(
        sources=tuple(Source(name=name, kind="text", text_field="text") for name in sorted(sources)),
        shards=tuple(shards),
        blocks=np.concatenate(blocks),
        rejected=np.zeros(0, dtype=REJECTED_DTYPE),
        codes=(),
    )


def make_root(manifest: Manifest, **changes: Any) -> Root:
    fields: dict[str, Any] = {
        "manifest": manifest.digest, "seed": 17, "form": "document", "seq_len": None, "lanes": 4, "window_blocks": 256,
        "shuffle": "blocks", "algorithms": ALGORITHMS,
    }  # fmt: skip
    return Root(**{**fields, **changes})


def mix(manifest: Manifest, start: int = 0, **weights: int) -> Mixture:
    return Mixture(start=start, manifest=manifest.digest, weights=weights)


def stream_of(*mixtures: Mixture, manifests: list[Manifest], bulk: bool = False, block: int = 256, **root) -> Stream:
    first = next(m for m in manifests if m.digest == mixtures[0].manifest)
    return Stream(make_root(first, **root), mixtures, {m.digest: m for m in manifests}, bulk=bulk, mixture_block=block)


def pairs(samples: Samples) -> list[tuple[int, int]]:
    return list(zip(samples.shard.tolist(), samples.row.tolist(), strict=True))


OLD = [ShardSpec("p", ("...",) * 8), ShardSpec("q", ("..",) * 8)]
NEW = [ShardSpec("p", ("...",) * 8), ShardSpec("r", ("..",) * 12)]


@dataclass(frozen=True, repr=False)
class Case:
    """Everything a stream is made of."""

    root: Root
    mixtures: list[Mixture]
    manifests: dict[str, Manifest]
    block: int

    def __repr__(self) -> str:
        mixtures = ", ".join(f"{m.start}: {m.manifest[:4]} {m.weights}" for m in self.mixtures)
        shards = {
            d[:4]: [(m.shard_name(i), s.digest, s.effect) for i, s in enumerate(m.shards)]
            for d, m in self.manifests.items()
        }
        return f"Case({self.root}, mixtures {mixtures}, B {self.block}, shards {shards})"

    @property
    def arguments(self) -> tuple[Root, list[Mixture], dict[str, Manifest]]:
        return self.root, self.mixtures, self.manifests


def _shards(kind: str) -> st.SearchStrategy[list[ShardSpec]]:
    marks = "..x" if kind == "text" else "."
    block = st.text(alphabet=marks, min_size=1, max_size=3 if kind == "text" else 7)
    # Many blocks now and then, so that a source has several lanes of its own.
    blocks = st.one_of(st.lists(block, min_size=1, max_size=4), st.lists(block, min_size=14, max_size=36))
    shard = st.builds(
        ShardSpec,
        path=st.sampled_from(["p", "q", "r/s"]),
        blocks=blocks.map(tuple),
        digest=st.sampled_from(["d0", "d1"]),
        excluded=st.sampled_from([False, False, False, True]),
    )
    return st.lists(shard, min_size=1, max_size=3, unique_by=lambda spec: spec.path)


def _usable(specs: list[ShardSpec], seq_len: int | None) -> bool:
    if seq_len is None:
        return any(not spec.excluded and "." in "".join(spec.blocks) for spec in specs)
    return any(not spec.excluded and sum(map(len, spec.blocks)) >= seq_len for spec in specs)


@st.composite
def cases(draw: st.DrawFn, *, positions: int = 160, most_mixtures: int = 4) -> Case:
    """A stream whose sources grow, shrink, leave and come back at any position."""
    kind = draw(st.sampled_from(["text", "text", "tokens"]))
    seq_len = None if kind == "text" else draw(st.integers(1, 4))
    names = draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "\u00e9"]]))
    usable = _shards(kind).filter(lambda specs: _usable(specs, seq_len))
    state = {name: draw(usable) for name in names}
    starts = sorted({0, *draw(st.lists(st.integers(1, positions), max_size=most_mixtures - 1))})
    manifests, mixtures = [], []
    for start in starts:
        if start == 0 or draw(st.sampled_from([True, True, False])):
            if start:
                name = draw(st.sampled_from(names))
                shards = draw(st.one_of(usable, st.just([replace(s, digest="d2") for s in state[name]])))
                state = {**state, name: shards}
            manifests.append(make_manifest(state, kind=kind))
        # Now and then an older manifest comes back.
        manifest = draw(st.sampled_from([manifests[-1], manifests[-1], manifests[-1], manifests[0]]))
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        weights = {name: draw(st.one_of(st.integers(1, 5), st.just(2**70), st.just(100))) for name in chosen}
        mixtures.append(Mixture(start=start, manifest=manifest.digest, weights=weights))
    root = make_root(
        manifests[0],
        seed=draw(st.integers(0, 2**65)),
        form="document" if kind == "text" else "window",
        seq_len=seq_len,
        lanes=draw(st.sampled_from([1, 2, 4, 8])),
        window_blocks=draw(st.sampled_from([1, 2, 8, 256])),
        shuffle=draw(st.sampled_from(["blocks", "blocks", "all", "none"])),
    )
    root = replace_root(root, manifest=mixtures[0].manifest)
    block = draw(st.sampled_from([1, 2, 3, 8, 256]))
    return Case(root, mixtures, {m.digest: m for m in manifests}, block)


def replace_root(root: Root, **changes: Any) -> Root:
    return Root(**{**{name: getattr(root, name) for name in root.__struct_fields__}, **changes})
