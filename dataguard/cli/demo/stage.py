"""How does the demo run commands, and hold what comes of them against what the story promises?

Each command is a process of its own, run by this Python, whatever stands on the path, and shown as a person would type
it. Whatever ends the demo ends the process that runs: it is asked to, so that torchrun can end its ranks, and killed
where it does not.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeAlias

from dataguard.cli.demo.answers import DemoCheck, DemoCommand
from dataguard.errors import AnswerNo

__all__ = ["NotAsTold", "Stage", "argv_of", "shortened"]

_ENDING_SECONDS = 15.0
Pipe: TypeAlias = "int | TextIO | None"
_CUT = "\N{HORIZONTAL ELLIPSIS}"
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class NotAsTold(AnswerNo):
    """The story went another way than it is told."""


class Stage:
    """Runs the commands of one story in its folder, and keeps how each of them ended.

    Parameters
    ----------
    folder
        Where commands run.
    to_stderr
        Whether what is told and what commands say goes to standard error: an answer in JSON has the other to itself.
    kept
        Whether the folder outlives the story.
    """

    def __init__(self, folder: Path, *, to_stderr: bool, kept: bool = False) -> None:
        self.folder = folder
        self._kept = kept
        self.commands: list[DemoCommand] = []
        self.checks: list[DemoCheck] = []
        self._out = sys.stderr if to_stderr else sys.stdout
        self._to_stderr = to_stderr

    def tell(self, text: str = "") -> None:
        """A sentence between the commands."""
        encoding = self._out.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=self._out, flush=True)

    def run(self, *words: str, expected: int = 0, why: str = "", most: int | None = None) -> None:
        """Show a command, run it, let it answer, and keep its exit code.

        Parameters
        ----------
        most
            Lines of each paragraph that are shown of a long answer, on a terminal without what does not fit on them;
            all of it goes into a file. Where the command ends otherwise, and by default, all of it is shown. What goes
            to standard error always is.

        Raises
        ------
        NotAsTold
            It ended with another code than `expected`.
        """
        command = shlex.join(words)
        for line in why.splitlines():
            self.tell(f"# {line}")
        self.tell(f"$ {command}")
        began = time.monotonic()
        usual = sys.stderr if self._to_stderr else None
        with _ended(self._started(words, stdout=usual if most is None else subprocess.PIPE)) as process:
            said = b"" if most is None else process.communicate()[0]
            code = process.wait()
        if most is not None:
            self._show(said.decode("utf-8", "replace"), words[1], most if code == expected else None)
        seconds = round(time.monotonic() - began, 3)
        if code or expected:
            as_it_should = "as it should" if code == expected else f"and {expected} was expected"
            self.tell(f"[exit code {code}, {as_it_should}]")
        self.tell()
        self.commands.append(DemoCommand(command=command, exit_code=code, expected_exit_code=expected, seconds=seconds))
        if code != expected:
            raise NotAsTold(f"{command} did not end as it should", found=f"{code}", allowed=f"{expected}")

    def _show(self, said: str, name: str, most: int | None) -> None:
        lines = said.splitlines()
        shown = lines if most is None else shortened(lines, most)
        columns = shutil.get_terminal_size().columns if most is not None and self._out.isatty() else None
        for line in shown:
            self.tell(line if columns is None or len(line) <= columns else line[: columns - 1] + _CUT)
        if most is not None and len(lines) > most:
            (self.folder / f"{name}.txt").write_text(said, encoding="utf-8")
            where = f"{name}.txt has all {len(lines):,} lines"
            self.tell(f"[{where}]" if self._kept else f"[shortened; with --keep DIR, {where}]")

    def ask(self, *words: str) -> bytes:
        """The JSON answer of a command that the story does not show.

        Raises
        ------
        NotAsTold
            It did not end with 0.
        """
        asked = [*words, "--json"]
        with _ended(self._started(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as process:
            answer, said = process.communicate()
        if process.returncode:
            told = said.decode("utf-8", "replace")
            raise NotAsTold(f"{shlex.join(asked)} ended with {process.returncode}", found=told)
        return bytes(answer)

    def check(self, what: str, found: object, expected: object, *, right: bool | None = None) -> None:
        """Keep whether something is as the story promises; by default, whether it is what was expected.

        Raises
        ------
        NotAsTold
            It is not.
        """
        is_right = found == expected if right is None else right
        kept = DemoCheck(what=what, expected=str(expected), found=str(found), as_expected=is_right)
        self.checks.append(kept)
        if not is_right:
            raise NotAsTold(f"the story does not hold: {what}", found=kept.found, allowed=kept.expected)

    def _started(self, words: Sequence[str], *, stdout: Pipe, stderr: Pipe = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - programs of this Python, with words of our own
            argv_of(words),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=_environment(os.environ),  # noqa: TID251 - the one place of this room
        )


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """The first lines of each paragraph, and how many more there are where it is more than one.

    >>> shortened(["a", "b", "c", "d", "", "e", "f", "g"], 2)
    ['a', 'b', '  ... 2 more lines', '', 'e', 'f', 'g']
    """
    shown: list[str] = []
    first = 0
    for stop in [*(i for i, line in enumerate(lines) if not line.strip()), len(lines)]:
        paragraph = lines[first:stop]
        num_more = len(paragraph) - most
        shown += paragraph if num_more <= 1 else [*paragraph[:most], f"  ... {num_more:,} more lines"]
        shown += lines[stop : stop + 1]
        first = stop + 1
    return shown


def argv_of(words: Sequence[str]) -> list[str]:
    """What is run for a command as it is typed: always by this Python, whether or not its scripts are on the path.

    >>> argv_of(["dataguard", "log", "RUN"])[1:]
    ['-P', '-m', 'dataguard', 'log', 'RUN']
    >>> argv_of(["torchrun", "--standalone", "train.py"])[1:]
    ['-m', 'torch.distributed.run', '--standalone', 'train.py']
    """
    modules = {"dataguard": ["-P", "-m", "dataguard"], "torchrun": ["-m", "torch.distributed.run"], "python": []}
    return [sys.executable, *modules[words[0]], *words[1:]]


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """What commands run in: ranks find each other on this machine alone, whatever its name resolves to."""
    usual = {"OMP_NUM_THREADS": "1", "PET_LOCAL_ADDR": "localhost"}
    if sys.platform in _LOOPBACK:
        usual["GLOO_SOCKET_IFNAME"] = _LOOPBACK[sys.platform]
    return usual | dict(given)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Whatever is raised in the block, the process does not outlive it."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
