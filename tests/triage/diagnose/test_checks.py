"""Rows A1 and A9: the order of the checks, their costs, which decided, which comes next; A5, A16, A19 as numbers."""

from __future__ import annotations

import pytest

from dataguard.core.evidence import Evidence, HardwareLog, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose import Costs, costs, diagnose, replay_node_seconds, replay_steps, verdict_of
from dataguard.triage.diagnose.checks import CHECKS, in_order, next_check
from dataguard.triage.diagnose.costs import Cost, cost_of, how_to
from dataguard.triage.diagnose.rates import (
    HARDWARE_SHARE,
    LEAST_RANKS_ACROSS,
    chance_in_window,
    chance_of_outlier,
    interruptions_per_day,
    moved_mean,
)
from dataguard.triage.diagnose.signs import FACTS, UNKNOWN_OF

SPIKE = EventClass.TRANSIENT_SPIKE
KNOWN = Costs(
    run="runs/a", step=9_001, checkpoint_before=8_900, checkpoint_earlier=8_000, step_seconds=2.0, num_nodes=16
)


def test_a_replay_costs_its_steps_times_their_time_times_the_nodes() -> None:
    assert replay_steps(9_001, 8_900) == 102  # 8,900 up to 9,001, both ends
    assert replay_node_seconds(9_001, 8_900, step_seconds=2.0, num_nodes=16) == 102 * 2.0 * 16
    with pytest.raises(ValueError, match="has step 7 behind it"):
        replay_steps(7, 8)


def test_the_experiment_is_so_many_replays_from_both_checkpoints() -> None:
    cost = cost_of("replay", KNOWN)
    assert cost.node_seconds == (6 * 102 + 4 * 1_002) * 2.0 * 16
    assert cost.text == "(6 x 102 + 4 x 1,002) steps x 2 s x 16 nodes"


@pytest.mark.parametrize(
    ("costs", "missing"),
    [
        (Costs(), "the time of a step, the number of nodes, the step, a checkpoint before it"),
        (Costs(step=5, checkpoint_before=6, step_seconds=1.0, num_nodes=1), "a checkpoint before it"),
        (Costs(step=5, checkpoint_before=5, num_nodes=1), "the time of a step"),
    ],
)
def test_what_is_not_known_is_not_guessed(costs: Costs, missing: str) -> None:
    cost = cost_of("replay", costs)
    assert cost.node_seconds is None
    assert cost.text == f"not known: {missing} is missing"


def test_cheap_checks_come_first_by_their_computed_cost() -> None:
    order = in_order(KNOWN)
    costs = [cost_of(name, KNOWN).node_seconds for name in order]
    assert costs == sorted(costs)  # type: ignore[type-var]
    assert order[:3] == ("plan_and_journal", "numerics_and_ranks", "machine_logs")
    assert order[-2:] == ("canary", "replay")
    assert set(order) == set(CHECKS)


def test_a_check_that_became_dear_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(costs._COSTS, "samples", lambda _: Cost(node_seconds=1e9, text="every shard is far away"))  # type: ignore[arg-type]
    assert in_order(KNOWN)[-1] == "samples"


def test_every_fact_but_the_event_is_found_by_one_check() -> None:
    found = [fact for facts in CHECKS.values() for fact in facts]
    assert sorted(found) == sorted(name for name in FACTS if name != "event")
    assert set(UNKNOWN_OF) == set(found)
    assert all(UNKNOWN_OF[name] in FACTS[name] for name in UNKNOWN_OF)
    assert all(getattr(Evidence(event=None), name) is UNKNOWN_OF[name] for name in UNKNOWN_OF)


def test_the_walk_stops_at_the_first_conclusive_check_and_shows_what_decided_nothing() -> None:
    evidence = Evidence(
        event=EventClass.HARD_FAULT,
        ranks=RankPattern.ONE_RANK,
        hardware_log=HardwareLog.HARDWARE,
        replay=Replay.NODE,
        texts={"hardware_log": ("XID 79 on node03",)},
    )
    checks = diagnose(evidence, costs=KNOWN).checks
    assert [(check.name, check.outcome) for check in checks] == [
        ("plan_and_journal", "not_done"),
        ("numerics_and_ranks", "inconclusive"),
        ("machine_logs", "conclusive"),
    ]
    assert checks[-1].texts == ("XID 79 on node03",)
    assert checks[-1].found == {"hardware_log": "hardware"}


def test_a_walk_without_a_verdict_goes_to_the_end() -> None:
    checks = diagnose(Evidence(event=SPIKE, data=Told.YES), costs=KNOWN).checks
    assert [check.name for check in checks] == list(in_order(KNOWN))
    assert all(check.outcome != "conclusive" for check in checks)


