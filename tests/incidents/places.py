"""What did dataguard name as the place of an event, and is it the right one? One judge for each kind of place.

Each gives what was named (for the table) and whether the planted fault is in it.
"""

from __future__ import annotations

from tests.incidents.incident import Place, Played

__all__ = ["nowhere", "rank_named", "shard_named", "step_between", "text_names"]


def nowhere(played: Played) -> tuple[str, bool]:
    """Nothing was planted that has a place, and no event may be told."""
    event = played.answer.event
    return ("-", True) if event is None else (f"steps {event.start}:{event.stop}", False)


def shard_named(tag: str) -> Place:
    """The shard of a tag is the worst of the shards that are listed as enriched."""

    def judge(played: Played) -> tuple[str, bool]:
        localised = played.answer.localised
        shards = () if localised is None else localised.shards
        if not shards:
            return "no shard", False
        return shards[0].name, shards[0].name == played.tagged[tag]

    return judge


def rank_named(rank: int) -> Place:
    """The rank is the worst of those that are listed."""

    def judge(played: Played) -> tuple[str, bool]:
        localised = played.answer.localised
        ranks = () if localised is None else localised.ranks
        if not ranks:
            return "no rank", False
        return f"rank {ranks[0].rank}", ranks[0].rank == rank

    return judge


def step_between(start: int, stop: int) -> Place:
    """The event's peak, or its start, lies in a stretch of steps."""

    def judge(played: Played) -> tuple[str, bool]:
        event = played.answer.event
        if event is None:
            return "no step", False
        return f"steps {event.start}:{event.stop}", event.start < stop and event.stop > start

    return judge


def text_names(word: str) -> Place:
    """What was found in the optimizer's traces names a part of the model."""

    def judge(played: Played) -> tuple[str, bool]:
        texts = [text for fact in played.answer.facts for text in fact.texts]
        named = [text for text in texts if word in text]
        return (word, True) if named else (f"{word} not named", False)

    return judge
