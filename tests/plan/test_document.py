"""Plan documents: digests that are law, round trips, and what a damaged one says."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.errors import PlanError, RunDamaged
from dataguard.plan.document import (
    BatchSize,
    Mixture,
    PlanDocument,
    Root,
    check_starts,
    decode_plan,
    encode_plan,
    whole_weights,
)

ROOT = Root(
    manifest="a" * 64,
    seed=17,
    form="document",
    seq_len=None,
    lanes=4,
    window_blocks=256,
    shuffle="blocks",
    algorithms={"keys": 1, "lanes": 1, "mixture": 1, "order": 1, "permutation": 1, "substitute": 1},
)
DOCUMENT = PlanDocument(
    root=ROOT,
    mixtures=(Mixture(start=0, manifest="a" * 64, weights={"web": 3, "code": 1}),),
    batch_sizes=(BatchSize(start=0, size=64), BatchSize(start=6400, size=128)),
)


def test_the_bytes_and_digests_of_version_1_stay_as_they_are() -> None:
    assert encode_plan(DOCUMENT) == (
        b'{"batch_sizes":[{"size":64,"start":0},{"size":128,"start":6400}],"fill":"mask","first_label":0,'
        b'"mixtures":[{"manifest":"' + b"a" * 64 + b'","start":0,"weights":{"code":1,"web":3}}],'
        b'"root":{"algorithms":{"keys":1,"lanes":1,"mixture":1,"order":1,"permutation":1,"substitute":1},'
        b'"form":"document","lanes":4,"manifest":"' + b"a" * 64 + b'","seed":17,"seq_len":null,"shuffle":"blocks",'
        b'"window_blocks":256},"skip_mode":"jump","version":1}'
    )
    assert ROOT.digest == "39cf9173551c79471b2434e1d6e34066c32b78d878958841c46906d2e8063b62"
    assert DOCUMENT.digest == "211dbcb885548efed5c1a45b9d10e84de742fe671ed408f07aa676818d062464"


def test_a_document_is_read_back_as_it_was() -> None:
    assert decode_plan(encode_plan(DOCUMENT), digest=DOCUMENT.digest) == DOCUMENT


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"lanes":4', b'"lanes":3', "not a power of two"),
        (b'"version":1', b'"version":2', "version"),
        (b'"seed":17', b'"seed":-1', "seed"),
        (b'"size":64', b'"size":0', "size"),
        (b'"start":6400', b'"start":0', "starts at positions"),
        (b'"fill":"mask"', b'"fill":"mask","extra":1', "extra"),
        (b'"seq_len":null', b'"seq_len":8', "leave --seq-len out"),
        (b"{", b"", "cannot be read"),
    ],
)
def test_a_document_that_cannot_be_says_why(old, new, says) -> None:
    with pytest.raises(RunDamaged, match=r"plan/x\.json cannot be read") as refused:
        decode_plan(encode_plan(DOCUMENT).replace(old, new, 1), name="plan/x.json")
    assert says in str(refused.value)


def test_a_document_under_another_name_is_refused() -> None:
    with pytest.raises(RunDamaged, match="another plan than its name says"):
        decode_plan(encode_plan(DOCUMENT).replace(b'"seed":17', b'"seed":18'), digest=DOCUMENT.digest)


def test_lists_by_position_start_at_0_and_rise() -> None:
    check_starts("batch size", DOCUMENT.batch_sizes)
    for starts in ([], [1], [0, 0], [0, 5, 3]):
        with pytest.raises(PlanError, match="batch size list starts at positions"):
            check_starts("batch size", [BatchSize(start=start, size=1) for start in starts])
    with pytest.raises(PlanError, match="a global batch of 0 cannot be"):
        BatchSize(start=0, size=0)
    with pytest.raises(PlanError, match="another manifest than the root names"):
        PlanDocument(
            root=ROOT, mixtures=(Mixture(start=0, manifest="b", weights={"w": 1}),), batch_sizes=DOCUMENT.batch_sizes
        )


@given(
    st.dictionaries(
        st.text(min_size=1), st.fractions(min_value=Fraction(1, 1000), max_value=1000), min_size=1, max_size=4
    )
)
def test_whole_weights_keep_every_ratio_exactly(weights) -> None:
    try:
        whole = whole_weights(weights)
    except PlanError:
        assert any(weight.denominator > 1000 for weight in weights.values())
        return
    name = next(iter(weights))
    assert all(Fraction(whole[each], whole[name]) == weights[each] / weights[name] for each in weights)


@pytest.mark.parametrize("weight", ["nan", "inf", "1/0", "", True, "2x", "1_0", "1e-99999999"])
def test_a_weight_that_is_no_number_is_refused(weight) -> None:
    with pytest.raises(PlanError, match="is no number"):
        whole_weights({"web": weight})


def test_a_decimal_is_taken_as_written() -> None:
    assert whole_weights({"web": 0.1, "code": "0.2"}) == {"web": 1, "code": 2}
    assert whole_weights({"web": "1/3", "code": 1}) == {"web": 1, "code": 3}
