"""Where does each source lie? As was said last, and only of sources that there are.

Roots are remembered beside what is delivered and count in no digest: the same shards may lie elsewhere tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dataguard.errors import UsageError

__all__ = ["checked_roots", "folded_roots"]


def checked_roots(roots: Mapping[str, str], sources: Iterable[str]) -> dict[str, str]:
    """Where sources lie, as absolute paths (or URLs) by name; UsageError for a source that is not there."""
    from dataguard.corpus.storage import is_url

    known = sorted(set(sources))
    for name in roots:
        if name not in known:
            raise UsageError(
                f"no source is called {name!r}", found=f"sources {', '.join(known)}", todo="name one of these"
            )
    return {name: root if is_url(root) else str(Path(root).absolute()) for name, root in sorted(roots.items())}


def folded_roots(
    manifests: Iterable[Mapping[str, str]], remembered: Iterable[Mapping[str, str]], now: Mapping[str, str]
) -> dict[str, str]:
    """Where each source lies, by name: as manifests say, as was remembered since, and as is said now; later wins.

    >>> folded_roots([{"web": "/a", "code": ""}], [{"web": "/b"}], {})
    {'web': '/b'}
    """
    known: dict[str, str] = {}
    for roots in manifests:
        known.update(roots)
    sources = set(known)
    for roots in remembered:
        known.update(roots)
    known.update(checked_roots(now, sources))
    return {name: root for name, root in known.items() if root}
