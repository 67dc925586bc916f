"""Canary records without torch: two tensors of three repeats, for the arithmetic of comparing them."""

from __future__ import annotations

import hashlib

import numpy as np

from dataguard.torch.canary.answers import CanaryRecord, CanaryTensor, Kind
from dataguard.torch.experiment.answers import spelled

KINDS: tuple[Kind, ...] = ("loss", "gradient")


def record(
    host: str, value: float = 1.0, *, noise: float = 0.0, seed: int = 0, repeats: int = 3, **facts: object
) -> CanaryRecord:
    """What a host gives whose gradient is `value`, with noise of its own at every repeat."""
    draws = np.random.default_rng(seed)
    tensors = []
    for kind in KINDS:
        rows = [np.full(8, 3.0 if kind == "loss" else value) + noise * draws.standard_normal(8) for _ in range(repeats)]
        tensors.append(
            CanaryTensor(
                name=kind if kind == "loss" else "w", kind=kind, dtype="F32", shape=(8,),
                digests=tuple(hashlib.sha256(row.tobytes()).hexdigest()[:32] for row in rows),
                sketches=tuple(tuple(spelled(each) for each in row) for row in rows), norm=3.0,
            )
        )  # fmt: skip
    known = {
        "run": "a" * 32, "attempt": 1, "step": 0, "address": "step 0, rank 0, microbatch 0", "device": "cpu",
        "rank": None, "time": "2026-01-02T03:04:05+00:00", "plan": "b" * 64, "config": "c" * 64,
        "configuration": {"torch": "2"}, "batch": "d" * 32, "state": "e" * 32,
    }  # fmt: skip
    return CanaryRecord(host=host, tensors=tuple(tensors), **{**known, **facts})  # type: ignore[arg-type]
