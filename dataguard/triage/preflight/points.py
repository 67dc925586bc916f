"""The 22 points of the pre-run hardening list (row C21), in its order: what each asks, and the function that judges it.

`judge` asks every one of them. Nothing is weighed: a point passes, fails, or is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dataguard.triage.preflight import points_of_model as model
from dataguard.triage.preflight import points_of_run as run
from dataguard.triage.preflight.answers import Point, State
from dataguard.triage.preflight.known import Found, Known

__all__ = ["POINTS", "Asked", "judge"]

Section = Literal["architecture", "optimizer", "precision", "data", "monitoring"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One point before it is judged."""

    section: Section
    name: str
    asks: str
    judge: Callable[[Known], Found]


def _asked(section: Section, name: str, asks: str, judge: Callable[[Known], Found]) -> Asked:
    return Asked(section=section, name=name, asks=asks, judge=judge)


POINTS: tuple[Asked, ...] = (
    _asked("architecture", "qk_norm", "QK-norm in all attention layers, or QK-clip", model.has_qk_norm),
    _asked("architecture", "residual_init", "residual projections scaled by 1/sqrt(2 L)", model.residual_init),
    _asked("architecture", "embedding_init", "embedding std at most 1/sqrt(d_model)", model.embedding_init),
    _asked("architecture", "z_loss", "z-loss on, about 1e-5 to 1e-4", model.has_z_loss),
    _asked("architecture", "norm_placement", "norms before attention and feed-forward", model.normalises_before),
    _asked("optimizer", "clip_norm", "gradient norm clipped at 1.0 or below", model.clips_gradients),
    _asked("optimizer", "epsilon", "epsilon 1e-8 to 1e-5, 1e-6 and up once spikes were seen", model.epsilon),
    _asked("optimizer", "warmup", "warm-up at least 1 % of all steps", model.warms_up),
    _asked("optimizer", "weight_decay", "weight decay not 0", model.decays_matrices),
    _asked("optimizer", "decay_left_out", "no decay of embeddings and norms", model.spares_embeddings),
    _asked("precision", "compute", "bfloat16, not float16", model.computes_in_bfloat16),
    _asked("precision", "loss_scaling", "no loss scaling with bfloat16", model.loss_scaling_fits),
    _asked("precision", "master_weights", "master weights in float32", model.master_weights),
    _asked("data", "anomaly_detection", "batches judged, or the corpus audited", run.detects_anomalies),
    _asked("data", "lengths", "lengths checked for extreme outliers", run.checks_lengths),
    _asked("data", "mixture", "mixture held against intent", run.checks_mixture),
    _asked("data", "held_out", "fixed held-out sets, one a domain", run.holds_out),
    _asked("monitoring", "grad_norm", "gradient norm logged at least every 50 steps", run.logs_grad_norm),
    _asked("monitoring", "spike_detector", "a spike detector that alerts", run.detects_spikes),
    _asked("monitoring", "nonfinite", "NaN and infinity reduced over ranks", run.reduces_nonfinite),
    _asked("monitoring", "checkpoints", "checkpoints every K steps, and a restore tested", run.saves_checkpoints),
    _asked("monitoring", "utilization", "model FLOP utilization logged", run.logs_utilization),
)


def judge(known: Known) -> tuple[Point, ...]:
    """Every point, judged by what is known.

    >>> points = judge(Known())
    >>> len(points), {point.state for point in points}
    (22, {'not known'})
    """
    points = []
    for number, asked in enumerate(POINTS, start=1):
        found = asked.judge(known)
        state: State = "not known" if found.passes is None else "pass" if found.passes else "fail"
        points.append(
            Point(
                number=number,
                section=asked.section,
                name=asked.name,
                asks=asked.asks,
                state=state,
                reason=found.reason,
                fact=found.fact,
            )
        )
    return tuple(points)
