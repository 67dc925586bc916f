"""A slot's chain of rows, against a naive reading of the rules; and the same again when looking back.

Every row of a chain has a fate of its own: what the gate says of it, or that it cannot be read.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.address import Address
from dataguard.corpus.contents import Content
from dataguard.corpus.problems import RowProblem
from dataguard.errors import ShardDamaged
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import MAX_DRAWS, Exempted, PlannedSlots, SlotStatus
from dataguard.run.judging import Asked
from dataguard.run.settling import Settled, Settler

LOST = "lost"
FATES = ["pass", "flag", "mask", "span", "substitute", "halt", LOST]
SPAN = np.array([[2, 5]])
ADDRESS = Address(step=3, rank=0, microbatch=0)
Chain = list[str]
"""Fate of the planned row, then of each draw."""


class Rows:
    """Rows named by (position, draw): row = 10 * position + draw + 1."""

    def __init__(self, chains: list[Chain], *, readable: bool = False) -> None:
        self.chains = chains
        self.readable = readable

    def fate(self, row: int) -> str:
        return self.chains[row // 10][row % 10]

    def read(self, blocks: np.ndarray, rows: np.ndarray) -> list[Content]:
        answers = []
        for block, row in zip(blocks.tolist(), rows.tolist(), strict=True):
            if block < 0:
                answers.append(Content())
            elif self.fate(row) == LOST and not self.readable:
                problem = RowProblem(shard="web/a", row=row, kind="unreadable", detail="test")
                answers.append(Content(problem=problem))
            else:
                answers.append(Content(value=b"%d" % row))
        return answers

    def substitute(self, position: int, source: int, generation: int, draw: int) -> tuple[int, int, int]:
        return 0, 0, 10 * position + draw + 1

    def is_removed(self, *_: int) -> bool:
        return False


class Judge:
    """Says of a row what its fate is; a lost row that can be read now is refused, to see whether anybody asks."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def answers(self, positions: np.ndarray) -> Any:
        return SimpleNamespace(first={}, halts={})

    def judge(self, asked: list[Asked]) -> list[dict[int, Any]]:
        return [self.told(each) for each in asked]

    def told(self, asked: Asked) -> dict[int, Any]:
        told = {}
        answers: Any = asked.answers
        for place, content in zip(asked.places, asked.contents, strict=True):
            fate = self.rows.fate(int(content))
            assert fate != LOST, "a row that was lost then is not judged"
            verdict = Verdict.MASK if fate == "span" else Verdict[fate.upper()]
            told[place] = (verdict, SPAN if fate == "span" else None)
            answers.first.setdefault(place, int(content))
            if verdict == Verdict.HALT:
                answers.first[place] = int(content)
        return told


def planned(chains: list[Chain], *, drawn: bool) -> PlannedSlots:
    """The planned rows, or (quarantined by event 4) their first substitutes."""
    n = len(chains)
    position = np.arange(n)
    row = 10 * position + int(drawn)
    zeros = np.zeros(n, np.int64)
    return PlannedSlots(
        slot=position, position=position, source=zeros.astype(np.int32), generation=zeros.astype(np.int32),
        epoch=zeros, shard=zeros, row=10 * position, block=zeros,
        status=np.full(n, SlotStatus.SUBSTITUTED if drawn else SlotStatus.LIVE, np.uint8),
        delivered_shard=zeros.copy(), delivered_row=row, delivered_block=zeros.copy(),
        draw=np.full(n, int(drawn) - 1), event=np.full(n, 4 * drawn),
    )  # fmt: skip


def naive(chain: Chain, *, drawn: bool, fill: str) -> tuple[str, int | None, str]:
    """(status, place on the chain that is delivered or None, loss: all, span or none)."""
    at = int(drawn)
    refused = False
    while at <= MAX_DRAWS:
        fate = chain[at]
        if fate == LOST:
            if fill == "mask" and not refused:
                break
        elif fate in {"pass", "flag"}:
            return ("SUBSTITUTED" if at else "LIVE"), at, "all"
        elif fate == "halt":
            return "REFUSED", None, "none"
        elif at == 0 and fate == "span":
            return "LIVE", 0, "span"
        elif at == 0 and fate == "mask":
            return "REFUSED", 0, "none"
        else:
            refused = True
        at += 1
    if not drawn and chain[0] == "substitute":
        return "REFUSED", 0, "none"
    return ("QUARANTINED" if drawn else "UNREADABLE"), None, "none"


def told(settled: Settled) -> list[tuple[str, int | None, str]]:
    answers: list[tuple[str, int | None, str]] = []
    for i, (status, row) in enumerate(
        zip(settled.slots.status.tolist(), settled.slots.delivered_row.tolist(), strict=True)
    ):
        loss = "all" if i not in settled.masked else "none" if settled.masked[i] is None else "span"
        there = row >= 0
        assert (settled.contents[i].value is not None) == there
        assert settled.contents[i].value == (b"%d" % row if there else None)
        answers.append((SlotStatus(status).name, row % 10 if there else None, loss if there else "none"))
    return answers


