"""How do commands that look back show what the samples of a step hold?

Previews are a courtesy where nobody asked for them: shards that are gone are told and change no exit code. Where they
were asked for, what cannot be read ends a command with 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataguard.cli.options import PATH
from dataguard.errors import DataguardError, UsageError

if TYPE_CHECKING:
    from dataguard.corpus.reader import Verify
    from dataguard.corpus.tokenizer import TokenizerFile
    from dataguard.replay.looking import Looker
    from dataguard.report.samples import Shown
    from dataguard.run.run import Run

__all__ = ["Looks", "opened_tokenizer", "tokenizer_option"]

tokenizer_option = click.option(
    "--tokenizer",
    type=PATH,
    metavar="FILE",
    help="Show token samples as text: tokenizer.json, a sentencepiece model, or ranks of tiktoken.",
)
"""``tokenizer: Path | None``."""


def opened_tokenizer(run: Run, path: Path | None) -> TokenizerFile | None:
    """The tokenizer that was named; UsageError where the run's samples are documents."""
    if path is None:
        return None
    if run.plan_of().root.form != "window":
        raise UsageError("samples of this run are documents, so a tokenizer has nothing to show", todo="leave it out")
    from dataguard.corpus.tokenizer import open_tokenizer

    return open_tokenizer(path)


class Looks:
    """Looks at samples of a run, attempt by attempt.

    Parameters
    ----------
    roots
        Where sources lie now.
    asked
        Whether somebody asked for previews: then what makes them impossible is raised.
    verify
        As `Looker` takes it.
    """

    def __init__(
        self,
        run: Run,
        *,
        roots: dict[str, Any],
        tokenizer: TokenizerFile | None = None,
        asked: bool = False,
        verify: Verify = "raise",
    ) -> None:
        self._run = run
        self._roots = {name: str(root) for name, root in roots.items()}
        self._tokenizer = tokenizer
        self._asked = asked or bool(roots)
        self._verify: Verify = verify
        self._lookers: dict[int, Looker | str] = {}
        self.failed = False
        """Whether anything could not be read."""

    def at(self, attempt: int, samples: Sequence[Any]) -> tuple[Shown, ...]:
        """These samples of an attempt with their previews, as far as they can be had."""
        from dataguard.report.samples import shown_samples

        looker = self._looker(attempt)
        if isinstance(looker, str):
            self.failed = True
            return shown_samples(samples, [None] * len(samples), None)
        looked = looker.look(samples)
        self.failed = self.failed or any(each is not None and each.content is None for each in looked)
        return shown_samples(samples, looked, self._tokenizer)

    def problem(self, attempt: int) -> str | None:
        """Why there can be no previews of an attempt; None where there can."""
        looker = self._looker(attempt)
        return looker if isinstance(looker, str) else None

    def close(self) -> None:
        """Let go of the readers."""
        for looker in self._lookers.values():
            if not isinstance(looker, str):
                looker.close()

    def _looker(self, attempt: int) -> Looker | str:
        if attempt not in self._lookers:
            from dataguard.replay.looking import Looker

            try:
                self._lookers[attempt] = Looker(self._run, attempt, roots=self._roots, verify=self._verify)
            except DataguardError as error:
                if self._asked:
                    raise
                self._lookers[attempt] = str(error).splitlines()[0]
        return self._lookers[attempt]
