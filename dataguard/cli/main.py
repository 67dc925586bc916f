"""Where does ``dataguard`` start, and how does it end?

1. The table below names every command; `LazyGroup` imports the one that was typed.
2. A command returns None or its exit code, or raises.
3. Whatever was raised becomes text on standard error and an exit code (`failures`); standard output is flushed inside
   the same guard, so a full disk or a reader that has gone ends the command as honestly as a failure in its midst.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from dataguard.cli import failures, interrupts, output
from dataguard.cli.compiling import CompilationNote
from dataguard.cli.lazy import Entry, LazyGroup
from dataguard.cli.shells import answer_shell
from dataguard.core.compiled import on_compilation
from dataguard.version import __version__

__all__ = ["COMMANDS", "group", "main"]

_DATA = "The data"
_RUN = "The plan and the run"
_BACK = "Looking back"
_AMEND = "Amending a run"
_KEEP = "Keeping a run"
_ELSE = "Getting to know"


def _entry(section: str, name: str, module: str, text: str) -> Entry:
    return Entry(name=name, module=f"dataguard.cli.{module}", attribute=name, help=text, section=section)


COMMANDS = (
    _entry(_DATA, "manifest", "manifest", "Build, show or verify the list of sources, shards and blocks."),
    _entry(_DATA, "policy", "policy", "Write, check or explain a policy: rules over signals."),
    _entry(_DATA, "audit", "audit", "Score and judge a whole corpus, and write down what to withhold."),
    _entry(_RUN, "plan", "plan", "What would be delivered at a step, without any run."),
    _entry(_RUN, "rehearse", "rehearse", "Walk the loader as every rank would, without a trainer."),
    _entry(_RUN, "preflight", "preflight", "Hold a run against the hardening list, before it begins."),
    _entry(_RUN, "watch", "watch", "A live view of a run: pace, loss, events, ranks behind."),
    _entry(_BACK, "log", "log", "Attempts, skips, quarantines: the journal for people."),
    _entry(_BACK, "report", "report", "One self-contained page of a run, or of an audit."),
    _entry(_BACK, "inspect", "inspect", "What every rank was fed at a step."),
    _entry(_BACK, "replay", "replay", "Rebuild a step exactly and compare its digests."),
    _entry(_BACK, "where", "where", "Every step, planned and delivered, that holds a record."),
    _entry(_BACK, "seen", "seen", "What a checkpoint of a step was trained on."),
    _entry(_BACK, "verify", "verify", "Check that journal, index, plan and data agree."),
    _entry(_BACK, "telemetry", "telemetry", "Bring in what other tools logged, and look at what was logged."),
    _entry(_BACK, "spikes", "spikes", "Events in any training log: spikes, shifts, climbs, faults."),
    _entry(_BACK, "triage", "triage", "From a spike to a verdict to the commands that mend it."),
    _entry(_BACK, "canary", "canary", "One microbatch here and on other hosts, compared bit by bit."),
    _entry(_AMEND, "skip", "amend", "Leave a range of steps untrained, from the next attempt on."),
    _entry(_AMEND, "quarantine", "amend", "Withhold a shard or a record, from the next attempt on."),
    _entry(_AMEND, "release", "amend", "Take a quarantine back."),
    _entry(_AMEND, "revoke", "amend", "Take any event of the journal back."),
    _entry(_KEEP, "seal", "tidy", "Turn the hot frames of ended attempts into Parquet."),
    _entry(_KEEP, "compact", "tidy", "Merge the sealed files of all ranks for quick answers."),
    _entry(_KEEP, "store", "store", "List, show or prune what is kept of delivered batches."),
    _entry(_ELSE, "demo", "demo", "The whole story on this machine, in about a minute."),
    _entry(_ELSE, "init", "init", "Write a policy and a ready training script to begin with."),
    _entry(_ELSE, "completion", "completion", "Have bash, zsh or fish complete what is typed."),
    _entry(_ELSE, "schema", "schema", "The JSON Schema of a document."),
    _entry(_ELSE, "warmup", "warmup", "Compile all kernels ahead, here or into a shared folder."),
)

_EPILOG = (
    "Exit codes: 0 all is well; 1 the answer is no; 2 usage; 3 input cannot be read or is damaged; 4 the environment "
    "failed; 130 interrupted; 70 a fault of dataguard itself."
)

_HELP = """Flight recorder and gate for language-model training data.

Examples: dataguard demo
dataguard audit data/web -o AUDIT
dataguard triage RUN --step 9000
"""

group = LazyGroup(
    entries=COMMANDS,
    name="dataguard",
    help=_HELP,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
group = click.version_option(__version__, prog_name="dataguard", message="%(prog)s %(version)s")(group)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code.

    Parameters
    ----------
    arguments
        What follows ``dataguard`` on the command line; ``sys.argv[1:]`` where None.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in words
    output.prepare()
    if arguments is None and (answered := answer_shell()) is not None:
        return answered
    on_compilation(CompilationNote())
    with interrupts.heeded():
        code = _guarded(lambda: _invoke(words), words, debug=debug)
    output.finish()
    return code


def _invoke(words: list[str]) -> int:
    with group.make_context("dataguard", words) as ctx:
        code = group.invoke(ctx)
    output.flush()
    assert code is None or isinstance(code, int), f"a command returned {code!r} for an exit code"
    return code or 0


def _guarded(act: Callable[[], int], words: Sequence[str], *, debug: bool) -> int:
    try:
        return act()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BaseException as error:  # noqa: BLE001 - the last place that can turn a failure into words and a code
        failure = failures.explain(error, debug=debug, command=group.path_of(words))
        output.tell(failure.text)
        return failure.exit_code