def settler(rows: Rows, fill: str, **settings: Any) -> Settler:
    withheld: Any = ()
    stream: Any = rows
    return Settler(rows.read, stream=stream, withheld=withheld, fill=fill, **settings)  # type: ignore[arg-type]


CHAINS = st.lists(st.lists(st.sampled_from(FATES), min_size=9, max_size=9), min_size=1, max_size=5)


@given(chains=CHAINS, drawn=st.booleans(), fill=st.sampled_from(["mask", "substitute"]))
def test_against_the_naive_reading(chains: list[Chain], drawn: bool, fill: str) -> None:
    rows = Rows(chains)
    settled = settler(rows, fill, judge=Judge(rows)).settle(planned(chains, drawn=drawn), ADDRESS)
    assert told(settled) == [naive(chain, drawn=drawn, fill=fill) for chain in chains]
    halting = [i for i, chain in enumerate(chains) if told(settled)[i][0] == "REFUSED" and told(settled)[i][1] is None]
    assert [stopped.place for stopped in settled.stopped] == halting
    for stopped in settled.stopped:
        assert rows.fate(stopped.row) == "halt"
        assert settled.answers.first[stopped.place] == stopped.row  # type: ignore[union-attr]


@given(chains=CHAINS, drawn=st.booleans(), fill=st.sampled_from(["mask", "substitute"]))
def test_looking_back_gives_the_same_though_everything_can_be_read_now(
    chains: list[Chain], drawn: bool, fill: str
) -> None:
    rows = Rows(chains)
    slots = planned(chains, drawn=drawn)
    then = settler(rows, fill, judge=Judge(rows)).settle(slots, ADDRESS)
    exempted = {}
    for excepted in then.exceptions:
        (record,) = excepted.record()
        exempted[int(record["position"])] = Exempted(
            reason="unreadable", draw=int(record["draw"]), shard=int(record["delivered_shard"]),
            row=int(record["delivered_row"]), failed=int(record["failed"]),
        )  # fmt: skip
    now = Rows(chains, readable=True)
    again = settler(now, fill, judge=Judge(now)).settle(slots, ADDRESS, exempted=exempted)
    assert told(again) == told(then)
    assert again.answers.first == then.answers.first  # type: ignore[union-attr]
    assert again.stopped == then.stopped
    assert not again.exceptions


@given(chains=CHAINS, drawn=st.booleans(), fill=st.sampled_from(["mask", "substitute"]))
def test_without_a_gate_only_reading_decides(chains: list[Chain], drawn: bool, fill: str) -> None:
    chains = [[LOST if fate == LOST else "pass" for fate in chain] for chain in chains]
    settled = settler(Rows(chains), fill).settle(planned(chains, drawn=drawn), ADDRESS)
    assert told(settled) == [naive(chain, drawn=drawn, fill=fill) for chain in chains]
    assert settled.answers is None
    assert all(excepted.record().dtype.names[-1] == "delivered_row" for excepted in settled.exceptions)
    assert {e.position for e in settled.exceptions} == {i for i, c in enumerate(chains) if c[int(drawn)] == LOST}


def test_a_row_that_cannot_be_read_may_halt() -> None:
    chains = [["pass"] * 9, [LOST] * 9]
    rows = Rows(chains)
    with pytest.raises(ShardDamaged, match="slot 1"):
        settler(rows, "mask", judge=Judge(rows), on_unreadable="halt").settle(planned(chains, drawn=False), ADDRESS)


@given(groups=st.lists(CHAINS, min_size=1, max_size=4), fill=st.sampled_from(["mask", "substitute"]))
def test_several_microbatches_at_once_are_each_as_alone(groups: list[list[Chain]], fill: str) -> None:
    chains = [chain for group in groups for chain in group]
    rows = Rows(chains)
    slots = planned(chains, drawn=False)
    ends = np.cumsum([len(group) for group in groups]).tolist()
    parts = [slots.part(end - len(group), end) for group, end in zip(groups, ends, strict=True)]
    together = list(settler(rows, fill, judge=Judge(rows)).settle_many([(part, ADDRESS) for part in parts]))
    for part, settled in zip(parts, together, strict=True):
        alone = settler(rows, fill, judge=Judge(rows)).settle(part, ADDRESS)
        assert told(settled) == told(alone)
        assert settled.answers.first == alone.answers.first  # type: ignore[union-attr]
        assert (settled.exceptions, settled.stopped) == (alone.exceptions, alone.stopped)
