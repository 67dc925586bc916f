"""Do the sources of an attempt lie where this rank looks for them?

A shard that cannot be read costs its slots and stops nobody. A whole source that is not there is another thing: a disk
that was not mounted, a folder that was moved. Every slot of it would be padding, on this machine alone, and nothing
would stop; so it is refused before an attempt begins, by every rank for its own machine.

Only folders are asked, not shards: one call a source. Remote storage is asked when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dataguard.corpus.storage import is_url, native
from dataguard.errors import InputError
from dataguard.run.run import Run

if TYPE_CHECKING:
    from dataguard.core.manifest import Manifest
    from dataguard.corpus.corpus import Corpus

__all__ = ["check_places"]


def check_places(
    run: Run,
    *,
    parent: int | None = None,
    roots: Mapping[str, str] | None = None,
    corpus: Corpus | None = None,
    weights: Mapping[str, Any] | None = None,
) -> None:
    """Look for the folder of every source that the next attempt mixes.

    Parameters
    ----------
    parent
        The attempt it is to fork from; default: the newest leaf.
    roots
        Where sources lie now, beside what is remembered.
    corpus, weights
        What changes from that attempt's start on.

    Raises
    ------
    UsageError
        Nobody ever said where a source lies.
    InputError
        The folder of a source is not there, or is empty, and not every shard of it is withheld anyway.
    """
    if run.plan_document().root.form == "given":
        return  # the trainer's own loader reads them
    if parent is not None and parent not in run.attempts().numbers:
        return  # a state of a journal that has lost its tail: who begins or joins the attempt says what is wrong
    roots = dict(roots or {})
    new = set() if corpus is None else {source.name for source in corpus.manifest.sources}
    known = {name: root for name, root in roots.items() if name not in new or name in run.roots(parent)}
    corpora = run.corpora(parent, known)
    mixture = run.plan_of(parent).document.mixtures[-1]
    if corpus is None:
        corpus = next(each for each in corpora if each.manifest.digest == mixture.manifest)
        # A stream goes through its sources one after the other; a run has left behind what its last mixture leaves out.
        mixtures = run.plan_of(parent).document.mixtures if run.stream_identity is not None else (mixture,)
        mixed: Iterable[str] = [name for each in mixtures for name in each.weights]
        places = dict(corpus.roots)
    else:
        mixed = [source.name for source in corpus.manifest.sources]
        places = {**corpus.roots, **roots}
    if weights is not None:
        mixed = [name for name, weight in weights.items() if _counts(weight)]
    for name in mixed:
        trouble = _trouble(places.get(name, ""))
        if trouble and not _is_withheld(run, name, corpus.manifest):
            raise InputError(
                f"source {name!r} is not where it is looked for",
                found=f"{places[name]}: {trouble}",
                todo=f"mount it, or say where it lies with --root {name}=PATH (in Python: roots={{{name!r}: PATH}})",
            )


def _counts(weight: Any) -> bool:
    """Whether a source of this weight is mixed; what is no weight at all is for the plan to refuse."""
    try:
        return Fraction(str(weight)) != 0
    except (ValueError, ZeroDivisionError):
        return False


def _trouble(place: str) -> str:
    """Why no shard can lie there; empty where some may."""
    if not place or is_url(place):
        return ""
    try:
        with os.scandir(native(place)) as listing:
            return "" if next(listing, None) is not None else "an empty folder"
    except OSError as error:
        return error.strerror or type(error).__name__


def _is_withheld(run: Run, name: str, manifest: Manifest) -> bool:
    """Whether every shard of a source is withheld as a whole, so that nothing of it will be read."""
    whole = {entry.shard for entry in run.pending(run.read()).withheld if entry.row is None}
    shards = (manifest.shard_name(shard) for shard in range(len(manifest.shards)))
    return all(shard in whole for shard in shards if shard.startswith(f"{name}/"))
