"""The 22 points of the hardening list, each with what makes it pass, fail and stay unknown."""

from __future__ import annotations

from typing import Any

import pytest

from dataguard.core.trainer import (
    ArchitectureFacts,
    CheckpointFacts,
    DataFacts,
    MonitoringFacts,
    OptimizerFacts,
    PrecisionFacts,
    ScheduleFacts,
    TrainerFacts,
)
from dataguard.triage.preflight import POINTS, Known, MixtureSeen, RunSeen, judge

SECTIONS = {
    "architecture": ArchitectureFacts,
    "optimizer": OptimizerFacts,
    "schedule": ScheduleFacts,
    "precision": PrecisionFacts,
    "data": DataFacts,
    "monitoring": MonitoringFacts,
    "checkpoints": CheckpointFacts,
}


def known(*, seen: RunSeen | None = None, **sections: dict[str, Any]) -> Known:
    facts = {name: SECTIONS[name](**said) for name, said in sections.items()}
    return Known(facts=TrainerFacts(**facts), seen=seen)


def arch(**said: Any) -> Known:
    return known(architecture=said)


def opt(**said: Any) -> Known:
    return known(optimizer=said)


def plan(warmup: int | None, total: int | None) -> Known:
    return known(schedule={"warmup_steps": warmup, "total_steps": total})


def prec(**said: Any) -> Known:
    return known(precision=said)


def data(**said: Any) -> Known:
    return known(data=said)


def mon(**said: Any) -> Known:
    return known(monitoring=said)


def seen(**facts: Any) -> Known:
    return known(seen=RunSeen(**facts))


def mixed(delivered: dict[str, int], allowance: int = 4) -> Known:
    asked = {"web": 0.75, "code": 0.25}
    return seen(mixture=MixtureSeen(asked=asked, delivered=delivered, allowance=allowance))


P, F, U = "pass", "fail", "not known"

