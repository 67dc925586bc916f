"""What does a command say, and with which code does it end, when something was raised?

The codes are the closed list of the design: 1 the answer is no, 2 usage, 3 input, 4 environment, 130 interrupted. A
reader that has gone (``| head -n 1``) ends a command with 141, as the shell itself would say it. Anything that none of
the rules below knows is a fault of dataguard: 70, so that no script takes it for an answer.

A person reads one to four lines: what is wrong, what was found, what is allowed, what to do next. An error that says
neither of the last two gets what holds for its whole kind (`_NEXT`); long lists are cut, and counted.
"""

from __future__ import annotations

import errno
import sys
import traceback
from dataclasses import dataclass

import click

from dataguard.cli import output
from dataguard.cli.interrupts import EXIT_CODE as INTERRUPTED
from dataguard.cli.interrupts import SAME_AGAIN, Interrupted
from dataguard.errors import (
    AnswerNo,
    DataguardError,
    EnvironmentFailed,
    InputError,
    ManifestDamaged,
    NotInRun,
    PolicyError,
    RunDamaged,
    ShardChanged,
    ShardDamaged,
    UsageError,
)

__all__ = ["BUG", "ENVIRONMENT", "INPUT", "INTERRUPTED", "READER_GONE", "USAGE", "Failure", "explain"]

USAGE = 2
INPUT = 3
ENVIRONMENT = 4
BUG = 70
READER_GONE = 141

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)

_NEXT: dict[type[DataguardError], str | None] = {
    AnswerNo: None,  # an answer, and no mistake of anybody's
    PolicyError: "dataguard policy check FILE names every problem with its line",
    NotInRun: "dataguard log RUN lists its attempts, steps and events",
    UsageError: "{command} --help",
    ShardDamaged: "take the shard from a copy, or withhold it: dataguard quarantine RUN SHARD --reason TEXT",
    ShardChanged: "put the shard back as it was, or build a manifest of what is there now",
    ManifestDamaged: "take the manifest from a copy, or build it again",
    RunDamaged: "take it from a copy; of a run, `dataguard verify RUN` lists what is wrong",
    InputError: "see that it is there, is what it is taken for, and can be read",
    EnvironmentFailed: "mend that, and run the command again",
}
"""What to do next about a kind of error, where it says nothing of its own."""

