"""Are the sources mixed as they were asked to be, and is there as much of each as that takes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from dataguard.audit.documents import Mixture, MixtureOf, SourceAccount
from dataguard.core.parse import exact_number
from dataguard.errors import UsageError

__all__ = ["mixture_of", "parse_weights"]

_MANY_EPOCHS = 4
"""Data seen up to about four times is worth nearly as much as new data (Muennighoff et al., 2023)."""


def parse_weights(weights: Mapping[str, str], sources: Sequence[str]) -> dict[str, Fraction]:
    """Weights as typed, as shares that sum to 1; empty where none were given.

    >>> parse_weights({"web": "3", "code": "1"}, ["code", "web"])
    {'code': Fraction(1, 4), 'web': Fraction(3, 4)}
    """
    if not weights:
        return {}
    for name in weights:
        if name not in sources:
            raise UsageError(f"no source is called {name!r}", found=f"sources {', '.join(sources)}")
    missing = [name for name in sources if name not in weights]
    if missing:
        raise UsageError(f"source {missing[0]!r} has no weight", allowed="--weight NAME=W for every source or none")
    shares = {}
    for name in sources:
        share = exact_number(weights[name].strip())
        if share is None or share < 0:
            raise UsageError(f"weight {weights[name]!r} of source {name!r} cannot be", allowed="a number from 0 on")
        shares[name] = share
    total = sum(shares.values())
    if not total:
        raise UsageError("all weights are 0", allowed="at least one above 0")
    return {name: share / total for name, share in shares.items()}


def mixture_of(
    sources: Sequence[SourceAccount], withheld_bytes: Mapping[str, int], weights: Mapping[str, Fraction]
) -> Mixture:
    """The mixture of the sources as they were scored.

    Parameters
    ----------
    sources
        Their accounts.
    withheld_bytes
        Bytes of the withheld records, by source.
    weights
        Shares by source, of `parse_weights`.
    """
    records = sum(source.scored for source in sources)
    content = sum(source.content_bytes for source in sources)
    tokens = sum(source.tokens for source in sources)
    kept = content - sum(withheld_bytes.values())
    entries, remarks = [], []
    for source in sources:
        share = _share(source.content_bytes, content)
        weight = float(weights[source.source]) if weights else None
        epochs = weight / share if weight is not None and share else None
        entries.append(
            MixtureOf(
                source=source.source,
                weight=weight,
                share_of_records=_share(source.scored, records),
                share_of_bytes=share,
                share_of_tokens=_share(source.tokens, tokens) if source.kind == "tokens" else None,
                share_of_bytes_kept=_share(source.content_bytes - withheld_bytes.get(source.source, 0), kept),
                epochs_by_bytes=epochs,
            )
        )
        if weight and not source.content_bytes:
            remarks.append(f"source {source.source} is asked for with {weight:.1%} and holds nothing")
        elif epochs is not None and epochs >= _MANY_EPOCHS:
            remarks.append(
                f"source {source.source} is asked for with {weight:.1%} and is {share:.1%} of the bytes: "
                f"{epochs:.1f} epochs of it while the corpus is seen once"
            )
        elif weight == 0 and source.content_bytes:
            remarks.append(f"source {source.source} is left out by its weight, and is {share:.1%} of the bytes")
    return Mixture(sources=tuple(entries), remarks=tuple(remarks))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