CASES: list[tuple[str, Known, str]] = [
    ("qk_norm", arch(qk_norm=True), P),
    ("qk_norm", arch(qk_norm=False, qk_clip=True), P),
    ("qk_norm", arch(qk_clip=True), P),
    ("qk_norm", arch(qk_norm=False, qk_clip=False), F),
    ("qk_norm", arch(qk_norm=False), U),
    ("qk_norm", arch(qk_clip=False), U),
    # .02 / sqrt(2 L), GPT-2's; unscaled; the seed's own 1 / sqrt(2 L), 50 times too large
    ("residual_init", arch(residual_init_std=0.02 / 24**0.5, num_layers=12), P),
    ("residual_init", arch(residual_init_std=0.02 / 64**0.5, num_layers=32, d_model=4096), P),
    ("residual_init", arch(residual_init_std=0.02, num_layers=12, d_model=768), F),
    ("residual_init", arch(residual_init_std=0.02, num_layers=12), F),
    ("residual_init", arch(residual_init_std=24**-0.5, num_layers=12, d_model=768), F),
    ("residual_init", arch(residual_init_std=0.0), P),
    ("residual_init", arch(residual_init_std=0.004), U),
    ("residual_init", arch(num_layers=12), U),
    ("embedding_init", arch(embedding_init_std=0.02, d_model=768), P),
    ("embedding_init", arch(embedding_init_std=768**-0.5 * 1.02, d_model=768), P),  # measured
    ("embedding_init", arch(embedding_init_std=1.0, d_model=768), F),
    ("embedding_init", arch(embedding_init_std=0.02, d_model=4096), F),
    ("embedding_init", arch(embedding_init_std=0.02), U),
    ("embedding_init", arch(d_model=768), U),
    ("z_loss", arch(z_loss=1e-5), P),
    ("z_loss", arch(z_loss=0.0), F),
    ("z_loss", arch(), U),
    ("norm_placement", arch(norm_placement="pre"), P),
    ("norm_placement", arch(norm_placement="both"), P),
    ("norm_placement", arch(norm_placement="post"), F),
    ("norm_placement", arch(), U),
    ("clip_norm", opt(clip_norm=1.0), P),
    ("clip_norm", opt(clip_norm=0.5), P),
    ("clip_norm", opt(clip_norm=1.5), F),
    ("clip_norm", opt(clip_norm=0.0), F),
    ("clip_norm", opt(), U),
    ("epsilon", opt(epsilon=1e-8), P),
    ("epsilon", opt(epsilon=1e-5), P),
    ("epsilon", opt(epsilon=1e-15), F),
    ("epsilon", opt(epsilon=1e-3), F),
    ("epsilon", known(optimizer={"epsilon": 1e-8}, seen=RunSeen(num_damaging=2)), F),
    ("epsilon", known(optimizer={"epsilon": 1e-6}, seen=RunSeen(num_damaging=2)), P),
    ("epsilon", opt(), U),
    ("warmup", plan(1_000, 100_000), P),
    ("warmup", plan(999, 100_000), F),
    ("warmup", plan(100, 100_000), F),  # 0.1 %: what the list's own figure comes to
    ("warmup", plan(0, None), F),
    ("warmup", plan(2, 150), P),
    ("warmup", plan(1, 150), F),
    ("warmup", plan(1_000, None), U),
    ("warmup", plan(None, 1_000), U),
    ("weight_decay", opt(weight_decay=0.1), P),
    ("weight_decay", opt(weight_decay=0.0), F),
    ("weight_decay", opt(), U),
    ("decay_left_out", opt(decays_embeddings_or_norms=False), P),
    ("decay_left_out", opt(weight_decay=0.0), P),
    ("decay_left_out", opt(decays_embeddings_or_norms=True), F),
    ("decay_left_out", opt(weight_decay=0.1), U),
    ("compute", prec(compute="bfloat16"), P),
    ("compute", prec(compute="float32"), P),
    ("compute", prec(compute="float16"), F),
    ("compute", prec(compute="float8"), F),
    ("compute", prec(), U),
    ("loss_scaling", prec(compute="bfloat16", loss_scaling=False), P),
    ("loss_scaling", prec(compute="bfloat16", loss_scaling=True), F),
    ("loss_scaling", prec(compute="float16", loss_scaling=True), P),
    ("loss_scaling", prec(compute="float16", loss_scaling=False), F),
    ("loss_scaling", prec(loss_scaling=False), U),
    ("loss_scaling", prec(compute="bfloat16"), U),
    ("master_weights", prec(master_weights="float32"), P),
    ("master_weights", prec(master_weights="bfloat16"), F),
    ("master_weights", prec(), U),
    ("anomaly_detection", seen(policy="default"), P),
    ("anomaly_detection", known(seen=RunSeen(policy="default"), data={"anomaly_detection": False}), P),  # the run knows
    ("anomaly_detection", data(anomaly_detection=True), P),
    ("anomaly_detection", data(anomaly_detection=False), F),
    ("anomaly_detection", seen(), U),
    ("lengths", seen(fixed_length=2048), P),
    ("lengths", seen(policy="p", length_signals=("length_outlier",), has_profile=True), P),
    ("lengths", seen(policy="p", length_signals=("length_bytes",)), P),
    ("lengths", seen(policy="p", length_signals=("length_outlier",)), U),  # against nothing
    ("lengths", data(lengths_checked=True), P),
    ("lengths", data(lengths_checked=False), F),
    ("lengths", data(), U),
    ("mixture", mixed({"web": 7_500, "code": 2_500}), P),
    ("mixture", mixed({"web": 7_580, "code": 2_420}), P),
    ("mixture", mixed({"web": 7_700, "code": 2_300}), F),
    ("mixture", mixed({"web": 10_000}), F),
    ("mixture", mixed({"web": 11, "code": 5}), P),  # within what the arithmetic may be off by
    ("mixture", known(seen=RunSeen(), data={"mixture_checked": True}), P),
    ("mixture", data(mixture_checked=False), F),
    ("mixture", seen(), U),
    ("held_out", data(held_out_sets=("web", "code")), P),
    ("held_out", data(held_out_sets=("all",)), F),
    ("held_out", data(held_out_sets=()), F),
    ("held_out", seen(streams=("web-valid",), sources=("web",)), P),
    ("held_out", seen(streams=("web-valid",), sources=("code", "web")), F),
    ("held_out", seen(sources=("web",)), U),
    ("held_out", data(), U),
    ("grad_norm", seen(grad_norm_every=1, grad_norm_gap=1, num_grad_norms=90, has_telemetry=True), P),
    ("grad_norm", seen(grad_norm_every=100, grad_norm_gap=100, num_grad_norms=9, has_telemetry=True), F),
    ("grad_norm", known(seen=RunSeen(grad_norm_every=100.0), monitoring={"grad_norm_every_steps": 1}), F),
    ("grad_norm", seen(has_telemetry=True, num_steps=200), F),
    ("grad_norm", seen(has_telemetry=True, num_steps=20), U),
    ("grad_norm", mon(grad_norm_every_steps=50), P),
    ("grad_norm", mon(grad_norm_every_steps=51), F),
    ("grad_norm", mon(), U),
    ("spike_detector", seen(detector="default"), P),
    ("spike_detector", mon(spike_detector=True), P),
    ("spike_detector", mon(spike_detector=False), F),
    ("spike_detector", seen(), U),
    ("nonfinite", mon(nonfinite_reduced=True), P),
    ("nonfinite", mon(nonfinite_reduced=False), F),
    ("nonfinite", mon(), U),
    ("checkpoints", known(checkpoints={"every_steps": 500, "restore_tested": True}), P),
    ("checkpoints", known(checkpoints={"every_steps": 500, "restore_tested": False}), F),
    ("checkpoints", known(checkpoints={"every_steps": 500}), U),
    ("checkpoints", known(checkpoints={"restore_tested": True}), U),
    ("checkpoints", seen(checkpoint_every=100, num_checkpoints=7, resumed=(2, 300)), P),
    (
        "checkpoints",
        known(checkpoints={"restore_tested": False}, seen=RunSeen(checkpoint_every=100, resumed=(2, 3))),
        P,
    ),
    ("checkpoints", seen(checkpoint_every=100, num_checkpoints=7), U),
    ("utilization", seen(utilization=("train/mfu",)), P),
    ("utilization", mon(utilization_logged=True), P),
    ("utilization", mon(utilization_logged=False), F),
    ("utilization", seen(), U),
]


@pytest.mark.parametrize(("name", "facts", "state"), CASES, ids=[f"{i}-{c[0]}-{c[2]}" for i, c in enumerate(CASES)])
def test_a_point_comes_to_what_is_known(name: str, facts: Known, state: str) -> None:
    (point,) = (point for point in judge(facts) if point.name == name)
    assert point.state == state, point
    assert point.reason
    if state != "not known":
        assert point.fact, point  # what was judged by is always named


def test_every_point_has_all_three_outcomes_here() -> None:
    assert len(POINTS) == 22
    assert {(name, state) for name, _, state in CASES} == {(p.name, s) for p in POINTS for s in (P, F, U)}


def test_the_reason_of_the_warm_up_says_what_one_percent_is() -> None:
    (point,) = (point for point in judge(plan(250, 250_000)) if point.name == "warmup")
    assert point.reason == "250 of 250,000 steps is 0.10%; 1 % is 2,500 steps"


def test_muon_needs_one_of_the_two() -> None:
    facts = known(architecture={"qk_norm": False, "qk_clip": False}, optimizer={"name": "Muon"})
    assert "mandatory" in judge(facts)[0].reason
