"""A slow, obvious twin of the stream: walks it from position 0, with every table written out and no closed form.

What the arithmetic computes at once (draw numbers, generations' ends, places of a mixture's end) is simply counted
here: each (lane, source) has a cursor that goes on by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dataguard.core.keys import derive_key
from dataguard.core.manifest import Manifest
from dataguard.plan.document import Mixture, Root
from tests.twins.permute import places


@dataclass(frozen=True)
class Row:
    """What stands at a position."""

    source: str
    generation: int
    epoch: int
    lane: int
    place: int
    manifest: int  # ordinal by first mention
    shard: int  # of that manifest
    row: int
    removed: bool


def sample_rows(manifest: Manifest, name: str, root: Root) -> list[list[tuple[int, int]]]:
    """(shard, row) of every sample, by block, blocks without samples left out."""
    found = []
    for b, block in enumerate(manifest.blocks):
        shard = manifest.shards[block["shard"]]
        if manifest.sources[shard.source].name != name or shard.effect == "excluded":
            continue
        first, stop = int(block["first_row"]), int(block["first_row"] + block["num_rows"])
        if root.form == "document":
            bad = {int(entry["row"]) for entry in manifest.rejected if entry["block"] == b}
            rows = [row for row in range(first, stop) if row not in bad]
        else:
            rows = [w for w in range(shard.num_rows // root.seq_len) if first <= w * root.seq_len < stop]
        if rows:
            found.append([(int(block["shard"]), row) for row in rows])
    return found


def lanes_of(num_blocks: int, lanes: int) -> int:
    fitting = [2**i for i in range(lanes.bit_length()) if 2**i <= lanes and num_blocks // 2**i >= 8]
    return max(fitting, default=1)


class SlowGeneration:
    def __init__(self, root: Root, manifest: Manifest, ordinal: int, name: str, first_epoch: int) -> None:
        self.root, self.manifest, self.ordinal, self.name, self.first_epoch = root, manifest, ordinal, name, first_epoch
        self.blocks = sample_rows(manifest, name, root)
        self.n = sum(len(block) for block in self.blocks)
        self.lanes = lanes_of(len(self.blocks), root.lanes)
        self.turns = root.lanes // self.lanes
        self.orders: dict[int, list[tuple[int, int]]] = {}
        source = next(s for s in manifest.sources if s.name == name)
        index = manifest.sources.index(source)
        self.identity = (
            source.kind,
            source.text_field,
            [(s.path, s.digest, s.effect, s.format, s.num_rows) for s in manifest.shards if s.source == index],
        )
        self.delivered = {(s.path, s.digest) for s in manifest.shards if s.source == index and s.effect != "excluded"}

    def part(self, a: int) -> tuple[int, int]:
        return math.floor(Fraction(a * self.n, self.lanes)), math.floor(Fraction((a + 1) * self.n, self.lanes))

    def order(self, epoch: int) -> list[tuple[int, int]]:
        if epoch not in self.orders:
            blocks = list(range(len(self.blocks)))
            if self.root.shuffle != "none":
                rank = places(len(blocks), derive_key("block-order", self.root.seed, self.name, epoch))
                blocks.sort(key=lambda b: rank[b])
            self.orders[epoch] = [row for b in blocks for row in self.blocks[b]]
        return self.orders[epoch]

    def at(self, lane: int, turn: int) -> tuple[int, int, tuple[int, int]]:
        """(epoch, place, (shard, row)) of a stream lane's turn."""
        a, ordinal = lane % self.lanes, turn * self.turns + lane // self.lanes
        start, stop = self.part(a)
        epoch, s = divmod(ordinal, stop - start)
        if self.root.shuffle != "none":
            size = math.floor(Fraction(max(2, self.root.window_blocks // self.lanes) * self.n, len(self.blocks)))
            if self.root.shuffle == "all":
                size = stop - start
            size = max(size, 1)
            window = s // size
            last = min((window + 1) * size, stop - start)
            key = derive_key("window-order", self.root.seed, self.name, epoch, a, window)
            s = window * size + places(last - window * size, key)[s - window * size]
        return epoch, start + s, self.order(epoch)[start + s]


class SlowStream:
    def __init__(
        self, root: Root, mixtures: list[Mixture], manifests: dict[str, Manifest], *, mixture_block: int = 256
    ) -> None:
        self.root, self.mixtures, self.manifests, self.block = root, mixtures, manifests, mixture_block
        self.mentioned = list(dict.fromkeys(mixture.manifest for mixture in mixtures))
        self.generations: dict[str, list[SlowGeneration]] = {}
        self.cursors: dict[tuple[int, str], tuple[int, int]] = {}
        self.highest: dict[str, int] = {}
        self.dealt: dict[tuple[int, int, int], list[str]] = {}

    def walk(self, stop: int) -> list[Row]:
        rows: list[Row] = []
        lanes = self.root.lanes
        starts = {mixture.start: mixture for mixture in self.mixtures}
        turn = [0] * lanes
        for p in range(stop):
            if p in starts:
                mixture = starts[p]
                self.enter(mixture)
                turn = [0] * lanes
            lane = p % lanes
            source = self.deal(mixture, lane, turn[lane])
            turn[lane] += 1
            rows.append(self.draw(lane, source))
        return rows

    def enter(self, mixture: Mixture) -> None:
        for name in mixture.weights:
            old = self.generations.setdefault(name, [])
            new = SlowGeneration(
                self.root,
                self.manifests[mixture.manifest],
                self.mentioned.index(mixture.manifest),
                name,
                self.highest.get(name, -1) + 1,
            )
            if not old or old[-1].identity != new.identity:
                old.append(new)

    def deal(self, mixture: Mixture, lane: int, t: int) -> str:
        k, u = divmod(t, self.block)
        key = (mixture.start, lane, k)
        if key not in self.dealt:
            total = sum(mixture.weights.values())
            phase = derive_key("mixture-phase", self.root.seed, mixture.start, lane) % total
            before = counts(mixture.weights, phase + k * self.block)
            after = counts(mixture.weights, phase + (k + 1) * self.block)
            quotas = [name for name in after for _ in range(after[name] - before[name])]
            deal = places(self.block, derive_key("mixture-deal", self.root.seed, mixture.start, lane, k))
            self.dealt[key] = [quotas[deal[place]] for place in range(self.block)]
        return self.dealt[key][u]

    def draw(self, lane: int, source: str) -> Row:
        generations = self.generations[source]
        g, turn = self.cursors.get((lane, source), (0, 0))
        while g + 1 < len(generations) and generations[g].at(lane, turn)[0] >= generations[g + 1].first_epoch:
            g, turn = g + 1, 0
            while generations[g].at(lane, turn)[0] < generations[g].first_epoch:
                turn += 1
        generation = generations[g]
        epoch, place, (shard, row) = generation.at(lane, turn)
        self.cursors[lane, source] = (g, turn + 1)
        self.highest[source] = max(self.highest.get(source, -1), epoch)
        entry = generation.manifest.shards[shard]
        return Row(
            source=source,
            generation=g,
            epoch=epoch,
            lane=lane,
            place=place,
            manifest=generation.ordinal,
            shard=shard,
            row=row,
            removed=(entry.path, entry.digest) not in generations[-1].delivered,
        )


def counts(weights: dict[str, int], n: int) -> dict[str, int]:
    """C_i(n), sources in the order of the peel."""
    found = {}
    left, weight_left = n, sum(weights.values())
    for name in sorted(weights, key=lambda name: (-weights[name], name.encode())):
        found[name] = math.ceil(Fraction(left * weights[name], weight_left))
        left -= found[name]
        weight_left -= weights[name]
    return found
