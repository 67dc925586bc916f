"""What is said of plans, rehearsals and tidied records to people?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dataguard.loader.answers import GateAnswer, Mixed, PlanAnswer, RehearseAnswer
from dataguard.report.tables import table
from dataguard.run.tidy import TidiedAttempt

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render_plan", "render_rehearse", "render_tidied"]


def render_plan(answer: PlanAnswer) -> Iterator[str | Table]:
    """What ``plan`` says."""
    yield (
        f"plan {answer.plan[:16]}, root {answer.root[:16]}: global batch {answer.global_batch:,} over "
        f"{answer.world_size:,} rank{'s' * (answer.world_size != 1)} * microbatches of {answer.microbatch_size:,}, "
        f"{answer.lanes:,} lane{'s' * (answer.lanes != 1)}"
    )
    yield from _mixture(answer.mixture)
    if answer.left_out:
        yield f"left out: {', '.join(answer.left_out)}"
    if answer.policy:
        yield f"policy {answer.policy}: nothing is read here, so nothing is judged"
    yield ""
    columns: tuple[str, ...] = ("step", "rank", "microbatch", "slot", "position", "epoch", "shard", "row")
    if answer.num_withheld:
        columns = (*columns, "status", "delivered")
    yield table(
        columns,
        ([getattr(sample, name) for name in columns] for sample in answer.samples),
        right=(name for name in columns if name not in {"shard", "status", "delivered"}),
    )


def render_rehearse(answer: RehearseAnswer) -> Iterator[str | Table]:
    """What ``rehearse`` says."""
    start, stop = answer.steps
    forked = "" if answer.parent is None else f" from attempt {answer.parent}"
    yield (
        f"attempt {answer.attempt}{forked}: steps {start:,}:{stop:,} to {_many(answer.world_size, 'rank')} * "
        f"{_many(answer.num_microbatches, 'microbatch')} of {answer.microbatch_size:,}, "
        f"global batch {answer.global_batch:,}"
    )
    yield from _mixture(answer.mixture)
    padding = f" and {answer.num_padding:,} slots of padding" if answer.num_padding else ""
    unreadable = f", {answer.num_unreadable:,} of them unreadable" if answer.num_unreadable else ""
    yield (
        f"{answer.num_samples:,} samples delivered and recorded "
        f"({answer.num_withheld:,} withheld or substituted{unreadable}){padding}, "
        f"{answer.content_bytes / 1e6:,.1f} MB, {answer.samples_per_second:,.0f} samples/s"
    )
    ratio = f" ({answer.storage_bytes / answer.corpus_bytes:.2f} times the corpus)" if answer.corpus_bytes else ""
    yield f"{answer.storage_bytes / 1e6:,.1f} MB read from the shards{ratio}"
    if answer.gate is not None:
        yield from _gate(answer.gate, answer.run)
    yield from (f"note: {note}" for note in answer.notes)


def _gate(gate: GateAnswer, run: str) -> Iterator[str | Table]:
    """The closing account of the gate."""
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in gate.verdicts.items() if count) or "nothing"
    yield f"policy {gate.policy} ({gate.policy_digest[:16]}) judged: {told}"
    columns = ("rule", "scope", "action", "evaluated", "fired", "skipped", "why skipped")
    rows = (
        (
            rule.rule,
            rule.scope,
            rule.action,
            rule.evaluated,
            rule.fired,
            rule.skipped,
            ", ".join(f"{why} {count:,}" for why, count in rule.skipped_why.items()),
        )
        for rule in gate.rules
    )
    yield table(columns, rows, right=("evaluated", "fired", "skipped"))
    worst = gate.worst
    if worst is not None:
        yield (
            f"worst: step {worst.step:,}, rank {worst.rank}, slot {worst.slot}: {worst.verdict} by "
            f"{', '.join(worst.rules)}, {worst.shard}:{worst.row}; see dataguard inspect {run} --step {worst.step}"
        )


def render_tidied(answer: TidiedAttempt) -> Iterator[str]:
    """What ``seal`` and ``compact`` say of one attempt."""
    if answer.live:
        yield f"attempt {answer.attempt}: its writers live, nothing was done"
        return
    yield f"attempt {answer.attempt}: {_many(answer.num_records, 'record')} in {_many(answer.num_files, 'new file')}"
    yield from (f"  torn tail: {torn}" for torn in answer.torn)
    yield from (f"  problem: {problem}" for problem in answer.problems)


def _mixture(mixture: Iterable[Mixed]) -> Iterator[str]:
    for mixed in mixture:
        yield f"  {mixed.source}: {mixed.share:.1%} of all samples, {mixed.num_samples:,} an epoch"


def _many(count: int, what: str) -> str:
    plural = what + ("es" if what.endswith("ch") else "s")
    return f"{count:,} {what if count == 1 else plural}"