def test_samples_that_stand_out_ask_for_the_experiment() -> None:
    found = diagnose(Evidence(event=SPIKE, data=Told.YES), costs=KNOWN)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.next_check is not None
    assert found.next_check.name == "replay"
    assert Verdict.BAD_DATA in found.next_check.could_be
    assert "'runs/a'" in found.next_check.how
    assert "9001" in found.next_check.how


def test_a_stall_asks_for_the_logs_of_machines() -> None:
    found = diagnose(Evidence(event=EventClass.STALL, ranks=RankPattern.ONE_RANK), costs=KNOWN)
    assert found.next_check is not None
    assert found.next_check.name == "machine_logs"
    assert set(found.next_check.could_be) == {Verdict.HARDWARE, Verdict.APPLICATION}
    assert found.next_check.how == "dataguard triage runs/a --step 9001 --evidence HOST=dmesg.txt"


def test_the_next_check_could_change_the_verdict_and_no_cheaper_one_could() -> None:
    """Over every class of event and all its sets of two known facts: each value is tried again here."""
    order = in_order(KNOWN)
    for event in FACTS["event"]:
        for optimizer in Told:
            for data in Told:
                evidence = Evidence(event=event, optimizer=optimizer, data=data)  # type: ignore[arg-type]
                found = next_check(evidence, verdict_of, KNOWN, on_disk_done=False)
                if found is None:
                    continue
                assert found.could_be
                assert verdict_of(evidence) not in found.could_be
                for cheaper in order[: order.index(found.name)]:
                    for fact in CHECKS[cheaper]:
                        if fact == "mitigation" or getattr(evidence, fact) is not UNKNOWN_OF[fact]:
                            continue
                        changed = {verdict_of(Evidence(**{**_known(evidence), fact: value})) for value in FACTS[fact]}
                        assert changed == {verdict_of(evidence)}, (evidence, found.name, fact)


def _known(evidence: Evidence) -> dict[str, object]:
    return {name: getattr(evidence, name) for name in FACTS}


def test_where_nothing_is_left_to_find_there_is_no_next_check() -> None:
    found = diagnose(
        Evidence(
            event=SPIKE,
            data=Told.YES,
            hardware_log=HardwareLog.CLEAN,
            canary=Told.NO,
            replay=Replay.BATCH,
            number_type=Told.NO,
        )
    )
    assert found.verdict is Verdict.BAD_DATA
    assert found.next_check is None


def test_each_check_has_something_to_type() -> None:
    for name in CHECKS:
        assert "{" not in how_to(name, KNOWN)
        assert "runs/a" in how_to(name, KNOWN)
    assert "--step N" in how_to("machine_logs", Costs())


def test_reasons_are_told_for_against_and_missing() -> None:
    found = diagnose(Evidence(event=SPIKE, data=Told.NO, optimizer=Told.YES, texts={"data": ("z at most 1.2",)}))
    assert any("z at most 1.2" in text for text in found.against["data"])
    assert any(text.startswith("+3 ") for text in found.for_["optimizer_or_numerics"])
    assert any("canary" in text for text in found.missing["hardware"])
    assert not any("samples stand out" in text for text in found.missing["data"])


def test_interruptions_scale_with_devices() -> None:
    assert interruptions_per_day(16_384) == pytest.approx(419 / 54)
    assert interruptions_per_day(1_024) == pytest.approx(419 / 54 / 16)
    assert HARDWARE_SHARE == 0.78
    with pytest.raises(ValueError, match="at least 1"):
        interruptions_per_day(0)


def test_some_unrelated_event_falls_into_an_hour_at_sixteen_thousand_devices() -> None:
    assert chance_in_window(16_384, 3_600) == pytest.approx(0.28, abs=0.005)
    assert chance_in_window(16_384, 0) == 0
    with pytest.raises(ValueError, match="0 seconds or more"):
        chance_in_window(1, -1)


def test_some_rank_of_512_stands_out_by_chance() -> None:
    assert chance_of_outlier(512, 4.0) == pytest.approx(0.016, abs=0.0005)
    assert chance_of_outlier(1, 0.0) == pytest.approx(0.5)


def test_one_sick_rank_hardly_moves_the_mean() -> None:
    others = [2.2] * 511
    assert sum([*others, 4.4]) / 512 - 2.2 == pytest.approx(moved_mean(512, 2.2, 4.4))
    assert moved_mean(512, 2.2, 4.4) == pytest.approx(0.0043, abs=5e-5)
    assert LEAST_RANKS_ACROSS == 8
