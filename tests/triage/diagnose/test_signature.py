"""Each cell of row A16 as a pure predicate, and each other sign: enumerated over the facts that it reads."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dataguard.core.evidence import Evidence, GradNorm, HardwareLog, Mitigation, RankPattern, Replay, Told
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose.scoring import SIGNS
from dataguard.triage.diagnose.signature import CAUSES, SIGNATURE, Signal, cell, signature
from dataguard.triage.diagnose.signs import FACTS, Hypothesis, Sign, when

DATA, OPTIMIZER, HARDWARE = CAUSES
SPIKE, DRIFT, FAULT = EventClass.TRANSIENT_SPIKE, EventClass.CREEPING_DRIFT, EventClass.HARD_FAULT

CELLS: list[tuple[Signal, Hypothesis, dict[str, Any], dict[str, Any]]] = [
    (Signal.LOSS_SHAPE, DATA, {"event": SPIKE}, {"event": EventClass.ABSORBING_SHIFT}),
    (Signal.LOSS_SHAPE, OPTIMIZER, {"event": DRIFT}, {"event": SPIKE}),
    (Signal.LOSS_SHAPE, HARDWARE, {"event": FAULT}, {"event": DRIFT}),
    (
        Signal.GRAD_NORM,
        DATA,
        {"event": SPIKE, "grad_norm": GradNorm.BURST},
        {"event": FAULT, "grad_norm": GradNorm.BURST},
    ),
    (
        Signal.GRAD_NORM,
        OPTIMIZER,
        {"event": SPIKE, "grad_norm": GradNorm.CLIMBING},
        {"event": EventClass.HARD_BATCH, "grad_norm": GradNorm.CLIMBING},
    ),
    (
        Signal.GRAD_NORM,
        HARDWARE,
        {"event": FAULT, "grad_norm": GradNorm.ZERO_ON_ONE_RANK},
        {"event": FAULT, "grad_norm": GradNorm.BURST},
    ),
    (
        Signal.RANKS,
        DATA,
        {"event": SPIKE, "ranks": RankPattern.WITH_DATA},
        {"event": SPIKE, "ranks": RankPattern.ONE_RANK},
    ),
    (
        Signal.RANKS,
        OPTIMIZER,
        {"event": SPIKE, "ranks": RankPattern.NONE},
        {"event": SPIKE, "ranks": RankPattern.UNKNOWN},
    ),
    (Signal.RANKS, HARDWARE, {"event": None, "canary": Told.YES}, {"event": SPIKE, "ranks": RankPattern.WITH_DATA}),
    (
        Signal.REPLAY,
        DATA,
        {"event": SPIKE, "replay": Replay.BATCH_FROM_THIS_STATE},
        {"event": SPIKE, "replay": Replay.NOT_REPRODUCED},
    ),
    (Signal.REPLAY, OPTIMIZER, {"event": DRIFT, "replay": Replay.STATE}, {"event": DRIFT, "replay": Replay.BATCH}),
    (
        Signal.REPLAY,
        HARDWARE,
        {"event": SPIKE, "replay": Replay.NODE},
        {"event": SPIKE, "replay": Replay.NOT_REPRODUCED},
    ),
    (Signal.LOGS, DATA, {"event": SPIKE, "data": Told.YES}, {"event": EventClass.STALL, "data": Told.YES}),
    (Signal.LOGS, OPTIMIZER, {"event": DRIFT, "optimizer": Told.YES}, {"event": DRIFT, "optimizer": Told.UNKNOWN}),
    (
        Signal.LOGS,
        HARDWARE,
        {"event": FAULT, "hardware_log": HardwareLog.HARDWARE},
        {"event": FAULT, "hardware_log": HardwareLog.ELSEWHERE},
    ),
    (
        Signal.MITIGATION,
        DATA,
        {"event": SPIKE, "mitigation": Mitigation.SKIP},
        {"event": SPIKE, "mitigation": Mitigation.HOST},
    ),
    (
        Signal.MITIGATION,
        OPTIMIZER,
        {"event": DRIFT, "mitigation": Mitigation.CONFIGURATION},
        {"event": DRIFT, "mitigation": Mitigation.SKIP},
    ),
    (
        Signal.MITIGATION,
        HARDWARE,
        {"event": FAULT, "mitigation": Mitigation.HOST},
        {"event": None, "mitigation": Mitigation.HOST},
    ),
]


@pytest.mark.parametrize(
    ("signal", "cause", "shows", "shows_not"), CELLS, ids=[f"{signal}-{cause}" for signal, cause, _, __ in CELLS]
)
def test_each_cell(signal: Signal, cause: Hypothesis, shows: dict[str, Any], shows_not: dict[str, Any]) -> None:
    assert cell(signal, cause).holds(Evidence(**shows))
    assert not cell(signal, cause).holds(Evidence(**shows_not))
    assert cause in signature(Evidence(**shows))[signal]


def test_the_table_is_six_by_three_and_each_cell_speaks_for_its_cause() -> None:
    assert [(signal, cause) for signal, cause, _, __ in CELLS] == list(product(Signal, CAUSES))
    assert [sign.name for sign in SIGNATURE] == [f"{signal}.{cause}" for signal, cause in product(Signal, CAUSES)]
    assert all(sign.points > 0 for sign in SIGNATURE)


def test_the_other_node_tells_apart_the_two_cells_that_say_the_same() -> None:
    """Both would be "does not reproduce"; alone it speaks for neither, and no replay speaks for both."""
    alone = signature(Evidence(event=SPIKE, replay=Replay.NOT_REPRODUCED))[Signal.REPLAY]
    assert alone == ()
    for replay in Replay:
        assert len(signature(Evidence(event=SPIKE, replay=replay))[Signal.REPLAY]) <= 1


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.name)
def test_each_sign_holds_where_its_condition_says_and_reads_nothing_else(sign: Sign) -> None:
    """Over all values of the facts that it reads: what the twin of the table takes for granted."""
    count = 0
    for values in product(*(FACTS[name] for name in sign.facts)):
        facts: dict[str, Any] = {"event": None, **dict(zip(sign.facts, values, strict=True))}
        says = any(all(facts[name] in allowed for name, allowed in clause.items()) for clause in sign.condition)
        assert sign.holds(Evidence(**facts)) == says
        count += says
    assert count > 0  # a sign that never holds says nothing


def test_names_are_one_each() -> None:
    assert len({sign.name for sign in SIGNS}) == len(SIGNS)


def test_a_condition_of_no_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="'loss' is no fact"):
        when(loss=None)
