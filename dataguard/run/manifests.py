"""How does a run keep the manifests and plans that its attempts name?

As immutable copies, named by digest: ``manifest/<digest>.parquet`` and ``plan/<digest>.json``. A manifest that came
from a file is copied byte for byte, so that the details of findings and the places of its sources come along; one that
was only ever a value in memory is written out. A copy that stands already is kept.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dataguard.core.manifest import Manifest
from dataguard.errors import ManifestDamaged, RunDamaged, UsageError
from dataguard.plan.document import PlanDocument, decode_plan, encode_plan
from dataguard.run.atomic import make_folders, publish_new
from dataguard.run.layout import Layout

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.corpus.manifest_format import ManifestHeader
    from dataguard.corpus.manifest_read import ManifestFile
    from dataguard.plan.plan import Plan

__all__ = ["KeptManifests", "KeptPlans", "keep_manifest", "keep_plan"]

T = TypeVar("T")


def keep_plan(layout: Layout, document: PlanDocument) -> str:
    """Write a plan document (once) and return its digest."""
    digest = document.digest
    if not layout.plan(digest).exists():
        publish_new(layout.plan(digest), encode_plan(document), tmp=layout.tmp)
    return digest


def keep_manifest(
    layout: Layout, manifest: Manifest, *, file: str | Path | None = None, corpus: Corpus | None = None
) -> str:
    """Copy a manifest's file, or write its value, (once) and return its digest.

    Parameters
    ----------
    file
        The file the manifest was read from. ManifestDamaged where it now holds another manifest.
    corpus
        Without a file: where its sources lie, and what the scan was told. Without either the copy knows no roots and
        says that the scan kept to the default limits.
    """
    digest = manifest.digest
    if layout.manifest(digest).exists():
        return digest
    content = _as_file(layout, manifest, corpus) if file is None else _content_of(Path(file), digest)
    publish_new(layout.manifest(digest), content, tmp=layout.tmp)
    return digest


class KeptPlans:
    """A run's copies of plan documents: each is read when it is asked for, and once."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._documents: dict[str, PlanDocument] = {}
        self._plans: dict[str, Plan] = {}

    def document(self, digest: str) -> PlanDocument:
        """A plan document; RunDamaged where its copy is missing, damaged or another."""
        if digest not in self._documents:
            path = self._layout.plan(digest)
            try:
                content = path.read_bytes()
            except OSError as error:
                raise RunDamaged(f"the plan {path} cannot be read", found=error.strerror) from error
            self._documents[digest] = decode_plan(content, name=str(path), digest=digest)
        return self._documents[digest]

    def plan(self, document: PlanDocument, manifest: Callable[[str], Manifest]) -> Plan:
        """A plan document together with the manifests it names."""
        from dataguard.plan.plan import Plan

        digest = document.digest
        if digest not in self._plans:
            manifests = {mixture.manifest: manifest(mixture.manifest) for mixture in document.mixtures}
            self._plans[digest] = Plan.from_document(document, manifests)
        return self._plans[digest]


class KeptManifests:
    """A run's copies of manifests: each is read when it is asked for, and once, however many ranks live here."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._files: dict[str, ManifestFile] = {}
        self._headers: dict[str, ManifestHeader] = {}

    def manifest(self, digest: str) -> Manifest:
        """A manifest; RunDamaged where its copy is missing, damaged or another."""
        return self._file(digest).manifest

    def roots(self, digest: str) -> dict[str, str]:
        """Where each source lay when the manifest was built; empty where its file does not say."""
        from dataguard.corpus.manifest_read import read_header

        if digest in self._files:
            return _roots(self._files[digest].header)
        if digest not in self._headers:
            self._headers[digest] = self._read(digest, read_header)
        return _roots(self._headers[digest])

    def corpora(self, digests: Iterable[str], roots: Mapping[str, str]) -> list[Corpus]:
        """The corpora of manifests, with sources where `roots` says.

        Raises
        ------
        UsageError
            Nobody ever said where a source lies.
        """
        from dataguard.corpus.corpus import Corpus

        corpora = []
        for digest in digests:
            file = self._file(digest)
            here = _roots(file.header)
            lost = sorted(set(here) - set(roots))
            if lost:
                raise UsageError(
                    f"where does source {lost[0]!r} lie? The run was made from a manifest alone, which does not say",
                    todo=f"give --root {lost[0]}=PATH (in Python: roots={{{lost[0]!r}: PATH}})",
                )
            corpora.append(Corpus.of(file, {name: roots[name] for name in here}))
        return corpora

    def _file(self, digest: str) -> ManifestFile:
        from dataguard.corpus.manifest_read import read_manifest

        if digest not in self._files:
            file = self._read(digest, read_manifest)
            found = file.manifest.digest
            if found != digest:
                path = self._layout.manifest(digest)
                raise RunDamaged(f"{path} holds another manifest than its name says", found=found, allowed=digest)
            self._files[digest] = file
        return self._files[digest]

    def _read(self, digest: str, read: Callable[[Path], T]) -> T:
        try:
            return read(self._layout.manifest(digest))
        except (ManifestDamaged, UsageError) as error:
            raise RunDamaged(f"the run's copy of manifest {digest[:16]} cannot be read", found=str(error)) from error


def _roots(header: ManifestHeader) -> dict[str, str]:
    return {source.name: source.root for source in header.sources}


def _content_of(path: Path, digest: str) -> bytes:
    from dataguard.corpus.manifest_read import read_manifest

    found = read_manifest(path).manifest.digest
    if found != digest:
        raise ManifestDamaged(
            f"{path} is not the manifest that the plan was made from",
            found=f"digest {found}",
            allowed=f"digest {digest}",
            todo="make the plan from the file as it is now",
        )
    return path.read_bytes()


def _as_file(layout: Layout, manifest: Manifest, corpus: Corpus | None) -> bytes:
    """The bytes of a manifest file without details of findings, which a value does not carry."""
    from dataguard.corpus.formats.protocol import ScanOptions
    from dataguard.corpus.manifest_format import ManifestDetails
    from dataguard.corpus.manifest_write import write_manifest

    roots = {} if corpus is None else corpus.roots
    options = ScanOptions() if corpus is None else next(iter(corpus.options.values()), ScanOptions())
    num_rejected = len(manifest.rejected)
    make_folders(layout.tmp)
    temporary = layout.tmp / f"manifest.{uuid.uuid4().hex}"
    try:
        write_manifest(
            temporary,
            manifest,
            ManifestDetails(
                lines=np.full(num_rejected, -1, np.int64),
                offsets_bytes=np.full(num_rejected, -1, np.int64),
                details=("",) * num_rejected,
                shard_findings={},
                ignored_lines=np.zeros(len(manifest.shards), np.int64),
            ),
            roots={source.name: roots.get(source.name, "") for source in manifest.sources},
            options=options,
            ignored_files={},
        )
        return temporary.read_bytes()
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
