"""How do the options of a command become a plan?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataguard.errors import UsageError

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.plan.plan import Plan

__all__ = ["given", "make_plan"]

_NEEDED = {"seed": "--seed N", "global_batch": "--global-batch N"}


def given(made_of: dict[str, Any]) -> dict[str, Any]:
    """The plan options that were typed; what was left out is the plan's own business."""
    return {name: value for name, value in made_of.items() if value is not None and value != {}}


def make_plan(corpus: Corpus, made_of: dict[str, Any]) -> Plan:
    """The plan that the options of `plan_options` describe."""
    from dataguard.plan.plan import Plan

    options = given(made_of)
    missing = [spelling for name, spelling in _NEEDED.items() if name not in options]
    if missing:
        raise UsageError("a plan needs a seed and a global batch size", todo=f"give {' and '.join(missing)}")
    return Plan(corpus, **options)
