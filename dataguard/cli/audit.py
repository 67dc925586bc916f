"""``dataguard audit``: parse, audit, answer.

Exit codes: 0 where all is well; 1 where a rule fired beyond its allowance; 3 where shards are damaged or could not be
read, or where nothing was checked; 4 where the environment failed; 130 where it was interrupted. What was done is kept,
and ``--resume`` goes on.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from dataguard.cli import completing, output
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import PATH, POLICY_NAMES, json_option, out_option, root_option, weight_option
from dataguard.cli.scanning import isolation_options, limit_options, timeout_of
from dataguard.errors import InputError, UsageError, WriterConflict

if TYPE_CHECKING:
    from dataguard.audit.engines import Engine
    from dataguard.audit.run import Progress as Told
    from dataguard.cli.progress import Progress

__all__ = ["audit"]


@click.command()
@click.argument("paths", nargs=-1, required=True, shell_complete=completing.files)
@out_option("The folder to write to: a new one, or with --resume the one that was begun.")
@click.option(
    "--policy",
    default="default",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=completing.names_or_files(*POLICY_NAMES),
    help="What is judged, and how.",
)
@click.option("--profile", type=PATH, help="What outliers are judged by: profile.json of an audit.  [default: its own]")
@click.option("--baseline", type=PATH, help="Tell the drift against profile.json of an earlier audit.")
@click.option(
    "--against",
    multiple=True,
    metavar="M|PATH",
    shell_complete=completing.files,
    help="Evaluation data, a manifest or a path: which of its records are in the corpus? Repeatable.",
)
@click.option("--sample", default="100%", show_default=True, metavar="SHARE", help="Look at a keyed share: 1%, 1/50.")
@click.option(
    "--workers",
    "num_workers",
    type=click.IntRange(min=1),
    help="Threads, or Ray tasks at a time.  [default: one a core]",
)
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Who scores.")
@click.option("--ray-address", metavar="ADDRESS", help="HOST:PORT, or auto.  [default: a cluster of this machine]")
@click.option("--resume", is_flag=True, help="Go on where it was interrupted, or storage failed it.")
@click.option(
    "--fail-on",
    type=click.Choice(["flag", "drift", "overlap"]),
    multiple=True,
    help="Fail on flag rules beyond their allowance, on drift, on --against, too. Repeatable.",
)
@click.option("--vocab-size", type=click.IntRange(min=1), help="Token ids lie below it; without it, rules are skipped.")
@click.option("--seq-len", type=click.IntRange(min=1), help="Tokens of a window of token shards.  [default: 2048]")
@weight_option
@root_option
@click.option("--text-field", default="text", show_default=True, help="The field or column that holds the text.")
@click.option("--dtype", default="", metavar="TYPE", help="Type of the ids in files without header.")
@click.option("--token-field", default="", metavar="NAME", help="The column of ids, where files have columns.")
@click.option("--format", "format_name", default="", metavar="NAME", help="Read every file as this format, e.g. text.")
@limit_options
@isolation_options
@json_option
def audit(
    paths: tuple[str, ...],
    out: Path,
    policy: str,
    profile: Path | None,
    baseline: Path | None,
    against: tuple[str, ...],
    sample: str,
    num_workers: int | None,
    engine: str,
    ray_address: str | None,
    resume: bool,
    fail_on: tuple[str, ...],
    vocab_size: int | None,
    seq_len: int | None,
    weights: dict[str, str],
    roots: dict[str, str],
    text_field: str,
    dtype: str,
    token_field: str,
    format_name: str,
    isolate: bool,
    scan_timeout_seconds: float | None,
    as_json: bool,
    **limits: int | None,
) -> int:
    """Score and judge a whole corpus; write down what to withhold.

    PATHS are one manifest, or folders, files, patterns and URLs, which are scanned first. The folder then holds
    signals/, withhold.parquet (rehearse --withhold takes it), duplicates.parquet, shards.parquet, profile.json,
    report.html, and summary.json, which --json prints; overlap.parquet with --against.

    Examples: dataguard audit M.parquet -o AUDIT
    dataguard audit M.parquet -o AUDIT --resume
    dataguard audit M.parquet -o AUDIT --baseline OLD/profile.json --fail-on drift
    """
    from dataguard.audit.run import SEQ_LEN, AuditRequest, run_audit
    from dataguard.corpus.formats.protocol import ScanOptions
    from dataguard.gate.policy import load_policy
    from dataguard.report.audit.answer import render_audit
    from dataguard.report.audit.page import audit_page

    timeout_seconds = timeout_of(isolate=isolate, scan_timeout_seconds=scan_timeout_seconds)
    given = {name: value for name, value in limits.items() if value is not None}
    request = AuditRequest(
        paths=paths,
        out=out,
        policy=load_policy(policy),
        scan=ScanOptions(text_field=text_field, dtype=dtype, token_field=token_field, **given),
        format_name=format_name,
        roots=roots,
        profile=profile,
        baseline=baseline,
        against=against,
        sample=sample,
        seq_len=SEQ_LEN if seq_len is None else seq_len,
        vocab_size=vocab_size,
        weights=weights,
        fail_on=fail_on,
        resume=resume,
        num_scan_workers=num_workers,
        scan_timeout_seconds=timeout_seconds,
    )
    _warn_of_nesting(paths, out)
    made = _engine(engine, num_workers=num_workers, ray_address=ray_address)
    try:
        with _Shown() as shown, going_on(lambda: _how_to_go_on(out), found=shown.told):
            summary = run_audit(request, made, progress=shown.progress(), render=audit_page)
    except (UsageError, InputError, WriterConflict):
        raise
    except Exception:
        if _holds_something(out):
            output.say(f"what was done is kept in {out}: the same command with --resume goes on from there")
        raise
    output.answer(summary, render_audit, json=as_json)
    reasons = "; ".join(summary.reasons) or "no rule fired beyond its allowance"
    if summary.drift is not None and summary.drift.drifted:
        reasons += "; BUT the corpus has drifted from the baseline" if not summary.exit_code else ""
    output.say(f"{summary.verdict}: {reasons}; see {out}/report.html")
    if summary.account.unreadable:
        output.say("once that is mended, the same command with --resume reads again what could not be read")
    return summary.exit_code


def _warn_of_nesting(paths: tuple[str, ...], out: Path) -> None:
    for path in paths:
        folder = Path(path)
        if folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
            output.say(f"note: {out} lies in {path}: the next scan of {path} will take what is written now for shards")


def _how_to_go_on(out: Path) -> str:
    if _holds_something(out):
        return f"what was done is kept in {out}: the same command with --resume goes on from there"
    return "nothing was done yet: the same command begins again"


def _holds_something(folder: Path) -> bool:
    try:
        return folder.is_dir() and any(folder.iterdir())
    except OSError:
        return False


def _engine(name: str, *, num_workers: int | None, ray_address: str | None) -> Engine:
    if name == "local":
        if ray_address is not None:
            raise UsageError("--ray-address needs --engine ray")
        from dataguard.audit.engines.local import LocalEngine

        return LocalEngine(num_workers)
    from dataguard.audit.engines.ray import RayEngine

    return RayEngine(num_workers, address=ray_address)


class _Shown:
    """One bar after the other: scanning, scoring, judging."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._title = ""
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def told(self) -> str | None:
        """How far it is, as a sentence."""
        return None if self._bar is None else self._bar.told(_DONE[self._title])

    def progress(self) -> Told:
        """What the audit tells."""
        from dataguard.audit.run import Progress as Told

        show = self._show

        class Shown(Told):
            def scanned(self, done_bytes: int, total_bytes: int) -> None:
                show("scanning", "bytes", done_bytes, total_bytes)

            def scored(self, done_bytes: int, total_bytes: int) -> None:
                show("scoring", "bytes", done_bytes, total_bytes)

            def judged(self, done: int, total: int) -> None:
                show("judging", "records", done, total or None)

        return Shown()

    def _show(self, title: str, unit: str, done: int, total: int | None) -> None:
        if title != self._title:
            self._stack.close()
            self._title = title
            self._bar = self._stack.enter_context(output.progress(title, unit=unit, total=total))
        assert self._bar is not None
        self._bar(done, total)


_DONE = {"scanning": "scanned", "scoring": "scored", "judging": "judged"}
