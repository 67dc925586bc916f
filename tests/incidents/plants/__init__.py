"""The incidents, one a module: `incident_named` finds one, `all_incidents` gives them in the order of the table."""

from __future__ import annotations

from importlib import import_module

from tests.incidents.incident import Incident

__all__ = ["MODULES", "all_incidents", "incident_named"]

MODULES = (
    "repeated_sequence",
    "base64_shard",
    "batch_and_state",
    "hard_batch",
    "truncated_shard",
    "foreign_language",
    "lr_too_high",
    "short_warmup",
    "epsilon_floor",
    "attention_logits",
    "fp16_overflow",
    "wrong_gradients",
    "one_rank_nan",
    "one_rank_nan_once",
    "stalled_rank",
    "deduplication_bug",
    "planned_lr_step",
    "clean_run",
)


def incident_named(name: str) -> Incident:
    """One incident."""
    found: Incident = import_module(f"tests.incidents.plants.{name}").INCIDENT
    return found


def all_incidents() -> list[Incident]:
    """All of them."""
    return [incident_named(name) for name in MODULES]
