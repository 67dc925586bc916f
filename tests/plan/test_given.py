"""Plans whose order comes from outside: what they fix, what they refuse, and that other plans keep their digests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.errors import PlanError, UsageError
from dataguard.plan.document import Root, decode_plan, encode_plan
from dataguard.plan.given import given_plan, require_planned_order, row_kind
from dataguard.plan.plan import Plan
from dataguard.run.amend import quarantine, release, skip
from dataguard.run.run import Run


def test_steps_are_stretches_of_positions_and_rows_are_in_no_plan() -> None:
    plan = given_plan(num_rows=100, global_batch=8, first_label=1)
    assert plan.steps().batch(3).positions.tolist() == list(range(24, 32))
    stream = plan.stream()
    assert stream.source_names == ("dataset",)
    assert stream.manifest_set.shard_name(0) == "dataset/indices"
    assert stream.epochs_begun("dataset", 50) is None
    for asked in (lambda: stream.samples(np.arange(3)), lambda: stream.find(0, 1, stop=9)):
        with pytest.raises(PlanError, match="in no plan"):
            asked()


def test_a_data_set_of_another_length_or_without_indices_is_another_stream() -> None:
    roots = [given_plan(num_rows=rows, global_batch=8).root.digest for rows in (100, 101, None)]
    assert len(set(roots)) == 3
    assert given_plan(num_rows=100, global_batch=16).root.digest == roots[0]
    assert row_kind(given_plan(num_rows=None, global_batch=8)) == "ordinals"


def test_digests_stay_what_they_are() -> None:
    plan = given_plan(num_rows=1_000, global_batch=16)
    assert plan.root.manifest == "3437a954bd7199f83566cec650e158a5b53c393aac7df6cc269a9e63f7a1d37e"
    assert plan.root.digest == "7d44d8cd23dc6f168126df5912682cc7ab5ad627bf4bc2b9f66c4c69d514b0e0"
    assert plan.digest == "c2febb62195324cb3cd970c8af490846f81e71a5a19cf7f8e799480a07d42158"
    ordinals = given_plan(num_rows=None, global_batch=4, first_label=1)
    assert ordinals.root.digest == "f2bcfdd1b5f23509a42a4b44cac1fd0ef39ff499831b785647be6898cf2dc730"


def test_a_document_comes_back_as_it_was() -> None:
    plan = given_plan(num_rows=7, global_batch=2)
    document = decode_plan(encode_plan(plan.document), digest=plan.digest)
    assert Plan.from_document(document, plan.manifests) == plan


@pytest.mark.parametrize("changes", [{"lanes": 2}, {"shuffle": "blocks"}, {"seq_len": 4}])
def test_a_root_that_would_have_an_order_of_its_own_is_refused(changes: dict[str, object]) -> None:
    root = given_plan(num_rows=7, global_batch=2).root
    fields = {name: getattr(root, name) for name in Root.__struct_fields__}
    with pytest.raises(PlanError, match="comes from outside"):
        Root(**{**fields, **changes})


def test_people_cannot_ask_for_the_form_by_name() -> None:
    plan = given_plan(num_rows=7, global_batch=2)
    with pytest.raises(PlanError, match="form 'given' is not known"):
        Plan(plan.manifests[plan.root.manifest], seed=1, global_batch=2, form="given")


def test_nothing_can_be_moved_or_withheld(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", given_plan(num_rows=7, global_batch=2))
    with pytest.raises(UsageError, match="skipping steps means nothing"):
        skip(run, 1, 2, reason="x")
    with pytest.raises(UsageError, match="withholding rows means nothing"):
        quarantine(run, "dataset/indices:3", reason="x")
    with pytest.raises(UsageError, match="withholding rows means nothing"):
        release(run, "dataset/indices:3")
    assert run.read().head.number == 1
    with pytest.raises(UsageError, match="a rehearsal means nothing"):
        require_planned_order(run.plan.root, "a rehearsal", todo="watch it")
