"""What data does a run name, where does it lie, and who reads it?

The side of a `Run` that is about manifests and shards. Manifests are the run's own copies; where sources lie is as it
was said last (`roots.folded_roots`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dataguard.core.manifest import Manifest
from dataguard.run.attempts import begun_events
from dataguard.run.creating import manifests_of
from dataguard.run.events import AttemptBegun, RunCreated
from dataguard.run.journal import JournalRead
from dataguard.run.manifests import KeptManifests
from dataguard.run.roots import folded_roots

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.corpus.reader import RowReader
    from dataguard.plan.attempts import AttemptTree
    from dataguard.plan.plan import Plan

__all__ = ["RunData"]


class RunData:
    """Manifests, places and readers of a run; `Run` is one, and has what is declared here."""

    document: RunCreated
    _manifests: KeptManifests

    if TYPE_CHECKING:

        def read(self) -> JournalRead:
            """Every event."""

        def attempts(self, read: JournalRead | None = None) -> AttemptTree:
            """All attempts."""

        def begun(self, attempt: int, read: JournalRead | None = None) -> AttemptBegun:
            """The event that began an attempt."""

        def plan_of(self, attempt: int | None = None) -> Plan:
            """The plan of an attempt."""

    def manifest(self, digest: str) -> Manifest:
        """The run's own copy of a manifest."""
        return self._manifests.manifest(digest)

    @property
    def manifests(self) -> dict[str, Manifest]:
        """Every manifest that the run or one of its attempts names, by digest."""
        return {digest: self.manifest(digest) for digest in self.manifest_digests()}

    def manifest_digests(self, read: JournalRead | None = None) -> tuple[str, ...]:
        """Digests of every manifest that the run or one of its attempts names, in order of first mention."""
        begun = begun_events(self.read() if read is None else read).values()
        named = (digest for digests in (self.document.manifests, *(e.manifests for e in begun)) for digest in digests)
        return tuple(dict.fromkeys(named))

    def roots(self, attempt: int | None = None, override: Mapping[str, str] | None = None) -> dict[str, str]:
        """Where each source lies: as its manifest says, as given at creation, by the attempts, and now; later wins."""
        read = self.read()
        tree = self.attempts(read)
        begun = [self.begun(each.number, read).roots for each in (tree.lineage(attempt) if len(tree) else ())]
        manifests = (self._manifests.roots(digest) for digest in self.manifest_digests(read))
        return folded_roots(manifests, [self.document.roots, *begun], override or {})

    def corpora(self, attempt: int | None = None, roots: Mapping[str, str] | None = None) -> list[Corpus]:
        """The corpora that an attempt reads, in the order its stream numbers shards through.

        Parameters
        ----------
        attempt
            Default: the newest leaf; the run itself where none has begun.
        roots
            Where sources lie now, by name, beside what is remembered.

        Raises
        ------
        UsageError
            Nobody ever said where a source lies.
        """
        return self._manifests.corpora(manifests_of(self.plan_of(attempt).document), self.roots(attempt, roots))

    def reader(self, attempt: int | None = None, roots: Mapping[str, str] | None = None, **settings: Any) -> RowReader:
        """A reader of an attempt's rows, by shards as its stream numbers them; see `RowReader` for the settings."""
        from dataguard.corpus.reader import RowReader

        return RowReader(self.corpora(attempt, roots), **settings)
