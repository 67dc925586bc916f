"""Under which name does telemetry know what a log calls by another?

Detectors look for ``loss``, ``grad_norm`` and ``lr``. Every trainer spells them in its own way; `telemetry_names` knows
the usual spellings, and never guesses between two: where two columns could be the loss (an export of several runs), it
says so and leaves both as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dataguard.errors import NotInRun, UsageError

__all__ = ["KNOWN_NAMES", "Naming", "telemetry_names"]

KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss", "train loss", "lm loss", "training loss", "train lm loss", "trl", "global avg loss"),
    "val_loss": (
        *("val loss", "validation loss", "eval loss", "valid loss", "tel", "eval val loss"),
        *("validation lm loss value", "lm loss validation"),
    ),
    "grad_norm": ("grad norm", "gradient norm", "norm", "train grad norm", "train gradient norm", "total grad norm"),
    "lr": ("lr", "learning rate", "train lr", "train learning rate"),
}
"""Name of telemetry -> its usual spellings, most telling first; case and punctuation do not matter."""

_PUNCTUATION = re.compile(r"[\s/._:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What the names of a log become."""

    names: Mapping[str, str]
    """Name in the log -> name of telemetry, of all that are renamed."""
    undecided: Mapping[str, tuple[str, ...]]
    """Name of telemetry -> names of the log that could be it, none of which was taken."""


def telemetry_names(logged: Iterable[str], given: Mapping[str, str] | None = None) -> Naming:
    """Which names of a log become which.

    Parameters
    ----------
    logged
        Names in the log.
    given
        What the user says, name in the log -> name of telemetry; it goes before everything known.

    Raises
    ------
    NotInRun
        A given name is not in the log.
    UsageError
        Two names would become one.

    Examples
    --------
    >>> telemetry_names(["lm loss", "grad norm", "num zeros"]).names
    {'lm loss': 'loss', 'grad norm': 'grad_norm'}
    >>> telemetry_names(["a - loss", "b - loss"]).undecided
    {'loss': ('a - loss', 'b - loss')}
    """
    there = list(logged)
    names = dict(given or {})
    for name in names:
        if name not in there:
            raise NotInRun(f"the log has no {name!r}", found=", ".join(there[:20]) or "nothing that was logged")
    undecided: dict[str, tuple[str, ...]] = {}
    for target, spellings in KNOWN_NAMES.items():
        if target in names.values() or (target in there and target not in names):
            continue
        for spelling in spellings:
            found = [name for name in there if name not in names and _spelled(name) == spelling]
            if len(found) == 1:
                names[found[0]] = target
                break
            if found:
                undecided[target] = tuple(found)
                break
    after = [names.get(name, name) for name in there]
    twice = sorted({name for name in after if after.count(name) > 1})
    if twice:
        both = [name for name in there if names.get(name, name) == twice[0]]
        raise UsageError(
            f"{' and '.join(map(repr, both))} would both be {twice[0]!r}", todo="--map one of them to another name"
        )
    return Naming(names=names, undecided=undecided)


def _spelled(name: str) -> str:
    """As it is compared: lower case, words apart; the name of a run that a dashboard puts before it comes off."""
    return _PUNCTUATION.sub(" ", name.rpartition(" - ")[2]).strip().lower()
