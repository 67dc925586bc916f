"""What does an alert say of an event or of a rank, in one line for people?"""

from __future__ import annotations

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.torch.monitoring.decision import RankOutlier
from dataguard.triage.alerts import Alert

__all__ = ["alert_of_event", "alert_of_rank"]

_NEXT = {
    EventClass.HARD_BATCH: "nothing to rewind",
    EventClass.HARD_FAULT: "see dataguard triage",
    EventClass.ABSORBING_SHIFT: "see dataguard triage",
}


def alert_of_event(event: SpikeEvent, run: str, attempt: int, step: int, *, is_over: bool) -> Alert:
    """An event that was noticed at `step`, or is over.

    >>> event = SpikeEvent(event_class=EventClass.HARD_BATCH, start=12, stop=13, peak=12, size_nats=1.5, sigmas=20.0,
    ...                    rank=3)
    >>> alert = alert_of_event(event, "runs/a", 1, 212, is_over=True)
    >>> print(alert.key, alert.text, sep=" | ")
    hard_batch/loss/rank=3/over | hard_batch at steps 12:13 on rank 3: +1.5 nats (20 sigma); nothing to rewind
    """
    size = [] if event.size_nats is None else [f"{event.size_nats:+.3g} nats"]
    if size and event.sigmas is not None:
        size[0] += f" ({event.sigmas:.3g} sigma)"
    if event.grad_norm_ratio is not None:
        size.append(f"gradient norm {event.grad_norm_ratio:.3g} times its baseline")
    if is_over and event.aftermath_nats is not None:
        size.append(f"{event.aftermath_nats:+.3g} nats after it")
    what = f"{event.event_class}" + ("" if event.signal == "loss" else f" of {event.signal}")
    where = f"at steps {event.start:,}:{event.stop:,}" if is_over else f"since step {event.start:,}, not over yet"
    rank = "" if event.rank is None else f" on rank {event.rank}"
    todo = f"; {_NEXT[event.event_class]}" if is_over and event.event_class in _NEXT else ""
    place = "" if event.rank is None else f"/rank={event.rank}"
    return Alert(
        key=f"{event.event_class}/{event.signal}{place}{'/over' if is_over else ''}",
        run=run,
        attempt=attempt,
        step=step,
        text=f"{what} {where}{rank}" + (f": {', '.join(size)}" if size else "") + todo,
        event_class=event.event_class,
        start=event.start,
        stop=event.stop if is_over else None,
        rank=event.rank,
        size_nats=event.size_nats,
    )


def alert_of_rank(outlier: RankOutlier, run: str, attempt: int, step: int, world_size: int) -> Alert:
    """A rank that stands out again and again.

    >>> outlier = RankOutlier(signal="loss", rank=183, z=9.4, is_persistent=True)
    >>> alert_of_rank(outlier, "runs/a", 1, 15_000, 256).text
    'rank 183 of 256 stands out by its loss, over the data of many steps: median +9.4 sigma; see dataguard canary'
    """
    return Alert(
        key=f"rank_outlier/{outlier.signal}/rank={outlier.rank}",
        run=run,
        attempt=attempt,
        step=step,
        text=f"rank {outlier.rank} of {world_size:,} stands out by its {outlier.signal}, over the data of many steps: "
        f"median {outlier.z:+.3g} sigma; see dataguard canary",
        rank=outlier.rank,
    )
