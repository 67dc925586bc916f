"""The reference profile: the same bytes whatever the order, within its stated error, and refused where damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.core.digests import canonical_json
from dataguard.core.signals import Reference
from dataguard.errors import InputError, UnknownSignal, UsageError
from dataguard.score.profile import PERMILLES, ProfileBuilder, encode_profile, length_outlier, read_profile
from dataguard.score.registry import SIGNALS
from dataguard.score.sketch import RELATIVE_ERROR
from tests.golden.make_profile import profile as golden_profile
from tests.golden.make_profile import signals

GOLDEN = Path(__file__).parents[1] / "golden" / "profile-v1" / "profile.json"
GOLDEN_DIGEST = "1ee507efda164697503e65efdae1708902754742700bbd414ee522e1188b52e5"


def lower_median(values: Any) -> float:
    return float(np.sort(np.asarray(values, dtype=np.float64))[(len(values) + 1) // 2 - 1])


def mad(values: Any) -> float:
    return lower_median(np.abs(np.asarray(values, dtype=np.float64) - lower_median(values)))


def test_the_golden_is_read_and_made_again() -> None:
    content = GOLDEN.read_bytes()
    profile = read_profile(content)
    assert profile == golden_profile()
    assert encode_profile(profile) == content
    assert profile.digest == GOLDEN_DIGEST
    assert [source.name for source in profile.sources] == ["k\u00f6ln", "web"]


@settings(max_examples=60)
@given(st.data())
def test_any_order_and_any_pieces_give_the_same_bytes(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 10**9), max_size=40))
    entropies = data.draw(st.lists(st.floats(0, 8), max_size=40))
    records = [("web", "length_bytes", value) for value in lengths] + [("b", "byte_entropy", e) for e in entropies]
    profiles = []
    for seed in range(4):
        shuffled = random.Random(seed).sample(records, len(records))
        builders = [ProfileBuilder(), ProfileBuilder()]
        for place, (source, name, value) in enumerate(shuffled):
            builders[place % (1 + seed % 2)].add(source, {name: np.array([value])})
        builders[0].merge(builders[1])
        profiles.append(builders[0].profile())
    at_once = ProfileBuilder()
    at_once.add("b", {"byte_entropy": np.array(entropies, dtype=np.float64)})
    at_once.add("web", {"length_bytes": np.array(lengths, dtype=np.int64)})
    assert {encode_profile(each) for each in profiles} == {encode_profile(at_once.profile())}
    assert len({each.digest for each in profiles}) == 1


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1e9) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=80))
def test_reals_are_told_within_their_error(values: list[float]) -> None:
    builder = ProfileBuilder()
    builder.add("s", {"mean_word_chars": np.array(values)})
    found = builder.profile().signal("s", "mean_word_chars")
    assert found is not None
    assert (found.count, found.min, found.max) == (len(values), min(values) + 0.0, max(values) + 0.0)
    median = lower_median(values)
    assert abs(found.median - median) <= RELATIVE_ERROR * median + 1e-300
    assert abs(found.mad - mad(values)) <= RELATIVE_ERROR * (2 * median + mad(values)) * (1 + 1e-9) + 1e-300
    for quantile, permille in zip(found.quantiles, PERMILLES, strict=True):
        exact = sorted(values)[max(1, -(-permille * len(values) // 1000)) - 1]
        assert quantile.permille == permille
        assert found.min <= quantile.value <= found.max
        assert abs(quantile.value - exact) <= RELATIVE_ERROR * exact + 1e-300


@given(st.lists(st.integers(0, 255), min_size=1, max_size=60))
def test_small_counts_are_told_exactly(values: list[int]) -> None:
    builder = ProfileBuilder()
    builder.add("s", {"length_words": np.array(values, dtype=np.uint8)})
    profile = builder.profile()
    assert profile.reference("s", "length_words") == Reference(median=lower_median(values), mad=mad(values))


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60))
def test_length_outlier_is_measured_in_logarithms(lengths: list[int]) -> None:
    builder = ProfileBuilder()
    builder.add("s", {"length_bytes": np.array(lengths)})
    profile = builder.profile()
    reference = profile.reference("s", "length_outlier")
    assert reference is not None
    logs = np.log1p(lengths)
    # An error of 1/256 of a length is one of 1/256 in its logarithm, for the median and for each distance to it.
    assert reference.median == pytest.approx(lower_median(logs), abs=RELATIVE_ERROR)
    assert reference.mad == pytest.approx(mad(logs), abs=2 * RELATIVE_ERROR)
    found = length_outlier(lengths, [0] * len(lengths), profile, source_names=["s"])
    if reference.mad == 0:
        assert not found.any()
    else:
        assert np.allclose(found, (logs - reference.median) / (1.4826 * reference.mad))


def test_records_of_sources_that_the_profile_lacks_are_no_outliers() -> None:
    builder = ProfileBuilder()
    builder.add("a", {"length_bytes": np.array([10, 100, 1000])})
    profile = builder.profile()
    found = length_outlier([10**9] * 3, [0, 1, -1], profile, source_names=["a", "b"])
    assert found[0] > 4
    assert found[1:].tolist() == [0.0, 0.0]
    assert profile.reference("b", "length_bytes") is None
    assert profile.reference("a", "byte_entropy") is None
    with pytest.raises(UnknownSignal, match="length_byte'"):
        profile.reference("a", "length_byte")


def test_a_profile_that_was_written_can_be_added_to() -> None:
    whole, parts = ProfileBuilder(), ProfileBuilder()
    for number in range(1, 4):
        whole.add("s", signals(number))
        one = ProfileBuilder()
        one.add("s", signals(number))
        parts.merge(read_profile(encode_profile(one.profile())))
    assert encode_profile(parts.profile()) == encode_profile(whole.profile())
    assert ProfileBuilder().profile().sources == ()


def test_sources_stand_in_byte_order_and_signals_in_the_registry_s() -> None:
    builder = ProfileBuilder()
    for source in ("b", "\u00e9", "a", "Z", "\U0001f600", "\uffee"):
        for name in sorted(SIGNALS, reverse=True):
            if name != "length_outlier":
                builder.add(source, {name: np.array([SIGNALS[name].empty])})
    profile = builder.profile()
    assert [each.name for each in profile.sources] == ["Z", "a", "b", "\u00e9", "\uffee", "\U0001f600"]
    assert [found.signal for found in profile.sources[0].signals] == [n for n in SIGNALS if n != "length_outlier"]


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ({"byte_entropy": np.array([1.0, np.nan])}, "byte_entropy of source 's'.*not finite"),
        ({"byte_entropy": np.array([8.5])}, "is 8.5"),
        ({"dup_line_fraction": np.array([0.0, 1.0])}, "is 1.0"),
        ({"length_bytes": np.array([-1])}, "is -1.0"),
        ({"length_outlier": np.array([0.0])}, "stands in none"),
    ],
)
def test_values_that_cannot_be_are_refused(signals: dict[str, Any], message: str) -> None:
    builder = ProfileBuilder()
    with pytest.raises(UsageError, match=message):
        builder.add("s", signals)
    assert builder.profile().sources == ()


def changed(**members: Any) -> bytes:
    """The golden, with members of its first signal changed."""
    document = json.loads(GOLDEN.read_bytes())
    document["sources"][1]["signals"][0].update(members)
    return canonical_json(document)


def test_a_definition_that_changed_is_no_reference() -> None:
    profile = read_profile(changed(version=2))
    assert profile.reference("web", "length_bytes") is None
    assert profile.reference("web", "length_outlier") is None
    with pytest.raises(UsageError, match="another definition"):
        ProfileBuilder().merge(profile)
    unknown = read_profile(changed(signal="length_furlongs"))
    with pytest.raises(UsageError, match="length_furlongs"):
        ProfileBuilder().merge(unknown)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"{}", "cannot be read"),
        (GOLDEN.read_bytes()[:-10], "cannot be read"),
        (GOLDEN.read_bytes().replace(b"profile-1", b"profile-9"), "cannot be read"),
        (b'{"format":"\xff"}', "cannot be read"),
        (changed(count=2), "sum up"),
        (changed(count=2**63), "cannot be read"),
        (changed(median=7.0), "follows from its sketch"),
        (changed(mad=7.0), "follows from its sketch"),
        (changed(max=7.0), "outermost"),
        (changed(min=-7.0), "outermost"),
        (changed(quantiles=[]), "follows from its sketch"),
        (changed(steps=[1, 2]), "as many buckets"),
        (changed(steps=[], counts=[], count=1), "as many buckets"),
        (changed(steps=[1 << 19], counts=[1], count=1), "finite"),
        (changed(steps=[130944, -1], counts=[1, 1], count=2), "ascend"),
        (changed(note="x"), "cannot be read"),
    ],
)
def test_damage_is_told(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_profile(content)
    assert caught.value.exit_code == 3


def test_sources_and_signals_stand_once() -> None:
    document = json.loads(GOLDEN.read_bytes())
    document["sources"] = document["sources"][::-1]
    with pytest.raises(InputError, match="byte order"):
        read_profile(canonical_json(document))
    document = json.loads(GOLDEN.read_bytes())
    document["sources"][0]["signals"] *= 2
    with pytest.raises(InputError, match="each once"):
        read_profile(canonical_json(document))
