"""What do the samples of the heat maps look like, and of which of them is there room to show it?

Records are read from the corpus once more, in the order in which samples matter (see `cells`), as far as two budgets
go: previews, by number and by the bytes they take in a page; and, of compressed shards, what has to be decoded to reach
them, which for samples that `localise` names is not asked. Where the data is not reachable a note says so, and a
preview why. Samples that hold the same row have one preview.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dataguard.core.manifest import Manifest
from dataguard.corpus.recognition import format_named
from dataguard.errors import DataguardError, NotInRun
from dataguard.replay.looking import Looker
from dataguard.report.run.cells import Key, Listed
from dataguard.report.run.facts import Preview
from dataguard.report.run.lineage import Lineage
from dataguard.report.samples import Shown, shown_samples

if TYPE_CHECKING:
    from dataguard.corpus.tokenizer import TokenizerFile

__all__ = ["MOST_PREVIEWS", "read_previews"]

MOST_PREVIEWS = 600
_MOST_BYTES = 1_500_000
_MOST_SPANS = 100
_MOST_DECODED_BYTES = 256 << 20
_AT_ONCE = 64


def read_previews(
    lineage: Lineage,
    listed: Sequence[Listed],
    *,
    roots: Mapping[str, str] | None = None,
    tokenizer: TokenizerFile | None = None,
) -> tuple[tuple[Preview, ...], dict[Key, int]]:
    """Previews, and for each sample that has one its place among them.

    Parameters
    ----------
    listed
        Of all heat maps, those that matter most first; a sample may be there twice.
    """
    previews: list[Preview] = []
    places: dict[Key, int] = {}
    rows: dict[tuple[int, str, int, str | None], int] = {}
    budget = _Budget(lineage)
    num_bytes = 0
    wanted = list({(each.attempt, each.step, each.sample.slot): each for each in listed}.items())
    lookers: dict[int, Looker | None] = {}
    try:
        for first in range(0, len(wanted), _AT_ONCE):
            if len(previews) >= MOST_PREVIEWS or num_bytes >= _MOST_BYTES:
                break
            part = wanted[first : first + _AT_ONCE]
            for attempt in dict.fromkeys(key[0] for key, _ in part):
                looker = _looker(lineage, attempt, roots, lookers)
                if looker is None:
                    continue
                mine = [(key, each) for key, each in part if key[0] == attempt and budget.allows(each)]
                looked = looker.look([each.sample for _, each in mine])
                shown = shown_samples([each.sample for _, each in mine], looked, tokenizer)
                for (key, each), one in zip(mine, shown, strict=True):
                    if one.looked is None:
                        continue
                    row = (attempt, one.looked.shard, one.looked.row, one.looked.signal)
                    if row not in rows:
                        if len(previews) >= MOST_PREVIEWS and each.localised is None:
                            continue
                        rows[row] = len(previews)
                        previews.append(_preview(one))
                        num_bytes += sum(len(text) + 20 for _, _, text in previews[-1].parts) + 100
                    places[key] = rows[row]
        problems = [each.problem for each in previews if each.problem is not None and not each.parts]
        if problems:
            lineage.notes.append(f"{len(problems):,} of {len(previews):,} records cannot be shown: {problems[0]}")
    finally:
        for opened in lookers.values():
            if opened is not None:
                opened.close()
    return tuple(previews), places


def _looker(
    lineage: Lineage, attempt: int, roots: Mapping[str, str] | None, lookers: dict[int, Looker | None]
) -> Looker | None:
    if attempt not in lookers:
        try:
            lookers[attempt] = Looker(lineage.run, attempt, roots=roots)
        except DataguardError as error:
            lookers[attempt] = None
            lineage.notes.append(f"no previews of attempt {attempt}: {' '.join(str(error).split())}")
    return lookers[attempt]


def _preview(shown: Shown) -> Preview:
    looked, content = shown.looked, shown.content
    assert looked is not None
    return Preview(
        parts=() if content is None else tuple((piece.kind, piece.marked, piece.text) for piece in content.pieces),
        size=0 if looked.content is None else len(looked.content),
        signal=looked.signal,
        spans=tuple((int(start), int(stop)) for start, stop in looked.spans[:_MOST_SPANS].tolist()),
        num_spans=len(looked.spans),
        problem=looked.problem,
    )


class _Budget:
    """What may be decoded of compressed shards: each counts as if it were decoded up to the furthest row asked for."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._spent: dict[tuple[int, int], int] = {}

    def allows(self, each: Listed) -> bool:
        """Whether a sample may be read; a sample that `localise` names always may."""
        stream = self._lineage.run.stream_of(each.attempt)
        sample = each.sample
        there = sample if sample.delivered is None else sample.delivered
        shard, row = there.shard, there.row
        try:
            number = stream.manifest_set.find_shards(shard)[-1]
        except NotInRun:
            return True  # the look says what is wrong
        which, local = stream.manifest_set.split_shard(number)
        seq_len = self._lineage.run.plan_document().root.seq_len or 1
        cost = _decoded_bytes(stream.manifest_set.manifests[which], local, row * seq_len)
        spent = self._spent.get((which, local), 0)
        if cost <= spent:
            return True
        if each.localised is None and sum(self._spent.values()) + cost - spent > _MOST_DECODED_BYTES:
            return False
        self._spent[which, local] = cost
        return True


def _decoded_bytes(manifest: Manifest, shard: int, row: int) -> int:
    """What has to be decoded from the beginning of a shard to reach a row; 0 where it can be mapped."""
    entry = manifest.shards[shard]
    if entry.compression == "none" and format_named(entry.format).random_access:
        return 0
    first, last = int(manifest.block_starts[shard]), manifest.block_of(shard, row)
    return int(np.sum(manifest.blocks["content_bytes"][first : last + 1]))
