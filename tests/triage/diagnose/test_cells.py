"""All 6,561 answers of the eight cells, and what must hold of each, said in other words than the code says it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from dataguard.core.evidence import Replay, Told
from dataguard.triage.diagnose.cells import CELLS, Cell, replay_of

YES, NO, UNKNOWN = Told.YES, Told.NO, Told.UNKNOWN
SAYS_NOTHING = (Replay.NOT_RUN, Replay.INCONCLUSIVE)
Answers = dict[Cell, Told]


def all_answers() -> Iterator[Answers]:
    for answers in product(Told, repeat=len(CELLS)):
        yield dict(zip(CELLS, answers, strict=True))


def of(
    answers: Answers, *, checkpoint: str | None = None, batch: str | None = None, node: str | None = None
) -> list[Told]:
    return [
        answer
        for cell, answer in answers.items()
        if checkpoint in (None, cell.checkpoint) and batch in (None, cell.batch) and node in (None, cell.node)
    ]


@pytest.fixture(scope="module")
def table() -> list[tuple[Answers, Replay]]:
    found = [(answers, replay_of(answers)) for answers in all_answers()]
    assert len(found) == 3**8
    return found


def test_each_has_one_and_each_is_reached(table: list[tuple[Answers, Replay]]) -> None:
    assert {replay for _, replay in table} == set(Replay)


def test_not_run_is_that_nobody_looked(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        assert (replay is Replay.NOT_RUN) == all(answer is UNKNOWN for answer in answers.values())


def test_never_the_batch_unless_the_placebo_was_seen_not_to(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        if replay in (Replay.BATCH, Replay.BATCH_FROM_THIS_STATE):
            assert NO in of(answers, checkpoint="before", batch="placebo")
            assert YES not in of(answers, batch="placebo")
            assert YES in of(answers, checkpoint="before", batch="event")
        if replay is Replay.BATCH:
            assert NO in of(answers, checkpoint="earlier", batch="placebo")
            assert YES in of(answers, checkpoint="earlier", batch="event")
            assert NO not in of(answers, batch="event")
        if replay is Replay.BATCH_FROM_THIS_STATE:
            assert NO in of(answers, checkpoint="earlier", batch="event")
            assert YES not in of(answers, checkpoint="earlier")


def test_never_the_node_without_both_nodes(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        if replay is Replay.NODE:
            assert YES in of(answers, node="this")
            assert NO in of(answers, node="other")
            assert YES not in of(answers, node="other")
        if all(answer is UNKNOWN for answer in of(answers, node="other")):
            assert replay is not Replay.NODE


def test_the_state_is_said_where_the_placebo_shows_it_as_well(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        if replay is Replay.STATE:
            assert YES in of(answers, checkpoint="before", batch="placebo")
            assert YES in of(answers, checkpoint="before", batch="event")


def test_what_shows_nothing_anywhere_is_not_reproduced_and_never_more(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        if YES not in answers.values():
            assert replay in (Replay.NOT_RUN, Replay.NOT_REPRODUCED, Replay.INCONCLUSIVE)
        if replay is Replay.NOT_REPRODUCED:
            assert YES not in answers.values()
            assert NO in of(answers, checkpoint="before", batch="event")


def test_nodes_that_differ_on_equal_inputs_are_the_node_or_nothing(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        if _nodes_differ(answers):
            assert replay in (Replay.NODE, Replay.INCONCLUSIVE)


def _nodes_differ(answers: Answers) -> bool:
    return any(
        {answers[cell], answers[Cell(checkpoint=cell.checkpoint, batch=cell.batch, node="other")]} == {YES, NO}
        for cell in CELLS
        if cell.node == "this"
    )


def _contradicts(answers: Answers) -> bool:
    """Whether no fault of batch, state or one node explains the answers, whatever the others would be."""
    there = of(answers, node="other")
    if _nodes_differ(answers):
        return YES in there
    either = {
        (checkpoint, batch): of(answers, checkpoint=checkpoint, batch=batch)
        for checkpoint in ("before", "earlier")
        for batch in ("event", "placebo")
    }
    return any(
        YES in either[more] and NO in either[less]
        for more, less in (
            (("before", "placebo"), ("before", "event")),
            (("earlier", "placebo"), ("earlier", "event")),
            (("earlier", "event"), ("before", "event")),
            (("earlier", "placebo"), ("before", "placebo")),
            (("earlier", "placebo"), ("before", "event")),
        )
    )


def test_what_contradicts_itself_says_nothing(table: list[tuple[Answers, Replay]]) -> None:
    for answers, replay in table:
        if _contradicts(answers):
            assert replay is Replay.INCONCLUSIVE


def test_fewer_answers_never_say_more(table: list[tuple[Answers, Replay]]) -> None:
    """Of answers that do not contradict each other, to forget one never makes a word out of none."""
    words = {tuple(answers.values()): replay for answers, replay in table}
    for answers, replay in table:
        if replay in SAYS_NOTHING and not _contradicts(answers):
            values = tuple(answers.values())
            for place, value in enumerate(values):
                if value is not UNKNOWN:
                    fewer = (*values[:place], UNKNOWN, *values[place + 1 :])
                    assert words[fewer] in SAYS_NOTHING, (answers, place)


def test_cells_left_out_are_unknown() -> None:
    some = {CELLS[0]: YES, CELLS[1]: NO}
    assert replay_of(some) is replay_of({cell: some.get(cell, UNKNOWN) for cell in CELLS})


def test_a_cell_says_what_it_is() -> None:
    with pytest.raises(ValueError, match="'next' is none of"):
        Cell(checkpoint="next", batch="event", node="this")  # type: ignore[arg-type]
    assert str(CELLS[0]) == "the batch from the checkpoint before, on this node"
    assert len(set(CELLS)) == 8
