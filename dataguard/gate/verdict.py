"""What may be said of a sample, and why may a rule have nothing to say of it?

Verdicts are ordered: of all rules that fired, the gravest action is the sample's verdict. The numbers are what the
index stores, so they never change.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Literal

__all__ = ["ACTIONS", "Action", "Skip", "Verdict"]

Action = Literal["flag", "mask", "substitute", "halt"]
"""What a rule over samples does with one on which it fires."""


class Verdict(IntEnum):
    """What the policy says of a sample, the gravest last.

    >>> max(Verdict.FLAG, Verdict.MASK).name
    'MASK'
    """

    PASS = 0
    """Delivered as it is."""
    FLAG = 1
    """Delivered as it is, and recorded with its signals."""
    MASK = 2
    """Keeps its slot; its labels, or those of the offending span, are ignored."""
    SUBSTITUTE = 3
    """Another row of the same source takes its slot."""
    HALT = 4
    """All ranks stop, at one step."""


ACTIONS: MappingProxyType[Action, Verdict] = MappingProxyType(
    {"flag": Verdict.FLAG, "mask": Verdict.MASK, "substitute": Verdict.SUBSTITUTE, "halt": Verdict.HALT}
)
"""The verdict that each action of a rule gives."""


class Skip(IntEnum):
    """Why a rule was not evaluated on a sample. Evaluated + skipped is the number of samples, for every rule."""

    KIND = 0
    """The rule is over text and the sample is of tokens, or the other way round."""
    SOURCE = 1
    """The rule is for other sources."""
    OFF = 2
    """A section of the policy switches the rule off for this source."""
    NEED = 3
    """What its signal needs is not there: the profile, the vocabulary's size, the bytes of the text."""
    REFERENCE = 4
    """The profile knows nothing of this source, or of this signal in it."""
    MINIMUM = 5
    """A condition on the length says that the rule is not meant for such a sample."""
    PADDING = 6
    """There is no sample: a padding slot, or a row of tokens in which no position counts."""
