"""What is a corpus once its manifest is built? The manifest, and where the roots of its sources lie.

Roots are no part of the manifest's digest: they are remembered in its file from the build, and given anew where the
data lies elsewhere (``--root NAME=PATH``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataguard.core.manifest import Manifest
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.manifest_read import ManifestFile, read_manifest
from dataguard.corpus.storage import canonical, is_url
from dataguard.errors import UsageError

if TYPE_CHECKING:
    from dataguard.corpus.reader import RowReader

__all__ = ["Corpus", "parse_roots"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Corpus:
    """A manifest and where its sources lie."""

    manifest: Manifest
    roots: Mapping[str, str]
    """Folder or URL of every source."""
    options: Mapping[str, ScanOptions]
    """What reading each source is told, as its scan was."""

    def __post_init__(self) -> None:
        names = {source.name for source in self.manifest.sources}
        assert names == set(self.roots) == set(self.options), "every source has a root and options"

    @classmethod
    def open(cls, path: str | os.PathLike[str], roots: Mapping[str, str] | None = None) -> Corpus:
        """Read a manifest file.

        Parameters
        ----------
        path
            What ``dataguard manifest build -o`` wrote.
        roots
            Where sources lie now, by name; those left out lie where they lay when the manifest was built.

        Raises
        ------
        ManifestDamaged
            The file cannot be trusted.
        UsageError
            No such file, or a root for a source that the manifest does not have.
        """
        return cls.of(read_manifest(path), roots)

    @classmethod
    def of(cls, read: ManifestFile, roots: Mapping[str, str] | None = None) -> Corpus:
        """A corpus of a manifest that was read already; see `open`."""
        known = {source.name: source.root for source in read.header.sources}
        for name in roots or {}:
            if name not in known:
                raise UsageError(f"no source is called {name!r}", found=f"sources {', '.join(known)}")
        given = {
            name: root if is_url(root) else canonical(str(Path(root).absolute()))
            for name, root in (roots or {}).items()
        }
        return cls(
            manifest=read.manifest,
            roots={**known, **given},
            options={name: read.header.options_of(name) for name in known},
        )

    def reader(self, **settings: Any) -> RowReader:
        """A reader of its rows; see `RowReader` for the settings."""
        from dataguard.corpus.reader import RowReader

        return RowReader([self], **settings)


def parse_roots(texts: tuple[str, ...]) -> dict[str, str]:
    """Roots as they are typed.

    >>> parse_roots(("web=/data/web", "code=s3://bucket/a=b"))
    {'web': '/data/web', 'code': 's3://bucket/a=b'}
    """
    roots: dict[str, str] = {}
    for text in texts:
        name, sign, where = text.partition("=")
        if not (name and sign and where):
            raise UsageError(f"--root {text!r} cannot be", allowed="--root NAME=PATH")
        if name in roots:
            raise UsageError(f"--root {name} is given twice", found=f"{roots[name]} and {where}")
        roots[name] = where
    return roots
