"""How does datatrove get to answer rounds of a benchmark without being part of this project's environment?

1. An environment of its own is made in pytest's cache folder, once; later runs find it there. Where that fails, what
   asked for it is skipped with the reason.
2. A process of that environment is started and given the documents. It imports, makes filters and waits.
3. For each round it is told by a pipe which words to take, filters all documents, and says how much processor time that
   took.

This file is both sides: as a script it is the process of step 2, which sees nothing of this project.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["VERSION", "Datatrove", "InstallationError", "environment"]

VERSION = "0.10.1"
REQUIREMENTS = (f"datatrove=={VERSION}", "spacy==3.8.18", "regex")
"""spaCy's blank English tokenizer, which needs no model, is what datatrove takes for English; regex it forgets to ask
for."""


class InstallationError(Exception):
    """The environment could not be made."""


def environment(folder: Path) -> Path:
    """The Python of an environment in `folder` that holds datatrove, made if it is not there."""
    wanted = "\n".join(REQUIREMENTS)
    ready, python = folder / "ready", folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if ready.is_file() and ready.read_text() == wanted:
        return python
    ready.unlink(missing_ok=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallationError(f"no environment for datatrove: {error}") from error
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InstallationError(f"datatrove cannot be installed: {said[-1] if said else 'pip failed'}")
    ready.write_text(wanted)
    return python


class Datatrove:
    """A warm process that filters the same documents again and again."""

    def __init__(self, python: Path, documents: Sequence[str], log: Path) -> None:
        self.seconds = 0.0
        """Processor time of all its rounds so far."""
        self._log, self._stderr = log, log.open("w")
        self._process = subprocess.Popen(
            [str(python), "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )
        self._ask(list(documents))

    def filter(self, words: str) -> int:
        """One round, with words ``"by white space"`` or ``"its own"``: how many documents passed."""
        answer = self._ask(words)
        self.seconds += answer["seconds"]
        passed: int = answer["passed"]
        return passed

    def _ask(self, what: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; its log says why
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"datatrove's process has ended: {self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._stderr.close()


def answer_rounds() -> None:
    """Read documents, then rounds, from standard input, and answer each on standard output, in JSON by the line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline.filters import gopher_repetition_filter as gopher  # type: ignore[import-not-found]

    words_of = {"by white space": lambda text, _: text.split(), "its own": gopher.split_into_words}
    documents = [Document(text=text, id=str(place)) for place, text in enumerate(json.loads(sys.stdin.readline()))]
    never = math.inf  # thresholds off: no document is done with before all has been counted
    judge = gopher.GopherRepetitionFilter(
        dup_line_frac=never,
        dup_para_frac=never,
        dup_line_char_frac=never,
        dup_para_char_frac=never,
        top_n_grams=tuple((n, never) for n in (2, 3, 4)),
        dup_n_grams=tuple((n, never) for n in range(5, 11)),
    )
    print(json.dumps({"documents": len(documents)}), file=answers, flush=True)
    for line in sys.stdin:
        gopher.split_into_words = words_of[json.loads(line)]
        began = time.process_time()
        passed = sum(judge.filter(document) is True for document in documents)
        seconds = time.process_time() - began
        print(json.dumps({"seconds": seconds, "passed": passed}), file=answers, flush=True)


if __name__ == "__main__":
    answer_rounds()
