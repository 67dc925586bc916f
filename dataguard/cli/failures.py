"""What does a command say, and with which code does it end, when something was raised?

The codes are the closed list of the design: 1 the answer is no, 2 usage, 3 input, 4 environment, 130 interrupted. A
reader that has gone (``| head -n 1``) ends a command with 141, as the shell itself would say it. Anything that none of
the rules below knows is a fault of dataguard: 70, so that no script takes it for an answer.
"""

from __future__ import annotations

import errno
import sys
import traceback
from dataclasses import dataclass

import click

from dataguard.cli import output
from dataguard.errors import DataguardError

__all__ = ["BUG", "ENVIRONMENT", "INPUT", "INTERRUPTED", "READER_GONE", "USAGE", "Failure", "explain"]

USAGE = 2
INPUT = 3
ENVIRONMENT = 4
BUG = 70
INTERRUPTED = 130
READER_GONE = 141

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a command ends that did not end well."""

    exit_code: int
    text: str
    """For standard error; empty where there is nothing to say."""


def explain(error: BaseException, *, debug: bool = False) -> Failure:
    r"""The text and the exit code for whatever was raised.

    >>> from dataguard.errors import NotInRun
    >>> explain(NotInRun("step 70 was not delivered", allowed="0:60"))
    Failure(exit_code=2, text='error: step 70 was not delivered\n  allowed: 0:60')
    """
    failure = _explain(error)
    if debug and failure.exit_code != READER_GONE:
        shown = "".join(traceback.format_exception(error))
        return Failure(exit_code=failure.exit_code, text=f"{shown}{failure.text}")
    return failure


def _explain(error: BaseException) -> Failure:
    if isinstance(error, DataguardError):
        return _error(error.exit_code, str(error))
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return Failure(exit_code=USAGE, text=error.format_message())
    if isinstance(error, click.FileError):
        return _error(INPUT, error.format_message())
    if isinstance(error, click.ClickException):
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "dataguard"
        return _error(USAGE, error.format_message(), todo=f"{path} --help")
    if isinstance(error, KeyboardInterrupt | click.Abort | EOFError):
        return _error(INTERRUPTED, "interrupted")
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
    if error.errno in _NOT_THERE:
        return _error(INPUT, told, todo="check the path as it was typed")
    return _error(ENVIRONMENT, told)


def _is_dead_worker(error: BaseException) -> bool:
    pools = sys.modules.get("concurrent.futures.process")  # absent unless somebody used it: then it is no such error
    return pools is not None and isinstance(error, pools.BrokenProcessPool)


def _error(exit_code: int, text: str, *, todo: str | None = None) -> Failure:
    return Failure(exit_code=exit_code, text=f"error: {text}" + (f"\n  next: {todo}" if todo else ""))


def _detail(error: BaseException) -> str:
    return f": {error}" if str(error) else ""
