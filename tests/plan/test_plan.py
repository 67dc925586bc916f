"""The Plan value: what it resolves, what it refuses, and what it derives."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.errors import GeometryError, NotInRun, PlanError
from dataguard.plan import Plan as PublicPlan
from dataguard.plan.document import ALGORITHMS, PlanDocument, Root
from dataguard.plan.plan import Plan
from dataguard.plan.steps import Located
from tests.plan.small import ONE, first_attempt, skip, small_manifest

TEXT = small_manifest({"code": {"k": [6, 6]}, "web": {"a": [5] * 32, "b": [7]}}, rejected={"web/a": [2, 6]})
TOKENS = small_manifest({"t": {"a": [40, 24], "b": [32]}}, kinds={"t": "tokens"})
GROWN = small_manifest({"code": {"k": [6, 6]}, "web": {"a": [5] * 32, "b": [7], "c": [9]}}, rejected={"web/a": [2, 6]})


class SomeCorpus:
    manifest = TEXT


def test_what_is_left_open_is_resolved() -> None:
    plan = Plan(TEXT, seed=17, global_batch=24)
    assert plan.root == Root(
        manifest=TEXT.digest,
        seed=17,
        form="document",
        seq_len=None,
        lanes=4,
        window_blocks=256,
        shuffle="blocks",
        algorithms=ALGORITHMS,
    )
    assert plan.document.mixtures[0].weights == {"code": 4, "web": 55}
    assert [(entry.start, entry.size) for entry in plan.document.batch_sizes] == [(0, 24)]
    assert (plan.document.fill, plan.document.skip_mode, plan.document.first_label) == ("mask", "jump", 0)
    assert plan.global_batch == 24
    assert plan.manifests == {TEXT.digest: TEXT}
    assert plan.left_out == ()
    assert Plan(TEXT, seed=17, global_batch=24, lanes=8).root.lanes == 8
    assert Plan(TOKENS, seed=1, global_batch=4, form="window", seq_len=8).document.mixtures[0].weights == {"t": 1}
    assert PublicPlan is Plan


def test_equal_documents_make_equal_plans_whatever_holds_the_manifest() -> None:
    plan = Plan(TEXT, seed=17, global_batch=24)
    same = Plan(SomeCorpus(), seed=17, global_batch=24)
    again = Plan.from_document(plan.document, {TEXT.digest: TEXT, GROWN.digest: GROWN})
    assert plan == same == again
    assert len({plan, same, again}) == 1
    assert again.manifests == {TEXT.digest: TEXT}
    for change in (
        {"seed": 18},
        {"global_batch": 8},
        {"fill": "substitute"},
        {"skip_mode": "hole"},
        {"first_label": 1},
    ):
        assert Plan(TEXT, **{"seed": 17, "global_batch": 24, **change}) != plan
    with pytest.raises(AttributeError):
        plan.digest = "other"  # type: ignore[misc]


def test_a_weight_of_0_leaves_a_source_out() -> None:
    plan = Plan(TEXT, seed=1, global_batch=8, weights={"web": "0.5", "code": 0})
    assert plan.document.mixtures[0].weights == {"web": 1}
    assert plan.left_out == ("code",)
    both = Plan(TEXT, seed=1, global_batch=8, weights={"web": Fraction(1, 3), "code": 2})
    assert both.document.mixtures[0].weights == {"code": 6, "web": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": -1}, "a seed of -1 cannot be"),
        ({"seed": True}, "a seed of True cannot be"),
        ({"seed": 2**63}, "below 2\\*\\*63"),
        ({"seed": 1.0}, "a seed of 1.0"),
        ({"global_batch": 0}, "a global batch of 0 cannot be"),
        ({"global_batch": "8"}, "a global batch of '8'"),
        ({"lanes": 3}, "lanes 3 is not a power of two"),
        ({"lanes": 0}, "number of lanes of 0"),
        ({"window_blocks": 0}, "window of blocks of 0"),
        ({"form": "documents"}, "did you mean document"),
        ({"form": "packed"}, "form 'packed' is not known"),
        ({"shuffle": "some"}, "shuffle 'some'"),
        ({"fill": "masked"}, "did you mean mask"),
        ({"skip_mode": "leap"}, "skip mode 'leap'"),
        ({"first_label": 2}, "first label 2"),
        ({"first_label": True}, "first label True"),
        ({"form": "window"}, "give --seq-len N"),
        ({"form": "window", "seq_len": 0}, "a seq_len of 0"),
        ({"form": "window", "seq_len": 8}, "holds text, which form window cannot cut"),
        ({"seq_len": 8}, "leave --seq-len out"),
        ({"weights": {}}, "a mixture of no sources"),
        ({"weights": {"wep": 1}}, "no source is called 'wep'\n  found: code, web\n  next: did you mean web"),
        ({"weights": {"web": 1}}, "weights are given for web, and none for code"),
        ({"weights": {"web": 0, "code": 0}}, "a mixture of no sources"),
        ({"weights": {"web": -2}}, "weight -2 of source 'web' cannot be"),
        ({"weights": {"web": "much"}}, "weight 'much' of source 'web' is no number"),
        ({"weights": {"web": 1, "code": "1e-19"}}, "no whole numbers of the same ratios"),
    ],
)
def test_what_cannot_be_planned_is_refused(change, says) -> None:
    with pytest.raises(PlanError, match=says):
        Plan(TEXT, **{"seed": 1, "global_batch": 8, **change})


def test_sources_that_hold_nothing_or_tokens_are_refused() -> None:
    with pytest.raises(PlanError, match="the manifest holds no source"):
        Plan(small_manifest({}), seed=1, global_batch=8)
    with pytest.raises(PlanError, match="holds tokens"):
        Plan(TOKENS, seed=1, global_batch=8)
    empty = small_manifest({"web": {"a": [2]}, "zero": {"a": [0], "b": [1]}}, rejected={"zero/b": [0]})
    with pytest.raises(PlanError, match="source 'zero' has no deliverable row"):
        Plan(empty, seed=1, global_batch=8)
    assert Plan(empty, seed=1, global_batch=8, weights={"web": 1}).left_out == ("zero",)
    with pytest.raises(PlanError, match="no deliverable window"):
        Plan(TOKENS, seed=1, global_batch=8, form="window", seq_len=65)


def test_a_source_of_one_row_among_sixteen_blocks() -> None:
    manifest = small_manifest({"one": {"a": [1]}, "web": {"a": [3] * 16}})
    plan = Plan(manifest, seed=4, global_batch=2, lanes=2)
    stream = plan.stream()
    samples = stream.samples(np.arange(4 * 49))
    ones = samples.source == stream.source_names.index("one")
    assert ones.sum() == 4
    assert (samples.row[ones] == 0).all()


def test_a_document_needs_its_manifests_and_its_algorithms() -> None:
    plan = Plan(TEXT, seed=17, global_batch=24)
    with pytest.raises(PlanError, match="is missing, which the plan reads"):
        Plan.from_document(plan.document, {GROWN.digest: GROWN})
    with pytest.raises(PlanError, match="another than its name says"):
        Plan.from_document(plan.document, {TEXT.digest: GROWN})
    root = plan.root
    older = Root(
        manifest=root.manifest,
        seed=root.seed,
        form=root.form,
        seq_len=root.seq_len,
        lanes=root.lanes,
        window_blocks=root.window_blocks,
        shuffle=root.shuffle,
        algorithms={**ALGORITHMS, "mixture": 0},
    )
    document = PlanDocument(root=older, mixtures=plan.document.mixtures, batch_sizes=plan.document.batch_sizes)
    with pytest.raises(PlanError, match=r"other versions of the stream's algorithms\n  found: .*mixture 0"):
        Plan.from_document(document, plan.manifests)


def test_a_geometry_must_divide_every_global_batch_planned() -> None:
    plan = Plan(TEXT, seed=1, global_batch=512, lanes=1)
    plan.check(Geometry(world_size=256, microbatch_size=2))
    with pytest.raises(GeometryError) as refused:
        plan.check(Geometry(world_size=448, microbatch_size=1))
    assert "512 = 1 * 448 + 64" in str(refused.value)
    with pytest.raises(GeometryError, match="768 cannot be cut"):
        plan.amended(5_120, global_batch=768).check(Geometry(world_size=512, microbatch_size=1))


def test_an_amended_plan_keeps_its_root_and_its_later_entries() -> None:
    plan = Plan(TEXT, seed=1, global_batch=8)
    later = plan.amended(800, global_batch=32)
    both = later.amended(80, manifest=GROWN, global_batch=16)
    assert both.root == later.root == plan.root
    assert [(entry.start, entry.size) for entry in both.document.batch_sizes] == [(0, 8), (80, 16), (800, 32)]
    assert [(entry.start, entry.manifest) for entry in both.document.mixtures] == [(0, TEXT.digest), (80, GROWN.digest)]
    assert both.document.mixtures[1].weights == {"code": 2, "web": 29}
    assert set(both.manifests) == {TEXT.digest, GROWN.digest}
    assert len({plan, later, both}) == 3
    reweighed = both.amended(90, weights={"web": 1, "code": 0})
    assert reweighed.document.mixtures[2].manifest == GROWN.digest
    assert reweighed.left_out == ("code",)
    before = plan.amended(80, weights={"web": 1, "code": 0}).document.mixtures[1]
    assert before.manifest == TEXT.digest
    assert both.amended(80, weights={"web": 1, "code": 0}).document.mixtures[1].manifest == GROWN.digest
    for change in ({"manifest": GROWN}, {"weights": {"web": 1, "code": 2}}):
        with pytest.raises(PlanError, match="from position 0 on"):
            plan.amended(0, **change)
    with pytest.raises(PlanError, match="global batch of 0"):
        plan.amended(5, global_batch=0)
    with pytest.raises(PlanError, match="start position of -1"):
        plan.amended(-1, global_batch=8)


def test_another_batch_size_changes_no_sample() -> None:
    plan = Plan(TEXT, seed=5, global_batch=8, lanes=4)
    other = plan.amended(24, global_batch=16)
    positions = np.arange(200)
    ours, theirs = plan.stream().samples(positions), other.stream().samples(positions)
    assert ours.shard.tolist() == theirs.shard.tolist()
    assert ours.row.tolist() == theirs.row.tolist()
    assert [other.steps().batch(step).size for step in range(5)] == [8, 8, 8, 16, 16]


def test_steps_and_trees_follow_the_plan() -> None:
    plan = Plan(TEXT, seed=5, global_batch=8, lanes=4, skip_mode="hole", first_label=1)
    steps = plan.steps()
    assert (steps.lanes, steps.skip_mode, steps.first_label) == (4, "hole", 1)
    assert steps.batch(2).positions.tolist() == [16, 20, 17, 21, 18, 22, 19, 23]
    where = steps.locate(21)
    assert isinstance(where, Located)
    assert (where.step, where.slot) == (2, 3)
    attempt = plan.first_attempt(Geometry(world_size=2, microbatch_size=2), skips=[skip(8, 16)])
    tree = plan.tree([attempt])
    assert tree.holders(1, {1: 5}) == ()
    with pytest.raises(NotInRun, match="step 2 was not delivered"):
        plan.steps(tree.lineage()).batch(1)
    with pytest.raises(GeometryError):
        plan.first_attempt(Geometry(world_size=3, microbatch_size=1))


def test_an_attempts_stream_reads_its_own_mixtures() -> None:
    plan = Plan(TEXT, seed=5, global_batch=8)
    attempt = plan.amended(16, manifest=GROWN).first_attempt(ONE)
    with pytest.raises(PlanError, match="attempt 1 reads manifest"):
        plan.stream(attempt)
    grown = plan.amended(16, manifest=GROWN)
    assert len(grown.stream().manifest_set.manifests) == 2
    assert len(grown.stream(plan.first_attempt(ONE)).manifest_set.manifests) == 1
    assert first_attempt((0, 8)).mixtures[0].manifest not in plan.manifests


def test_a_plan_for_looking_up_imports_no_compiler() -> None:
    code = (
        "import sys\n"
        "from dataguard.plan import Plan\n"
        "from tests.plan.small import small_manifest\n"
        "plan = Plan(small_manifest({'web': {'a': [5] * 100}}), seed=1, global_batch=8)\n"
        "plan.stream().samples(plan.steps().batch(7).positions)\n"
        "heavy = {'numba', 'polars', 'datasets', 'pyarrow', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
