"""What is a run made of, as one frozen value?

A `Plan` is a plan document together with the manifests it names. Making one resolves what was left open (lanes from
the corpus and the first global batch, weights from the numbers of samples) and refuses what cannot be, so that whatever
holds a plan can build its stream and its steps. It never changes: an amendment gives another plan with the same root.

Two plans are equal when their documents have the same digest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol, TypeVar, get_args

from dataguard.core.address import Geometry
from dataguard.core.manifest import Manifest
from dataguard.errors import PlanError
from dataguard.plan.attempts import AttemptPlan, AttemptTree, Skip, amend
from dataguard.plan.document import (
    ALGORITHMS,
    BatchSize,
    Fill,
    Form,
    Mixture,
    PlanDocument,
    Root,
    Shuffle,
    SkipMode,
    whole_weights,
)
from dataguard.plan.lanes import default_lanes
from dataguard.plan.steps import Steps
from dataguard.plan.stream import Stream
from dataguard.plan.tables import SourceTable, num_samples
from dataguard.plan.withheld import Withheld

__all__ = ["HasManifest", "Plan", "Weight"]

Weight = str | int | float | Fraction
"""A weight as people write it; decimals are taken as written."""

_MAX_INTEGER = 1 << 63


class HasManifest(Protocol):
    """A corpus, as far as a plan is concerned."""

    @property
    def manifest(self) -> Manifest:
        """What data there is."""
        ...


class Plan:
    """What fixes a run's stream, batch sizes, fill and skip mode.

    Parameters
    ----------
    corpus
        A corpus, or a manifest alone.
    seed
        At least 0. Every order and every deal follows from it.
    global_batch
        Slots of a global batch, G.
    form
        What a sample is: ``document`` (a record of a text source) or ``window`` (`seq_len` tokens of a token source).
    seq_len
        Tokens of a window; None for documents.
    lanes
        Interleaved parts of the stream, a power of two, fixed for ever. Default: the largest that divides
        `global_batch` and leaves at least 8 blocks a lane of the largest source, at most 1,024.
    window_blocks
        Blocks of a source that are shuffled together (shared by its lanes).
    shuffle
        ``blocks`` shuffles blocks, and samples within windows of blocks; ``all`` shuffles all samples of a lane;
        ``none`` keeps the manifest's order within each lane.
    weights
        By source name, one for each source that has samples; 0 leaves a source out (see `left_out`). Default: the
        number of samples of each.
    fill
        What a withheld slot holds: ``mask`` or ``substitute``.
    skip_mode
        ``jump``, or ``hole`` for trainers that take the step from the loader.
    first_label
        What the trainer calls its first step, 0 or 1.

    Raises
    ------
    PlanError
        Anything of the above that cannot be, with what was found and what is allowed.
    """

    __slots__ = ("_corpus", "_digest", "_document", "_manifests")

    def __init__(
        self,
        corpus: HasManifest | Manifest,
        *,
        seed: int,
        global_batch: int,
        form: Form = "document",
        seq_len: int | None = None,
        lanes: int | None = None,
        window_blocks: int = 256,
        shuffle: Shuffle = "blocks",
        weights: Mapping[str, Weight] | None = None,
        fill: Fill = "mask",
        skip_mode: SkipMode = "jump",
        first_label: int = 0,
    ) -> None:
        manifest = corpus if isinstance(corpus, Manifest) else corpus.manifest
        _check_choice("form", form, ("document", "window"))
        _check_choice("shuffle", shuffle, get_args(Shuffle))
        _check_choice("fill", fill, get_args(Fill))
        _check_choice("skip mode", skip_mode, get_args(SkipMode))
        _check_choice("first label", first_label, (0, 1))
        _check_whole("seed", seed, at_least=0)
        _check_whole("global batch", global_batch, at_least=1)
        _check_whole("window of blocks", window_blocks, at_least=1)
        if seq_len is not None:
            _check_whole("seq_len", seq_len, at_least=1)
        elif form == "window":
            raise PlanError("form window needs the tokens of a window", todo="give --seq-len N")
        if lanes is not None:
            _check_whole("number of lanes", lanes, at_least=1)
        whole = _resolve_weights(manifest, form, seq_len, weights)
        root = Root(
            manifest=manifest.digest,
            seed=seed,
            form=form,
            seq_len=seq_len,
            lanes=default_lanes(manifest, form, seq_len, global_batch) if lanes is None else lanes,
            window_blocks=window_blocks,
            shuffle=shuffle,
            algorithms=ALGORITHMS,
        )
        document = PlanDocument(
            root=root,
            mixtures=(Mixture(start=0, manifest=manifest.digest, weights=whole),),
            batch_sizes=(BatchSize(start=0, size=global_batch),),
            fill=fill,
            skip_mode=skip_mode,
            first_label=1 if first_label else 0,
        )
        self._set(document, {manifest.digest: manifest}, corpus=None if isinstance(corpus, Manifest) else corpus)

    @classmethod
    def from_document(cls, document: PlanDocument, manifests: Mapping[str, Manifest]) -> Plan:
        """Put a plan document and its manifests together again.

        Parameters
        ----------
        manifests
            By digest; at least those that the mixtures name.

        Raises
        ------
        PlanError
            A manifest is missing or another than its digest says, a mixture does not fit its manifest, or the root was
            made by other versions of the algorithms.
        """
        if document.root.algorithms != ALGORITHMS:
            raise PlanError(
                "this plan was made by other versions of the stream's algorithms",
                found=_versions(document.root.algorithms),
                allowed=_versions(ALGORITHMS),
                todo="use the dataguard that made it",
            )
        named = {mixture.manifest: manifests.get(mixture.manifest) for mixture in document.mixtures}
        present = {digest: manifest for digest, manifest in named.items() if manifest is not None}
        for digest, manifest in named.items():
            if manifest is None:
                raise PlanError(
                    f"manifest {digest[:16]} is missing, which the plan reads",
                    found=", ".join(each[:16] for each in manifests) or "no manifest",
                )
            if manifest.digest != digest:
                raise PlanError("a manifest is another than its name says", found=manifest.digest, allowed=digest)
        for mixture in document.mixtures:
            _check_sources(present[mixture.manifest], document.root.form, document.root.seq_len, mixture.weights)
        plan = cls.__new__(cls)
        plan._set(document, present)
        return plan

    def _set(
        self, document: PlanDocument, manifests: Mapping[str, Manifest], *, corpus: HasManifest | None = None
    ) -> None:
        self._document = document
        self._digest = document.digest
        self._manifests = dict(manifests)
        self._corpus = corpus

    @property
    def document(self) -> PlanDocument:
        """What is written down."""
        return self._document

    @property
    def digest(self) -> str:
        """SHA-256 of the document."""
        return self._digest

    @property
    def root(self) -> Root:
        """What never changes in a run."""
        return self._document.root

    @property
    def manifests(self) -> dict[str, Manifest]:
        """The manifests by digest, in the order the mixtures name them (a copy)."""
        return dict(self._manifests)

    @property
    def corpus(self) -> HasManifest | None:
        """The corpus it was made from, which knows where its sources lie; None where a manifest or a document was."""
        return self._corpus

    @property
    def global_batch(self) -> int:
        """Slots of the first global batch."""
        return self._document.batch_sizes[0].size

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sources of the last mixture's manifest that it gives no weight."""
        mixture = self._document.mixtures[-1]
        names = (source.name for source in self._manifests[mixture.manifest].sources)
        return tuple(name for name in names if name not in mixture.weights)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return (
            f"<Plan {self._digest[:16]} seed={self.root.seed} global_batch={self.global_batch} lanes={self.root.lanes}>"
        )

    def check(self, geometry: Geometry) -> None:
        """Refuse a geometry that does not divide every global batch planned; GeometryError shows the arithmetic."""
        for entry in self._document.batch_sizes:
            geometry.check(entry.size)

    def amended(
        self,
        start: int,
        *,
        manifest: HasManifest | Manifest | None = None,
        weights: Mapping[str, Weight] | None = None,
        global_batch: int | None = None,
    ) -> Plan:
        """Derive the plan whose lists change from a position on; its root is the same, and later entries stay.

        Parameters
        ----------
        start
            Position; above 0 for another manifest or weights, since the stream's beginning is part of the root.
        manifest, weights
            Another mixture. Without `manifest` the one in force at `start` is kept; without `weights` every source of
            the new manifest weighs its number of samples.
        global_batch
            Another batch size.
        """
        _check_whole("start position", start, at_least=0)
        document, manifests = self._document, dict(self._manifests)
        mixtures, batch_sizes = document.mixtures, document.batch_sizes
        if manifest is not None or weights is not None:
            if start == 0:
                raise PlanError("a mixture from position 0 on is the plan itself", todo="make another plan")
            if manifest is None:
                reads = manifests[next(each.manifest for each in reversed(mixtures) if each.start <= start)]
            else:
                reads = manifest if isinstance(manifest, Manifest) else manifest.manifest
            whole = _resolve_weights(reads, self.root.form, self.root.seq_len, weights)
            mixtures = amend(mixtures, Mixture(start=start, manifest=reads.digest, weights=whole))
            manifests[reads.digest] = reads
        if global_batch is not None:
            _check_whole("global batch", global_batch, at_least=1)
            batch_sizes = amend(batch_sizes, BatchSize(start=start, size=global_batch))
        amended = PlanDocument(
            root=document.root,
            mixtures=mixtures,
            batch_sizes=batch_sizes,
            fill=document.fill,
            skip_mode=document.skip_mode,
            first_label=document.first_label,
        )
        return Plan.from_document(amended, manifests)

    def stream(self, attempt: AttemptPlan | None = None, *, bulk: bool = False) -> Stream:
        """Build the stream of an attempt's mixtures (default: the plan's own).

        Parameters
        ----------
        bulk
            Compile the large permutations (a loader); otherwise nothing is compiled (a look-up).
        """
        mixtures = self._document.mixtures if attempt is None else attempt.mixtures
        missing = [mixture.manifest[:16] for mixture in mixtures if mixture.manifest not in self._manifests]
        if attempt is not None and missing:
            raise PlanError(
                f"attempt {attempt.number} reads manifest {missing[0]}, which this plan does not hold",
                found=", ".join(digest[:16] for digest in self._manifests),
            )
        if self.root.form == "given":
            from dataguard.plan.given import GivenStream

            return GivenStream(self.root, mixtures, self._manifests)
        return Stream(self.root, mixtures, self._manifests, bulk=bulk)

    def first_attempt(
        self, geometry: Geometry, *, skips: Iterable[Skip] = (), withheld: Iterable[Withheld] = ()
    ) -> AttemptPlan:
        """Begin the attempt that starts a run of this plan; GeometryError where the geometry does not fit."""
        return AttemptPlan.first(self._document, geometry=geometry, skips=skips, withheld=withheld)

    def steps(self, attempts: Sequence[AttemptPlan] | None = None) -> Steps:
        """Lay out the steps of one lineage, root first (default: of the plan alone, with no attempt begun)."""
        chain = [self.first_attempt(Geometry(world_size=1, microbatch_size=1))] if attempts is None else attempts
        return Steps(
            chain,
            lanes=self.root.lanes,
            skip_mode=self._document.skip_mode,
            first_label=self._document.first_label,
        )

    def tree(self, attempts: Iterable[AttemptPlan]) -> AttemptTree:
        """Put all attempts of a run of this plan together."""
        return AttemptTree(attempts, skip_mode=self._document.skip_mode, first_label=self._document.first_label)


