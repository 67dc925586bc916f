"""What is said of a policy to people? The facts of gate/answers.py, as text and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dataguard.gate.answers import PolicyChecked, PolicyShown, PolicyWritten, RecordExplained, RuleShown, SignalValue
from dataguard.report.preview import as_terminal, preview
from dataguard.report.tables import table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table
    from rich.text import Text

__all__ = ["render_checked", "render_explained", "render_shown", "render_written"]

_FEW_IDS = 64


def render_written(written: PolicyWritten) -> Iterator[str]:
    """What ``policy init`` says."""
    yield f"{written.path}: policy {written.name}, as {written.based_on}, digest {written.digest}"
    yield f"edit it, then: dataguard policy check {written.path}"


def render_checked(checked: PolicyChecked) -> Iterator[str]:
    """What ``policy check`` says."""
    called = checked.policy.replace("\n", "\\n")  # a file's name may have line feeds, and this has one line
    yield from (problem.told() for problem in checked.problems)
    yield from (f"remark: {remark.told()}" for remark in checked.remarks)
    if checked.warning:
        yield f"warning: {checked.warning}"
    if checked.digest is None or not checked.ok:
        count = len(checked.problems)
        yield f"{called}: {count:,} problem{'' if count == 1 else 's'}"
        return
    against = f", against {', '.join(checked.sources)}" if checked.sources is not None else ""
    yield (
        f"{called}: no problem{against}; rules: {checked.num_sample_rules} over samples, "
        f"{checked.num_batch_rules} over batches, {checked.num_shard_rules} over shards"
    )
    yield f"digest {checked.digest}"


def render_shown(shown: PolicyShown) -> Iterator[str | Table]:
    """What ``policy explain P`` says."""
    yield f"policy {shown.name}" + (f": {shown.title}" if shown.title else "")
    yield f"digest {shown.digest}"
    if shown.warning:
        yield f"warning: {shown.warning}"
    yield (
        f"on_unreadable {shown.on_unreadable}; fill {shown.fill or 'as the plan says'}; an audit withholds "
        f"{', '.join(shown.withhold) or 'nothing'}"
    )
    yield ""
    yield table(
        ["rule", "over", "does", "when", "sources", "allowance", "from"],
        (
            (rule.rule, rule.scope, _does(rule), rule.text, ", ".join(rule.sources) or "all", f"{rule.max_fraction:g}",
             rule.note)
            for rule in shown.rules
        ),
        right=["allowance"],
    )  # fmt: skip
    for section in shown.sections:
        yield ""
        yield f"for sources {section.source}:"
        if section.off:
            yield f"  off: {', '.join(section.off)}"
        yield from (f"  {name}: {text}" for name, text in section.rules.items())
    yield ""
    yield table(["signal", "unit", "definition"], ((each.signal, each.unit, each.definition) for each in shown.signals))


def render_explained(explained: RecordExplained, content: bytes | NDArray[Any]) -> Iterator[str | Table | Text]:
    """What ``policy explain P --shard S --row R`` says."""
    unit = "bytes" if explained.kind == "text" else "tokens"
    yield f"{explained.shard}:{explained.row}, {explained.length:,} {unit}, by policy {explained.policy}"
    fired = f": {', '.join(explained.fired)}" if explained.fired else ", no rule fired"
    yield f"verdict {explained.verdict}{fired}"
    if explained.mask_spans is not None:
        yield f"masked positions: {', '.join(f'{start:,}:{stop:,}' for start, stop in explained.mask_spans)}"
    yield ""
    if isinstance(content, bytes):
        spans = [span for signal in explained.signals for span in signal.spans]
        yield as_terminal(preview(content, spans))
    else:
        ids = " ".join(str(each) for each in content[:_FEW_IDS].tolist())
        yield f"{ids} ..." if len(content) > _FEW_IDS else ids
    yield ""
    yield table(
        ["rule", "does", "when", "says"],
        ((rule.rule, _does(rule), rule.there, rule.state + (f": {rule.why}" if rule.why else ""))
         for rule in sorted(explained.rules, key=lambda each: _ORDER.index(each.state))),
    )  # fmt: skip
    yield ""
    yield table(
        ["signal", "value", "unit", "rules", "where"],
        (
            (each.signal, _value(each), each.unit, ", ".join(each.rules) or None, _where(each))
            for each in explained.signals
        ),
        right=["value"],
    )


_ORDER = ("fired", "quiet", "skipped")


def _does(rule: RuleShown) -> str:
    return f"{rule.action} its {rule.masks}" if rule.masks else rule.action


def _value(signal: SignalValue) -> str:
    if signal.value is None:
        return f"- ({signal.why})"
    return f"{signal.value:,}" if isinstance(signal.value, int) else f"{signal.value:.6g}"


def _where(signal: SignalValue) -> str | None:
    if not signal.spans:
        return None
    first = ", ".join(f"{start:,}:{stop:,}" for start, stop in signal.spans[:3])
    more = signal.num_spans - len(signal.spans[:3])
    return f"{first} and {more:,} more" if more else first
