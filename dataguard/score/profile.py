"""What is usual for a source? The reference profile: for each source and signal, how its values are distributed.

An audit adds the signals of every record, in whatever order and pieces they come, and writes the profile; a plan may
name one by its digest, and `length_outlier` and every rule on outliers are judged against it. So a verdict depends on a
document that is fixed beforehand, never on what arrived before.

Counts and extremes are exact. Quantiles, median and MAD come from the sketch (`dataguard.score.sketch`): a quantile is
the value of rank ceil(q n), and what is told differs from it by 1/256 of it at most; counts up to 255 and zero are told
exactly. The MAD, the median of the distances to the median by the same rank, differs from the exact one by at most
(2 |median| + MAD) / 256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.core.digests import canonical_json, sha256_hex
from dataguard.core.signals import Reference, SignalSpec, robust_z
from dataguard.errors import InputError, UsageError
from dataguard.score.registry import SIGNALS, spec_of
from dataguard.score.sketch import RELATIVE_ERROR, Sketch, buckets_of, middles_of, of_rank, rank_of

__all__ = [
    "PERMILLES",
    "Profile",
    "ProfileBuilder",
    "Quantile",
    "SignalProfile",
    "SourceProfile",
    "encode_profile",
    "length_outlier",
    "read_profile",
]

PERMILLES = (1, 10, 50, 250, 500, 750, 950, 990, 999)
"""Quantiles a profile tells."""

_MEDIAN = 500
_LENGTH = "length_bytes"
_OUTLIER = "length_outlier"

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


class Quantile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One quantile of a signal."""

    permille: Annotated[int, msgspec.Meta(ge=0, le=1000)]
    """How many of a thousand values are at or below it."""
    value: float


class SignalProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the values of one signal are distributed over one source."""

    signal: str
    version: Annotated[int, msgspec.Meta(ge=1)]
    """Version of the signal's definition."""
    count: Count
    """Values, all of them finite."""
    min: float
    max: float
    """The extremes, exact."""
    median: float
    mad: float
    """Median of the absolute distances to the median."""
    quantiles: tuple[Quantile, ...]
    steps: tuple[int, ...]
    """The sketch: keys of its buckets, ascending; the first one, then how far each is from the one before."""
    counts: tuple[Count, ...]
    """The sketch: values in each bucket."""


class SourceProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signals of one source, in the registry's order."""

    name: str
    signals: tuple[SignalProfile, ...]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reference profile of a corpus, as it stands in ``profile.json``."""

    format: Literal["dataguard-profile-1"]
    relative_error: float
    """Of quantiles and medians."""
    sources: tuple[SourceProfile, ...]
    """In byte order of their names."""

    @property
    def digest(self) -> str:
        """SHA-256 of the document's bytes."""
        return sha256_hex(encode_profile(self))

    def signal(self, source: str, signal: str) -> SignalProfile | None:
        """The distribution of a signal over a source; None where the profile does not hold it."""
        for each in self.sources:
            if each.name == source:
                return next((found for found in each.signals if found.signal == signal), None)
        return None

    def reference(self, source: str, signal: str) -> Reference | None:
        """Median and MAD that outliers of a signal are measured by.

        For ``length_outlier`` they are those of ln(1 + length_bytes), from the sketch of ``length_bytes``. None where
        the profile does not hold the signal for this source, or holds it by another definition.

        Raises
        ------
        UnknownSignal
            There is no signal of this name.
        """
        spec = spec_of(_LENGTH if signal == _OUTLIER else signal)
        found = self.signal(source, spec.name)
        if found is None or found.version != spec.version:
            return None
        if signal != _OUTLIER:
            return Reference(median=found.median, mad=found.mad)
        values, counts = _values(_sketch_of(found), spec)
        return _reference(np.log1p(values), counts)