_MOST_LINES = 4
_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a command ends that did not end well."""

    exit_code: int
    text: str
    """For standard error; empty where there is nothing to say."""


def explain(error: BaseException, *, debug: bool = False, command: str = "dataguard") -> Failure:
    r"""The text and the exit code for whatever was raised by a command, named as it is typed.

    >>> from dataguard.errors import NotInRun
    >>> explain(NotInRun("step 70 was not delivered", allowed="0:60"))
    Failure(exit_code=2, text='error: step 70 was not delivered\n  allowed: 0:60')
    >>> explain(NotInRun("step 70 was not delivered"), command="dataguard inspect").text
    'error: step 70 was not delivered\n  next: dataguard log RUN lists its attempts, steps and events'
    """
    failure = _explain(error, command, whole=debug)
    if debug and failure.exit_code != READER_GONE:
        shown = "".join(traceback.format_exception(error))
        return Failure(exit_code=failure.exit_code, text=f"{shown}{failure.text}")
    return failure


def _explain(error: BaseException, command: str, *, whole: bool) -> Failure:
    if isinstance(error, DataguardError):
        return _of_house(error, command, whole=whole)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return Failure(exit_code=USAGE, text=error.format_message())
    if isinstance(error, click.FileError):
        return _error(INPUT, error.format_message())
    if isinstance(error, click.ClickException):
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else command
        return _error(USAGE, _short(_in_our_words(error)), todo=f"{path} --help")
    if isinstance(error, Interrupted):
        return _error(INTERRUPTED, "interrupted", found=error.found, todo=error.todo)
    if isinstance(error, KeyboardInterrupt | click.Abort | EOFError):
        return _error(INTERRUPTED, "interrupted", todo=SAME_AGAIN)
    if isinstance(error, BrokenPipeError) and output.reader_gone():
        output.abandon()
        return Failure(exit_code=READER_GONE, text="")
    if isinstance(error, MemoryError):
        return _error(ENVIRONMENT, f"out of memory{_detail(error)}", todo="free memory, or give the work fewer threads")
    if isinstance(error, OSError):
        return _of_system(error)
    if _is_dead_worker(error):
        return _error(
            ENVIRONMENT, f"a worker died{_detail(error)}", todo="look for the kernel's out-of-memory messages"
        )
    return _error(
        BUG,
        f"this is a fault of dataguard: {type(error).__name__}{_detail(error)}",
        todo="run the command again with --debug, and report what it shows",
    )


def _in_our_words(error: click.ClickException) -> str:
    """What click says, on one line, without the names of its types."""
    if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdecimal():
        return f"what begins with {error.option_name} is taken for an option: numbers and ranges here count from 0"
    told = " ".join(error.format_message().split())
    for theirs, ours in _THEIRS.items():
        told = told.replace(theirs, ours)
    return told


_THEIRS = {
    "is not a valid integer range": "is no whole number",
    "is not a valid integer": "is no whole number",
    "is not a valid float range": "is no number",
    "is not a valid float": "is no number",
}


def _of_house(error: DataguardError, command: str, *, whole: bool) -> Failure:
    """An error that speaks for itself, with what to do next; in full only where somebody looks for a fault."""
    todo = error.todo
    if not todo and not error.allowed:
        general = next(_NEXT[kind] for kind in type(error).__mro__ if kind in _NEXT or kind is DataguardError)
        todo = None if general is None else general.format(command=command)
    lines = [("found", error.found), ("allowed", error.allowed), ("next", todo)]
    if whole:
        told = [error.asked, *(f"  {label}: {text}" for label, text in lines if text)]
    else:
        told = [f"  {label}: {_short(text)}" for label, text in lines if text]
        told = [*_first(error.asked, _MOST_LINES - len(told)), *told]
    return Failure(exit_code=error.exit_code, text="error: " + "\n".join(told))


def _first(text: str, num_lines: int) -> list[str]:
    """The first lines of a text, each cut; the last one says how many more there are."""
    lines = text.splitlines()
    if len(lines) > num_lines:
        left = len(lines) - num_lines
        lines = [*lines[: num_lines - 1], f"{lines[num_lines - 1]} ... and {left:,} more"]
    return [_short(line) for line in lines]


def _short(text: str) -> str:
    """A text on one line; of a long list its beginning, and how many more there are.

    >>> _short(", ".join(f"signal_{n}" for n in range(1000)))[-38:]
    'signal_26, signal_27, ... and 972 more'
    """
    first, *more = text.strip().splitlines() or [""]
    if more:
        first = f"{first} ... {more[-1].strip()}" if len(more) > 1 or more[-1].strip() else first
    if len(first) <= _MOST_CHARACTERS:
        return first
    for sign in (", ", "; "):
        parts = first.split(sign)
        if len(parts) > 2:
            kept = 1
            while sum(len(part) + 2 for part in parts[: kept + 1]) < _MOST_CHARACTERS and kept < len(parts):
                kept += 1
            if len(sign.join(parts[:kept])) <= _MOST_CHARACTERS:
                return f"{sign.join(parts[:kept])}{sign}... and {len(parts) - kept:,} more"
    return f"{first[:_MOST_CHARACTERS]} ... (--debug shows all of it)"


def _of_system(error: OSError) -> Failure:
    """A failure the system told of, which no room has put in words of its own."""
    what = error.strerror or type(error).__name__
    places = [str(name) for name in (error.filename, error.filename2) if name is not None]
    told = f"{what}: {' -> '.join(places)}" if places else f"{what}{'' if error.strerror else _detail(error)}"
    if error.errno in _FULL:
        return _error(ENVIRONMENT, told, todo="free space there (or raise the quota), and run the command again")
    if error.errno in _FORBIDDEN:
        return _error(ENVIRONMENT, told, todo="give this user the right to it, or name another place")
    if error.errno in _TOO_MANY:
        return _error(ENVIRONMENT, told, todo="raise the limit (ulimit -n), or give the work fewer threads")
    if error.errno == errno.EEXIST:
        return _error(ENVIRONMENT, told, todo="something stands in the way there: name another place")
    if error.errno in _NOT_THERE:
        return _error(INPUT, told, todo="check the path as it was typed")
    return _error(ENVIRONMENT, told, todo=_NEXT[EnvironmentFailed])


def _is_dead_worker(error: BaseException) -> bool:
    pools = sys.modules.get("concurrent.futures.process")  # absent unless somebody used it: then it is no such error
    return pools is not None and isinstance(error, pools.BrokenProcessPool)


def _error(exit_code: int, text: str, *, found: str | None = None, todo: str | None = None) -> Failure:
    lines = [f"  {label}: {what}" for label, what in (("found", found), ("next", todo)) if what]
    return Failure(exit_code=exit_code, text="\n".join([f"error: {text}", *lines]))


def _detail(error: BaseException) -> str:
    return f": {error}" if str(error) else ""