def _check_whole(what: str, value: object, *, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value < _MAX_INTEGER:
        raise PlanError(
            f"a {what} of {value!r} cannot be", allowed=f"a whole number of {at_least} or more, below 2**63"
        )


_Choice = TypeVar("_Choice", str, int)


def _check_choice(what: str, value: _Choice, allowed: tuple[_Choice, ...]) -> None:
    if isinstance(value, bool) or value not in allowed:
        near = difflib.get_close_matches(str(value), [str(each) for each in allowed], n=1)
        raise PlanError(
            f"{what} {value!r} is not known",
            allowed=" or ".join(str(each) for each in allowed),
            todo=f"did you mean {near[0]}?" if near else None,
        )


def _resolve_weights(
    manifest: Manifest, form: Form, seq_len: int | None, weights: Mapping[str, Weight] | None
) -> dict[str, int]:
    if form == "document" and seq_len is not None:
        raise PlanError("form document has no seq_len: each record is a sample", todo="leave --seq-len out")
    if not manifest.sources:
        raise PlanError("the manifest holds no source", todo="build one over shards: dataguard manifest build PATHS...")
    if weights is None:
        _check_sources(manifest, form, seq_len, [source.name for source in manifest.sources])
        return whole_weights(num_samples(manifest, form, seq_len))
    whole = whole_weights(weights)
    _check_sources(manifest, form, seq_len, whole)
    unnamed = [name for name, count in num_samples(manifest, form, seq_len).items() if count and name not in weights]
    if unnamed:
        # Neither guess is safe: leaving them out drops data unasked, their number of samples dwarfs a weight of 2.
        raise PlanError(
            f"weights are given for {', '.join(weights)}, and none for {', '.join(unnamed)}",
            allowed="a weight for every source, or for none",
            todo="name them too; NAME=0 leaves a source out",
        )
    return whole


def _check_sources(manifest: Manifest, form: Form, seq_len: int | None, names: Iterable[str]) -> None:
    """Refuse sources that the manifest lacks, that do not fit the form, or that have no sample."""
    counts = num_samples(manifest, form, seq_len)
    for name in names:
        if name not in counts:
            near = difflib.get_close_matches(name, counts, n=1)
            raise PlanError(
                f"no source is called {name!r}",
                found=", ".join(counts),
                todo=f"did you mean {near[0]}?" if near else "name one of these",
            )
        if counts[name] == 0:
            SourceTable.of(manifest, name, form, seq_len)
            raise AssertionError(f"a table of source {name!r} without samples")


def _versions(algorithms: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(algorithms.items()))