class ProfileBuilder:
    """Collects signals into a profile. For one thread: give each its own and merge them.

    >>> builder = ProfileBuilder()
    >>> builder.add("web", {"length_bytes": np.array([120, 80, 100])})
    >>> profile = builder.profile()
    >>> profile.reference("web", "length_bytes")
    Reference(median=100.0, mad=20.0)
    >>> read_profile(encode_profile(profile)) == profile
    True
    """

    def __init__(self) -> None:
        self._sketches: dict[tuple[str, str], Sketch] = {}

    def add(self, source: str, signals: Mapping[str, NDArray[Any]]) -> None:
        """Add the values of some records of a source: for each signal shape (n,), integers or floats.

        Raises
        ------
        UnknownSignal
            There is no signal of this name.
        UsageError
            A value is not finite, or outside the signal's range; or it is ``length_outlier``, which a profile is for.
        """
        for name, values in signals.items():
            spec = spec_of(name)
            if name == _OUTLIER:
                raise UsageError(f"{name} is judged by a profile and stands in none", todo=f"add {_LENGTH}")
            if not len(values):
                continue
            sketch = Sketch()
            try:
                sketch.add(values)
            except UsageError as error:
                raise UsageError(f"{name} of source {source!r}: {error.asked}", found=error.found) from error
            for value in (sketch.smallest, sketch.largest):
                if not spec.holds(value):
                    raise UsageError(f"{name} of source {source!r} is {value}", allowed=f"{spec.low} to {spec.high}")
            self._take(source, name, sketch)

    def merge(self, other: ProfileBuilder | Profile) -> None:
        """Add all that another builder, or a profile that was written, holds.

        Raises
        ------
        UsageError
            A profile holds a signal that this dataguard does not know, or knows by another definition.
        """
        if isinstance(other, ProfileBuilder):
            for (source, name), sketch in other._sketches.items():
                self._take(source, name, sketch)
            return
        for each in other.sources:
            for found in each.signals:
                spec = SIGNALS.get(found.signal)
                if spec is None or spec.version != found.version:
                    raise UsageError(
                        f"the profile holds {found.signal} by another definition",
                        found=f"version {found.version}",
                        allowed="none" if spec is None else f"version {spec.version}",
                    )
                self._take(each.name, found.signal, _sketch_of(found))

    def profile(self) -> Profile:
        """The profile of what was added: the same, byte for byte, whatever the order and the pieces were."""
        names = sorted({source for source, _ in self._sketches}, key=str.encode)
        return Profile(
            format="dataguard-profile-1",
            relative_error=RELATIVE_ERROR,
            sources=tuple(
                SourceProfile(
                    name=name,
                    signals=tuple(
                        _signal_profile(spec, self._sketches[name, spec.name])
                        for spec in SIGNALS.values()
                        if (name, spec.name) in self._sketches
                    ),
                )
                for name in names
            ),
        )

    def _take(self, source: str, name: str, sketch: Sketch) -> None:
        self._sketches.setdefault((source, name), Sketch()).merge(sketch)


def encode_profile(profile: Profile) -> bytes:
    """The document's bytes, over which its digest is taken."""
    return canonical_json(profile)


