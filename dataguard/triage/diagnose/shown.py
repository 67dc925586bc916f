"""What does a notebook show of a diagnosis: the verdict, what decided, what speaks for and against, what is next?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dataguard.core.notebook import Listing, card

if TYPE_CHECKING:
    from dataguard.triage.diagnose.verdict import Diagnosis

__all__ = ["diagnosis_facts", "diagnosis_html", "diagnosis_listings", "diagnosis_text"]


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """One line, whatever speaks for and against."""
    scores = " ".join(f"{name}={score}" for name, score in diagnosis.scores.items())
    return f"<Diagnosis {diagnosis.verdict.value} by {diagnosis.rule!r}: {scores}>"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """A card of a diagnosis."""
    title = f"Diagnosis: {diagnosis.verdict.value}"
    return card(title, diagnosis_facts(diagnosis), tables=diagnosis_listings(diagnosis))


def diagnosis_facts(diagnosis: Diagnosis) -> dict[str, object]:
    """What it comes to."""
    following = diagnosis.next_check
    return {
        "summary": diagnosis.summary,
        "rule": diagnosis.rule,
        "next check": "none could change the verdict" if following is None else f"{following.name}: {following.how}",
    }


def diagnosis_listings(diagnosis: Diagnosis) -> tuple[Listing, ...]:
    """Scores, and the texts of each hypothesis."""
    names = sorted(diagnosis.scores, key=lambda name: -diagnosis.scores[name])
    sides = {"for": diagnosis.for_, "against": diagnosis.against, "missing": diagnosis.missing}
    told = list(_texts(names, sides))
    scores = [(name, diagnosis.scores[name], *(len(texts.get(name, ())) for texts in sides.values())) for name in names]
    return (
        Listing(title="hypotheses", columns=("cause", "score", *sides), rows=scores, num_rows=len(scores)),
        Listing(title="evidence", columns=("cause", "side", "what"), rows=told, num_rows=len(told)),
    )


def _texts(names: list[str], sides: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Iterator[tuple[str, str, str]]:
    """What speaks for and against first, what is missing behind that; what several causes share stands once."""
    for side, texts in sides.items():
        causes: dict[str, list[str]] = {}
        for name in names:
            for text in dict.fromkeys(texts.get(name, ())):
                causes.setdefault(text, []).append(name)
        yield from ((", ".join(shared), side, text) for text, shared in causes.items())
