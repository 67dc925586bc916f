"""What is wrong with a policy, told so that it can be mended?

A check never stops at the first problem: it returns every one, each with its line, a kind from a closed set, what was
asked, found and allowed, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from dataguard.errors import PolicyError

__all__ = ["Problem", "ProblemKind", "in_order", "policy_error"]

ProblemKind = Literal[
    "syntax",  # no TOML
    "unknown-key",
    "wrong-type",
    "missing-key",
    "unknown-value",  # none of the words that may stand there
    "unknown-signal",
    "unknown-rule",
    "doubled-name",
    "too-many",  # rules
    "no-meaning",  # a key that says nothing for such a rule
    "out-of-range",  # a bound that no value of the signal reaches
    "never",  # a rule that cannot fire
    "always",  # a rule that fires on every sample
    "mixed-kinds",  # text and tokens in one rule
    "unmatched-source",  # names or patterns that match no source there is
    "need",  # a profile or a vocabulary size that is not there
    "nothing",  # no rule could be evaluated at all
]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    >>> print(Problem(kind="unknown-signal", line=4, where="rule 'x'", asked="there is no signal 'byte_entrpy'",
    ...               todo="did you mean byte_entropy?").told())
    line 4, rule 'x': there is no signal 'byte_entrpy'; did you mean byte_entropy?
    """

    kind: ProblemKind
    line: int | None
    """Counted from 1; null where the file has no such place."""
    where: str
    """In words: the rule, section or key."""
    asked: str
    found: str | None = None
    allowed: str | None = None
    todo: str | None = None

    def told(self) -> str:
        """All of it, on one line."""
        place = f"line {self.line}, {self.where}" if self.line is not None else self.where
        parts = [self.asked]
        parts += [f"found {self.found}"] if self.found else []
        parts += [f"allowed {self.allowed}"] if self.allowed else []
        parts += [self.todo] if self.todo else []
        return f"{place}: {'; '.join(parts)}"


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems by line, each once; those without a line last."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda each: (each.line is None, each.line or 0)))


def policy_error(name: str, problems: Iterable[Problem]) -> PolicyError:
    """All problems as one error."""
    told = [problem.told() for problem in in_order(problems)]
    count = "a problem" if len(told) == 1 else f"{len(told):,} problems"
    return PolicyError(
        f"policy {name} has {count}",
        found="\n    ".join(["", *told]),
        todo="see them again with: dataguard policy check",
    )