def read_profile(content: bytes) -> Profile:
    """The profile of a document.

    Raises
    ------
    InputError
        It is no profile of a version this dataguard reads, or what it tells does not follow from its sketches.
    """
    try:
        profile = msgspec.json.decode(content, type=Profile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError("the profile cannot be read", found=str(error), allowed="dataguard-profile-1") from error
    names = [each.name for each in profile.sources]
    _refuse_unless(names == sorted(set(names), key=str.encode), "sources, each once and in byte order")
    for each in profile.sources:
        signals = [found.signal for found in each.signals]
        _refuse_unless(len(signals) == len(set(signals)), f"the signals of {each.name!r}, each once")
        for found in each.signals:
            _check(each.name, found)
    return profile


def length_outlier(
    length_bytes: ArrayLike, source: ArrayLike, profile: Profile, *, source_names: Sequence[str]
) -> NDArray[np.float64]:
    """The signal ``length_outlier`` of each record.

    Parameters
    ----------
    length_bytes
        Shape (n,).
    source
        Shape (n,): the number of each record's source in `source_names`; below 0 for none.
    profile
        What is usual in each source.
    source_names
        Names of the sources.

    Returns
    -------
    float64, shape (n,)
        Robust z of ln(1 + length_bytes); 0 where the profile does not hold the source.

    Examples
    --------
    >>> builder = ProfileBuilder()
    >>> builder.add("web", {"length_bytes": np.array([90, 100, 110])})
    >>> length_outlier([100, 5], [0, 0], builder.profile(), source_names=["web"]).round(1).tolist()
    [0.0, -20.2]
    """
    logs, sources = np.log1p(np.asarray(length_bytes, dtype=np.float64)), np.asarray(source)
    outlier: NDArray[np.float64] = np.zeros(len(logs))
    for number in np.unique(sources[sources >= 0]).tolist():
        reference = profile.reference(source_names[number], _OUTLIER)
        if reference is not None:
            own = sources == number
            outlier[own] = robust_z(logs[own], reference)
    return outlier


def _signal_profile(spec: SignalSpec, sketch: Sketch) -> SignalProfile:
    keys, counts = sketch.buckets()
    values, _ = _values(sketch, spec)
    reference = _reference(values, counts)
    return SignalProfile(
        signal=spec.name,
        version=spec.version,
        count=sketch.count,
        min=sketch.smallest,
        max=sketch.largest,
        median=reference.median,
        mad=reference.mad,
        quantiles=tuple(
            Quantile(permille=permille, value=of_rank(values, counts, rank_of(permille, sketch.count)))
            for permille in PERMILLES
        ),
        steps=tuple(np.diff(keys, prepend=0).tolist()),
        counts=tuple(counts.tolist()),
    )


def _values(sketch: Sketch, spec: SignalSpec) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What stands for the values of each bucket, ascending, and how many there are.

    The middle; for whole signals its whole part, which is exact where a bucket holds one whole number; never beyond
    the extremes, which are known.
    """
    keys, counts = sketch.buckets()
    values = middles_of(keys)
    if spec.whole:
        values = np.trunc(values)
    return np.clip(values, sketch.smallest, sketch.largest), counts


def _reference(values: NDArray[np.float64], counts: NDArray[np.int64]) -> Reference:
    rank = rank_of(_MEDIAN, int(counts.sum()))
    median = of_rank(values, counts, rank)
    distances = np.abs(values - median)
    order = np.argsort(distances, kind="stable")
    return Reference(median=median, mad=of_rank(distances[order], counts[order], rank))


def _sketch_of(found: SignalProfile) -> Sketch:
    keys, counts = np.cumsum(np.array(found.steps, dtype=np.int64)), np.array(found.counts, dtype=np.int64)
    return Sketch.of_buckets(keys, counts, smallest=found.min, largest=found.max)


def _check(source: str, found: SignalProfile) -> None:
    what = f"{found.signal} of source {source!r}"
    _refuse_unless(len(found.steps) == len(found.counts) > 0, f"{what}: as many buckets as counts")
    _refuse_unless(all(step > 0 for step in found.steps[1:]), f"{what}: buckets that ascend")
    _refuse_unless(_within(found.steps), f"{what}: buckets of finite numbers")
    _refuse_unless(found.count == sum(found.counts), f"{what}: counts that sum up")
    extremes = buckets_of(np.array([found.min, found.max]))
    _refuse_unless(
        extremes.tolist() == [found.steps[0], sum(found.steps)], f"{what}: extremes in the outermost buckets"
    )
    spec = SIGNALS.get(found.signal)
    if spec is not None and spec.version == found.version:
        _refuse_unless(found == _signal_profile(spec, _sketch_of(found)), f"{what}: what follows from its sketch")


def _within(steps: Sequence[int]) -> bool:
    """Whether keys that ascend by these steps are keys of float64: of their sign, exponent and first 7 bits."""
    return max(abs(steps[0]), abs(sum(steps))) < 1 << 18


def _refuse_unless(holds: bool, allowed: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise InputError("the profile cannot be trusted", allowed=allowed)
