"""What does one sample of a step look like to whoever asks what was fed: verdict, signals, and its content?

One block of lines a sample, under the table of its step. Everything of the record goes through `preview`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.verdict import Verdict
from dataguard.replay.answers import InspectedSample, ReplayAnswer, ReplaySample, SamplePreview
from dataguard.replay.looking import Looked
from dataguard.report.preview import MARKS, Preview, as_plain, as_terminal, preview
from dataguard.report.tables import printable
from dataguard.report.token_text import token_preview
from dataguard.score.registry import HEADLINE

if TYPE_CHECKING:
    from rich.text import Text

    from dataguard.corpus.tokenizer import TokenizerFile

__all__ = [
    "MOST_SHOWN",
    "Shown",
    "notable_samples",
    "render_notable",
    "render_samples",
    "sample_preview",
    "shown_samples",
]

MOST_SHOWN = 64
"""Samples that are shown with their content, where nobody asks for more."""
_MOST_SPANS = 100
_MOST_BLANKS = 8
_HEADLINE = frozenset(name for names in HEADLINE.values() for name in names)

Sample = InspectedSample | ReplaySample


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """A sample and what it looks like."""

    sample: Sample
    looked: Looked | None
    """None where it was not looked at, or there is nothing to look at."""
    content: Preview | None


def shown_samples(
    samples: Sequence[Sample], looked: Iterable[Looked | None], tokenizer: TokenizerFile | None
) -> tuple[Shown, ...]:
    """Samples with their previews."""
    return tuple(
        Shown(sample=sample, looked=look, content=None if look is None else _preview(look, tokenizer))
        for sample, look in zip(samples, looked, strict=True)
    )


def sample_preview(shown: Shown) -> SamplePreview | None:
    """A preview as a document holds it."""
    looked = shown.looked
    if looked is None:
        return None
    return SamplePreview(
        shard=looked.shard,
        row=looked.row,
        size=0 if looked.content is None else len(looked.content),
        text="" if shown.content is None else as_plain(shown.content),
        signal=looked.signal,
        spans=tuple((int(start), int(stop)) for start, stop in looked.spans[:_MOST_SPANS].tolist()),
        num_spans=len(looked.spans),
        problem=looked.problem,
    )


def _preview(looked: Looked, tokenizer: TokenizerFile | None) -> Preview | None:
    content = looked.content
    if content is None:
        return None
    if isinstance(content, bytes):
        return preview(content, _joined(content, looked.spans))
    return token_preview(
        content,
        looked.spans,
        documents=looked.documents,
        tokenizer=tokenizer,
        vocab_size=looked.vocab_size,
    )


def _joined(content: bytes, spans: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Spans between which there is nothing but a little white space, as one: words that repeat are one mark."""
    joined: list[tuple[int, int]] = []
    for start, stop in spans.tolist():
        between = content[joined[-1][1] : start] if joined and start - joined[-1][1] <= _MOST_BLANKS else b"."
        if between.strip():
            joined.append((start, stop))
        else:
            joined[-1] = (joined[-1][0], stop)
    return joined


def notable_samples(answer: ReplayAnswer) -> list[ReplaySample]:
    """Samples of a rebuilt step that differ or cannot be read, then those on which rules fire, the gravest first."""
    samples = [sample for microbatch in answer.microbatches for sample in microbatch.samples]
    notable = [each for each in samples if _is_wrong(each) or each.verdict not in {None, "pass"}]
    return sorted(notable, key=lambda each: (not _is_wrong(each), -_gravity(each), -len(each.rules), each.slot))


def _is_wrong(sample: ReplaySample) -> bool:
    return sample.status in {"differs", "unreadable"}


def _gravity(sample: Sample) -> int:
    return 0 if sample.verdict is None else Verdict[sample.verdict.upper()]


def render_notable(shown: Sequence[Shown], num_notable: int) -> Iterator[str | Text]:
    """Blocks for notable samples, and how many more there are."""
    yield ""
    yield from render_samples(shown)
    if len(shown) < num_notable:
        yield f"... and {num_notable - len(shown):,} more (samples.parquet and --json have all)"


def render_samples(shown: Iterable[Shown]) -> Iterator[str | Text]:
    """A block of lines for each sample."""
    for each in shown:
        yield printable(_headline(each))
        sample = each.sample
        known = _signals(sample)
        if known:
            yield f"  {known}"
        looked = each.looked
        if looked is not None and looked.problem is not None:
            yield f"  {'no preview: ' if each.content is None else ''}{printable(looked.problem)}"
        if each.content is not None and looked is not None:
            yield _content(each.content, looked)


def _headline(shown: Shown) -> str:
    """Which slot, and what was said of it why."""
    sample = shown.sample
    told = f"slot {sample.slot}"
    if isinstance(sample, ReplaySample) and _is_wrong(sample):
        told += f", {sample.status}"
    if sample.verdict is not None:
        rules = [
            name + (f" ({why})" if why else "")
            for name, why in zip(sample.rules, sample.why or [""] * len(sample.rules), strict=True)
        ]
        told += f": {sample.verdict}" + (f" by {', '.join(rules)}" if rules else "")
    looked = shown.looked
    if looked is not None and sample.delivered is not None:
        is_planned = (looked.shard, looked.row) == (sample.shard, sample.row)
        told += f"; {looked.shard}:{looked.row}, " + ("which was refused" if is_planned else "delivered instead")
    return told


def _signals(sample: Sample) -> str:
    """Its signals in words: those of the headline, of which a byte says about how much, and those that rules saw."""
    exact: Mapping[str, float | None] = sample.signals or {}
    headline: Mapping[str, float | None] = sample.headline or {} if isinstance(sample, InspectedSample) else {}
    about = {name for name, value in headline.items() if name not in exact and value}
    seen = {word for why in sample.why for word in why.split()}
    known = {name: value for name, value in {**headline, **exact}.items() if name in seen or name in _HEADLINE}
    return ", ".join(
        f"{name} {'-' if value is None else f'{value:.4g}' if name not in about else f'~{value:.3g}'}"
        for name, value in known.items()
    )


def _content(content: Preview, looked: Looked) -> Text:
    from rich.text import Text

    marked = f"  marked {looked.signal}: " if looked.signal is not None else "  "
    return Text(marked).append_text(as_terminal(content, marks=MARKS))
