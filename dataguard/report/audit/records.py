"""What do the records that an audit names look like, with what the rules saw marked in them?

1. Every record that the page shows (the worst, the first examples of each rule, the largest groups of copies) is asked
   for once, shard by shard. A compressed shard is decoded from its beginning up to the last of them, as long as that
   is no more than `MOST_DECODED_BYTES` in all; beyond that the record is told by its place alone.
2. A shard that cannot be read is not asked for its other records.
3. Of the bytes of a record, at most the first `MOST_BYTES` are looked at for places (score/text_spans.py); of a window
   of tokens, the ids (score/spans.py). The preview makes everything visible and harmless (report/preview.py).

A record that cannot be shown says why. Nothing here raises for data that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest
from dataguard.corpus.problems import Retry
from dataguard.corpus.recognition import format_named
from dataguard.corpus.shard_file import ByteCounter
from dataguard.corpus.shards import BlockProblem, Shards
from dataguard.errors import DataguardError
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Skip
from dataguard.report.html import visible
from dataguard.report.preview import as_html, preview
from dataguard.score.registry import SIGNALS

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.corpus.reader import RowReader

__all__ = ["MOST_BYTES", "MOST_DECODED_BYTES", "Content", "Place", "Shown", "read_records", "shown_record"]

MOST_BYTES = 1 << 20
MOST_DECODED_BYTES = 1 << 30
_CHARS = 480
_MOST_PREVIEWS = 3
_CACHE_BYTES = 16 << 20

Place = tuple[str, int]
"""A record: its shard by name, and its row there (the number of its window, of a token shard)."""

Content = bytes | NDArray[np.int64] | str
"""The bytes of a text, the ids of a window, or in words why neither can be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One look at a record."""

    html: Any
    """Markup: escaped, with ``<mark>``."""
    what: str
    """What is marked, or that nothing is."""


def read_records(
    corpus: Corpus, places: Iterable[Place], *, seq_len: int, most_decoded_bytes: int = MOST_DECODED_BYTES
) -> dict[Place, Content]:
    """The content of records, or in words why it cannot be had.

    Parameters
    ----------
    corpus
        That was audited, with the roots where its sources lie now.
    places
        Records of the audit.
    seq_len
        Tokens of a window.
    most_decoded_bytes
        What may be decoded of compressed shards, in all.
    """
    manifest = corpus.manifest
    by_shard: dict[str, list[int]] = {}
    for shard, row in dict.fromkeys(places):
        by_shard.setdefault(shard, []).append(row)
    found: dict[Place, Content] = {}
    left = most_decoded_bytes
    retry = Retry(attempts=2)
    shards = Shards([corpus], cache=None, retry=retry, counter=ByteCounter(), sleep=time.sleep)
    with corpus.reader(cache_bytes=_CACHE_BYTES, cache_folder="", retry=retry) as reader:
        for name in sorted(by_shard, key=manifest.find_shard):
            number, rows = manifest.find_shard(name), sorted(by_shard[name])
            kind = manifest.sources[manifest.shards[number].source].kind
            cost = _decoded_bytes(manifest, number, rows, 1 if kind == "text" else seq_len)
            if cost > left:
                told = "it lies deep in a compressed shard, which is not decoded for a page"
                found.update({(name, row): told for row in rows})
                continue
            left -= cost
            if kind == "text":
                read = _texts(shards, manifest, number, rows)
            else:
                read = _windows(reader, manifest, number, rows, seq_len)
            found.update({(name, row): content for row, content in read})
    return found


def shown_record(
    content: bytes | NDArray[np.int64], rules: Sequence[str], source: str, policy: Policy, *, vocab_size: int | None
) -> list[Shown]:
    """Looks at a record: one for each signal that has a place in it, of the rules that fired, the gravest first.

    Parameters
    ----------
    content
        The bytes of a text, or the ids of a window.
    rules
        Names of the rules that fired on it.
    source
        The source it is of.
    policy
        Those rules.
    vocab_size
        For ids outside of the vocabulary.
    """
    bounds = _bounds(rules, source, policy)
    shows: list[Shown] = []
    is_cut = isinstance(content, bytes) and len(content) > MOST_BYTES
    within = f", in the first {MOST_BYTES >> 20} MiB" if is_cut else ""
    known: set[bytes] = set()
    for signal, why in bounds.items():
        if len(shows) == _MOST_PREVIEWS:
            break
        spans = _spans(content, signal, vocab_size)
        if not len(spans) or spans.tobytes() in known:
            continue
        known.add(spans.tobytes())
        shows.append(Shown(html=_markup(content, spans), what=f"marked: {signal}{within} ({why})"))
    if not shows:
        none = f"nothing to mark{within}: no rule that fired has a place there" if bounds else "its beginning"
        shows.append(Shown(html=_markup(content, np.zeros((0, 2), np.int64)), what=none))
    return shows


def _bounds(rules: Sequence[str], source: str, policy: Policy) -> dict[str, str]:
    """Signal -> what made a rule fire, in words; of the gravest rules first."""
    fired = [rule for rule in policy.rules if rule.name in rules]
    fired.sort(key=lambda rule: (-rule.verdict, rule.bit))
    bounds: dict[str, str] = {}
    for rule in fired:
        conditions = policy.conditions_of(rule, source)
        if isinstance(conditions, Skip):
            continue
        for condition in conditions:
            if not condition.on_length or len(conditions) == 1:
                bounds.setdefault(condition.signal.name, f"{rule.name}: {condition.text}")
    return bounds


def _spans(content: bytes | NDArray[np.int64], signal: str, vocab_size: int | None) -> NDArray[np.int64]:
    spec = SIGNALS[signal]
    if isinstance(content, bytes):
        from dataguard.score.text_spans import text_spans

        return text_spans(content[:MOST_BYTES], signal) if spec.kind == "text" else np.zeros((0, 2), np.int64)
    if spec.kind != "tokens" or ("vocab_size" in spec.needs and vocab_size is None):
        return np.zeros((0, 2), np.int64)
    from dataguard.score.spans import token_spans

    return token_spans(content, signal, vocab_size=vocab_size)


def _markup(content: bytes | NDArray[np.int64], spans: NDArray[np.int64]) -> Any:
    from markupsafe import Markup

    if isinstance(content, bytes):
        return Markup(as_html(preview(content, spans, max_chars=_CHARS)))  # noqa: S704 - it escapes
    # ids as text: where each begins, and where the text of a span ends before the blank behind it
    words = [str(each) for each in content.tolist()]
    starts = np.concatenate([[0], np.cumsum([len(word) + 1 for word in words])]).astype(np.int64)
    places = np.stack([starts[spans[:, 0]], starts[spans[:, 1]] - 1], axis=1)
    return Markup(as_html(preview(" ".join(words), places, max_chars=_CHARS)))  # noqa: S704 - it escapes


def _texts(shards: Shards, manifest: Manifest, shard: int, rows: Sequence[int]) -> Iterable[tuple[int, Content]]:
    """Records of one shard, ascending; a compressed one is decoded once for all of them."""
    wanted: dict[int, list[int]] = {}
    for row in rows:
        wanted.setdefault(manifest.block_of(shard, row), []).append(row)
    told = "it was not reached"
    left = list(rows)
    try:
        for asked, found in zip(wanted.values(), shards.walk(list(wanted)), strict=True):
            if isinstance(found, BlockProblem):
                told = visible(f"{found.kind}: {found.detail}")
                if found.kind in {"missing", "unreadable"}:
                    break
                contents: list[bytes | None] = [None] * len(asked)
            else:
                contents, told = found.texts(asked), "it is rejected"
            yield from (
                (row, told if content is None else content) for row, content in zip(asked, contents, strict=True)
            )
            left = left[len(asked) :]
    except (DataguardError, OSError) as error:
        told = visible(str(error).partition("\n")[0])
    yield from ((row, told) for row in left)


def _windows(
    reader: RowReader, manifest: Manifest, shard: int, rows: Sequence[int], seq_len: int
) -> Iterable[tuple[int, Content]]:
    block, num_tokens = int(manifest.block_starts[shard]), manifest.shards[shard].num_rows
    failed = ""
    for row in rows:
        if failed:
            yield row, failed
            continue
        start, stop = row * seq_len, min((row + 1) * seq_len, num_tokens)
        # the last window of a shard may be a short one, which is read token by token
        asked = ([row], seq_len) if stop - start == seq_len else (range(start, stop), 1)
        try:
            ids, problems = reader.read_windows([block] * len(asked[0]), asked[0], asked[1])
        except (DataguardError, OSError) as error:
            failed = visible(str(error).partition("\n")[0])
            yield row, failed
            continue
        first = next(iter(problems.values()), None)
        if first is None:
            yield row, ids.reshape(-1).astype(np.int64)
        else:
            told = visible(f"{first.kind}: {first.detail}")
            failed = told if first.kind in {"missing", "unreadable"} else ""
            yield row, told


def _decoded_bytes(manifest: Manifest, shard: int, rows: Sequence[int], per_row: int) -> int:
    """What has to be decoded for these rows of a shard; 0 where it can be mapped.

    A stream is decoded from its beginning: once for all texts, and for windows once for each block.
    """
    entry = manifest.shards[shard]
    if entry.compression == "none" and format_named(entry.format).random_access:
        return 0
    first, last = int(manifest.block_starts[shard]), manifest.block_of(shard, rows[-1] * per_row)
    content = np.cumsum(manifest.blocks["content_bytes"][first : last + 1])
    if manifest.sources[entry.source].kind == "text":
        return int(content[-1])
    needed = {manifest.block_of(shard, row * per_row) - first for row in rows}
    return int(sum(int(content[place]) for place in needed))
