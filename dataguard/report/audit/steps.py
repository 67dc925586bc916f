"""What is there to do after an audit? Each step in a sentence, and the command that does it where one does.

In commands, ``AUDIT`` is the folder of the audit: a page may be moved, and says nothing of the machine it was made on.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from dataguard.audit.documents import AuditSummary, RuleAccount
from dataguard.report.html import visible

__all__ = ["Step", "explain_command", "steps_of"]

_REHEARSE = (
    "dataguard rehearse AUDIT/manifest.parquet --run RUN --seed 17 --global-batch 64 --world-size 1 "
    "--microbatch-size 8 --steps 10"
)
_MOST_WEIGHTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do."""

    text: str
    command: str = ""
    """As typed; empty where no command does it."""


def steps_of(summary: AuditSummary) -> tuple[Step, ...]:
    """What to do next, the most pressing first."""
    steps: list[Step] = []
    if not summary.account.balanced:
        steps.append(Step(text="The account does not balance: trust no number here, and run the audit anew."))
    if summary.verdict == "nothing":
        steps.append(Step(text=_why_nothing(summary)))
    if summary.shards.damaged or summary.shards.unreachable:
        steps.append(
            Step(
                text="Mend what is damaged, or take it out of the corpus; each shard is named below with its reason.",
                command="dataguard manifest show AUDIT/manifest.parquet --rejected",
            )
        )
    if summary.account.unreadable:
        steps.append(
            Step(
                text=f"{_counted(summary.account.unreadable, 'record', 'records')} could not be read as the manifest "
                "has them. Once the storage is mended, the command of this audit with --resume reads only those again.",
            )
        )
    failed = [rule for rule in summary.rules if rule.failed]
    if failed:
        steps.append(
            Step(
                text=f"Look at what {_named(failed)} found. If it is what should go, withhold it; if it is not, write "
                "a policy with a higher allowance or a section for that source, and audit anew.",
                command=_example(summary, failed) or "dataguard policy init -o policy.toml",
            )
        )
    if summary.num_withheld:
        whole = f", {_counted(summary.num_withheld_shards, 'of them a whole shard', 'of them whole shards')}"
        steps.append(
            Step(
                text=f"Train without the {_counted(summary.num_withheld, 'record', 'records')} on the list"
                f"{whole if summary.num_withheld_shards else ''}: slots keep their places, and are filled as the plan "
                "says.",
                command=_rehearsal(summary),
            )
        )
    if summary.drift is not None and summary.drift.drifted:
        steps.append(Step(text="The corpus has drifted from its baseline: see which sources and signals, at the end."))
    if summary.verdict == "pass" and not summary.num_withheld:
        steps.append(
            Step(
                text="Nothing has to be withheld. Keep profile.json: the next audit tells its drift against it.",
                command="dataguard audit PATHS -o NEXT --baseline AUDIT/profile.json",
            )
        )
    return tuple(steps)


def explain_command(policy: str, shard: str, row: int, *, kind: str, seq_len: int, vocab_size: int | None) -> str:
    """The command that explains one record; empty where the name of its shard cannot be typed as it is shown."""
    if visible(shard) != shard:
        return ""
    of_tokens = f" --seq-len {seq_len}" if kind == "tokens" else ""
    if kind == "tokens" and vocab_size is not None:
        of_tokens += f" --vocab-size {vocab_size}"
    return (
        f"dataguard policy explain {shlex.quote(policy)} --manifest AUDIT/manifest.parquet "
        f"--profile AUDIT/profile.json --shard {shlex.quote(shard)} --row {row}{of_tokens}"
    )


def _example(summary: AuditSummary, failed: list[RuleAccount]) -> str:
    kinds = {source.source: source.kind for source in summary.sources}
    for rule in failed:
        for example in rule.examples:
            return explain_command(
                summary.policy,
                example.shard,
                example.row,
                kind=kinds[example.shard.partition("/")[0]],
                seq_len=summary.seq_len,
                vocab_size=summary.vocab_size,
            )
    return ""


def _why_nothing(summary: AuditSummary) -> str:
    if not summary.account.scored:
        return "No record was scored, so nothing is known of this corpus. See which shards were met, and why not."
    return (
        "No rule could be evaluated. See at the rules why each was skipped: what is missing (a policy for this kind of "
        "data, the size of the vocabulary) can be given to another audit."
    )


def _rehearsal(summary: AuditSummary) -> str:
    """The command of a run without what is withheld; of text and tokens, which no run mixes, one of the text."""
    of_form = ""
    kinds = {source.kind for source in summary.sources if source.scored}
    if kinds == {"tokens"}:
        of_form = f" --form window --seq-len {summary.seq_len}"
    elif "tokens" in kinds:
        if len(summary.sources) > _MOST_WEIGHTS or any(visible(each.source) != each.source for each in summary.sources):
            return ""
        weights = [(each.source, each.scored if each.kind == "text" else 0) for each in summary.sources]
        of_form = "".join(f" --weight {shlex.quote(f'{name}={weight}')}" for name, weight in weights)
    return f"{_REHEARSE}{of_form} --withhold AUDIT/withhold.parquet"


def _named(rules: list[RuleAccount]) -> str:
    names = [visible(rule.rule) for rule in rules]
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more rules"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
