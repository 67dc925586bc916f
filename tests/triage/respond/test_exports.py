"""Exports: round trips, and held against how each trainer's own loop compares its counter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.spans import SpanSet
from dataguard.errors import UsageError
from dataguard.triage.respond.exports import (
    exports_of,
    from_bigscience,
    from_megatron,
    from_olmo_core,
    to_bigscience,
    to_megatron,
    to_olmo_core,
)

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=5)


def batches_left_out(spans: list[tuple[int, int]]) -> set[int]:
    return {batch for start, stop in spans for batch in range(start, stop)}


def megatron_skips(flag: str, num_batches: int) -> set[int]:
    """The loop of Megatron-LM: `iteration` counts those done, so batch `iteration` is fed when it is compared."""
    listed = {int(word) for word in flag.split()[1:]}
    return {iteration for iteration in range(num_batches) if iteration + 1 in listed}


def bigscience_skips(flag: str, num_batches: int) -> set[int]:
    ranges = [tuple(map(int, word.split("-"))) for word in flag.split()[1:]]
    return {done for done in range(num_batches) if any(first <= done + 1 <= last for first, last in ranges)}


def olmo_core_skips(argument: str, num_batches: int) -> set[int]:
    """The loop of OLMo-core: the step is counted up before it is compared."""
    ranges = [(int(a), int(b)) for a, b in re.findall(r"start=(\d+), stop=(\d+)", argument)]
    skipped = set()
    for step, batch in enumerate(range(num_batches), start=1):
        if any(start <= step < stop for start, stop in ranges):
            skipped.add(batch)
    return skipped


@given(SPANS)
def test_each_trainer_leaves_out_just_these_batches(spans: list[tuple[int, int]]) -> None:
    wanted = batches_left_out(spans)
    made = exports_of(spans)
    assert megatron_skips(made.megatron_lm, 60) == wanted
    assert bigscience_skips(made.bigscience, 60) == wanted
    assert olmo_core_skips(made.olmo_core, 60) == wanted
    assert "one less" in made.notes[-1]  # older loops compare the iterations done


@given(SPANS)
def test_what_is_exported_reads_back(spans: list[tuple[int, int]]) -> None:
    merged = SpanSet.of(spans).spans
    assert from_megatron(to_megatron(spans)) == merged
    assert from_bigscience(to_bigscience(spans)) == merged
    assert from_olmo_core(to_olmo_core(spans)) == merged


def test_the_ranges_of_a_public_log_are_read_as_its_loop_meant_them() -> None:
    # BigScience, 104B: rolled back to 13250 and skipped up to 14000, both iterations of its log left out
    assert from_bigscience("--skip-train-iteration-range 13251-14000 16652-18500") == ((13250, 14000), (16651, 18500))
    assert to_megatron([(13250, 13252)]) == "--iterations-to-skip 13251 13252"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (from_megatron, "--iterations-to-skip 0"),
        (from_megatron, "3 x"),
        (from_bigscience, "0-3"),
        (from_bigscience, "5-4"),
        (from_bigscience, "5:9"),
        (from_olmo_core, "steps_to_skip=[StepSkipRange(start=3, stop=3)]"),
        (from_olmo_core, "steps_to_skip=[StepSkipRange(start=0, stop=3)]"),
    ],
)
def test_what_is_no_such_list_is_refused(read, text: str) -> None:
    with pytest.raises(UsageError):
        read(text)
