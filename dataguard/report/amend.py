"""What is said of an amendment to people: what was written, and what the next attempt does otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from dataguard.run.amended import Amended

__all__ = ["render_amended"]


def render_amended(answer: Amended) -> Iterator[str]:
    """What ``skip``, ``quarantine``, ``release`` and ``revoke`` say."""
    yield f"{'would be' if answer.dry_run else f'event {answer.event}:'} {answer.kind} {_what(answer)}".rstrip()
    spans = [
        f"{name} {span[0]:,}:{span[1]:,}"
        for name, span in (("steps", answer.steps), ("batches", answer.batches), ("positions", answer.positions))
        if span is not None
    ]
    if spans:
        lineage = f" of attempt {answer.attempt}" if answer.attempt else ""
        yield f"  {' = '.join(spans)}{lineage}"
    changed = answer.num_positions_skipped
    if changed:
        yield f"  from the next attempt on {abs(changed):,} positions {'more' if changed > 0 else 'fewer'} are skipped"
    for sign, names, count in (
        ("withheld", answer.withheld_more, answer.num_withheld_more),
        ("delivered again", answer.withheld_less, answer.num_withheld_less),
    ):
        if count:
            more = f", and {count - len(names):,} more" if count > len(names) else ""
            yield f"  from the next attempt on {sign}: {', '.join(names)}{more}"
    if answer.num_samples:
        yield f"  that is {answer.num_samples:,} samples an epoch"
    for place in answer.places:
        step = "skipped" if place.step is None else f"step {place.step:,}"
        yield f"  next at {step}, batch {place.batch:,}, position {place.position:,}, epoch {place.epoch}"
    yield from (f"  note: {note}" for note in answer.notes)


def _what(answer: Amended) -> str:
    if answer.revokes is not None:
        return f"event {answer.revokes}"
    if answer.shard is not None:
        return answer.shard if answer.row is None else f"{answer.shard}:{answer.row}"
    return f"list {answer.withheld[:16]}" if answer.withheld else ""
