"""What is the whole story: from a poisoned shard to a run that goes on below the loss it had?

Every command is a process and does what it says. Around them this module asks what came of each, and holds it against
what is known of the poison: the audit passes a corpus whose lengths are ordinary, the detector fires in training,
triage names rank, shard and records and convicts the batch by replay, what it says is typed in, the run goes on with
one rank from the checkpoint it names, and its loss is held against the one before the spike. Without the poison
the same is told up to triage, which has to find no incident.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dataguard.cli.demo.answers import DemoEvent, DemoLosses, DemoShard
from dataguard.cli.demo.placed import NUM_STEPS, placed
from dataguard.cli.demo.poisoned import TrainedCorpus
from dataguard.cli.demo.stage import NotAsTold, Stage

__all__ = ["PAGE", "TRAINER", "Told", "tell_trained"]

PAGE = "report.html"
TRAINER = "train.py"
_RUN = "RUN"
_RESUMED_STEPS = 220
_MOST = 7
"""Lines of each paragraph of a long answer."""
_COMPARED_STEPS = 24
"""Medians over so many steps are compared: losses of single steps differ by more than the story is about."""


@dataclass(slots=True)
class Told:
    """What is known, as far as the story came."""

    seed: int
    shard: DemoShard | None = None
    event: DemoEvent | None = None
    verdict: str | None = None
    losses: DemoLosses | None = None
    has_page: bool = False


def tell_trained(stage: Stage, corpus: TrainedCorpus, told: Told) -> None:
    """Tell it in the stage's folder, where corpus and trainer lie; `told` is filled on the way.

    Raises
    ------
    NotAsTold
        Something ended otherwise.
    """
    _introduce(stage, corpus)
    _audit(stage, corpus)
    _train(stage, corpus, told)
    if not corpus.poisoned:
        stage.run("dataguard", "triage", _RUN, why="Is anything wrong with this run?")
        answer = _triaged(stage, told)
        stage.check("the verdict", told.verdict, "no_incident")
        stage.check("events that triage found", len(answer["events"]), 0)
        _close(stage, told)
        return

    why = "What happened, who was fed what, and is it to blame? The batch and ordinary ones are replayed from\n"
    why += "the checkpoint before and from an earlier one, each of them several times."
    stage.run("dataguard", "triage", _RUN, "--experiment", Path(TRAINER).stem, why=why, most=_MOST)
    answer = _triaged(stage, told)
    event = _localised(stage, answer, told)
    step, rank = str(event.peak), str(event.rank)
    stage.tell(f"# It was told nothing of the shard, and names it: {event.shard}, read by rank {rank} at step {step}.")
    needed = "" if event.needed_nats is None else f" where {event.needed_nats:.2f} would have shown"
    size = "" if event.size_nats is None else f" The loss rose by {event.size_nats:.2f} nats{needed}."
    stage.tell(f"# Verdict {told.verdict}: {answer['diagnosis']['summary']}.{size}\n")
    why = f"Rebuild what rank {rank} was fed at step {step} from plan and shards, samples and the tensors that\n"
    why += "train.tokenize makes of them, and hold all of it bit by bit against its record."
    words = ["--step", step, "--rank", rank, "--transform", f"{Path(TRAINER).stem}:tokenize"]
    stage.run("dataguard", "replay", _RUN, *words, why=why, most=_MOST)
    _mend(stage, answer)
    _resume(stage, answer, event, told)
    _close(stage, told)


def _introduce(stage: Stage, corpus: TrainedCorpus) -> None:
    odd, others = corpus.odd_lengths, corpus.other_lengths
    stage.tell(f"In {stage.folder} there are now {corpus.num_records:,} passages from Python's own library,")
    stage.tell("code/ (sources) and docs/ (documentation), and a trainer, train.py.")
    if corpus.poisoned:
        stage.tell(f"{corpus.odd} came from a mainframe, and was read with the wrong table")
        stage.tell(f"(EBCDIC as code page 437): {corpus.odd_records} records, all valid text, all gibberish.")
        if corpus.example is not None:
            stage.tell(f"  there stands  {corpus.example[0]}")
            stage.tell(f"  it should be  {corpus.example[1]}")
        stage.tell("A check of lengths passes it. Bytes of a record, shortest, median, longest:")
        stage.tell(f"  of the shard         {odd.shortest:>4} {odd.median:>4} {odd.longest:>4}")
        stage.tell(f"  of the rest of code/ {others.shortest:>4} {others.median:>4} {others.longest:>4}")
        stage.tell(f"and {corpus.num_outside} of its records lie outside of what the rest has.")
    else:
        stage.tell(f"Nothing is wrong with them: {corpus.odd} holds what belongs there.")
    stage.tell()


def _audit(stage: Stage, corpus: TrainedCorpus) -> None:
    stage.run("dataguard", "manifest", "build", *corpus.sources, "-o", "M.parquet", why="What data is there?")
    stage.run("dataguard", "audit", "M.parquet", "-o", "AUDIT", why="Is it fit to be trained on?", most=_MOST)
    summary = msgspec.json.decode((stage.folder / "AUDIT" / "summary.json").read_bytes())
    stage.check("records that the audit withholds", summary["num_withheld"], 0)
    if not corpus.poisoned:
        return
    flags = {each["shard"]: each["verdicts"]["flag"] for each in summary["worst_shards"]}
    stage.check("the audit lists it among the worst shards", corpus.odd in flags, True)
    stage.check("records of it with a flag", flags[corpus.odd], corpus.odd_records)
    fired = {each["rule"]: each["fired"] for each in summary["rules"]}
    num_flagged = sum(each["verdicts"]["flag"] for each in summary["sources"])
    stage.tell(f"# The audit passes. All {corpus.odd_records} records of {corpus.odd} carry a flag, and it is listed")
    stage.tell(
        f"# among the worst shards; `length_outlier` fired on {fired['length_outlier']} records. But {num_flagged:,} of"
    )
    stage.tell(
        f"# {corpus.num_records:,} records carry a flag of some kind, a flag withholds nothing, and nobody looked.\n"
    )


def _train(stage: Stage, corpus: TrainedCorpus, told: Told) -> None:
    told.seed, num_orders, told.shard = placed(
        stage.folder / "M.parquet", corpus.odd, corpus.odd_records, poisoned=corpus.poisoned, seed=told.seed
    )
    shard = told.shard
    why = f"Train on two ranks. The order is shuffled, and {corpus.odd} comes where it comes. So that this is short,\n"
    why += f"{num_orders:,} orders were drawn until one, of seed {told.seed}, brings it to one rank at once:\n"
    why += f"to rank {shard.rank}, at steps {shard.start}:{shard.stop}.\n"
    why += "The detector judges each step and knows nothing of it: "
    why += "look for its ALERT." if corpus.poisoned else "it has to stay silent."
    words = ["--standalone", "--nproc-per-node", "2", TRAINER, _RUN]
    stage.run("torchrun", *words, "--seed", str(told.seed), "--steps", str(NUM_STEPS), why=why)
    if not corpus.poisoned:
        return
    alerts = (stage.folder / "alerts.jsonl").read_bytes() if (stage.folder / "alerts.jsonl").exists() else b""
    steps = [msgspec.json.decode(line)["step"] for line in alerts.splitlines()]
    fired = [step for step in steps if shard.start <= step < shard.stop]
    what, found = "the detector fires while the shard is read", fired[0] if fired else steps or "never"
    stage.check(what, found, f"a step of {shard.start}:{shard.stop}", right=bool(fired))


def _triaged(stage: Stage, told: Told) -> dict[str, Any]:
    """What triage says to a script; nothing is noted twice."""
    answer: dict[str, Any] = msgspec.json.decode(stage.ask("dataguard", "triage", _RUN, "--no-note"))
    told.verdict = answer["diagnosis"]["verdict"]
    event, localised = answer["event"], answer["localised"]
    if event is not None:
        ranks, shards = (localised or {}).get("ranks") or [], (localised or {}).get("shards") or []
        told.event = DemoEvent(
            event_class=event["class"], start=event["start"], stop=event["stop"], peak=event["peak"],
            size_nats=event["size_nats"], needed_nats=(answer["smallest_spike"] or {}).get("nats"),
            rank=ranks[0]["rank"] if ranks and ranks[0]["outlying"] else None,
            shard=shards[0]["name"] if shards and shards[0]["stands_out"] else None,
        )  # fmt: skip
    return answer


def _localised(stage: Stage, answer: dict[str, Any], told: Told) -> DemoEvent:
    """The event, where triage found what was planted, of which it was told nothing."""
    shard, event = told.shard, told.event
    assert shard is not None, "it was placed before the run was trained"
    if event is None:
        raise NotAsTold(
            "the story does not hold: triage finds no event", allowed=f"one at steps {shard.start}:{shard.stop}"
        )
    held = f"a step of {shard.start}:{shard.stop}"
    stage.check("the peak of the event", event.peak, held, right=shard.start <= event.peak < shard.stop)
    stage.check("the rank that triage names", event.rank, shard.rank)
    stage.check("the shard that triage names", event.shard, shard.shard)
    stage.check("the shard of the worst sample", answer["localised"]["samples"][0]["shard"], shard.shard)
    stage.check("the verdict", told.verdict, "bad_data")
    return event


def _mend(stage: Stage, answer: dict[str, Any]) -> None:
    """Type in what triage says: the skip and the quarantines."""
    typed = [shlex.split(each["text"], comments=True) for each in answer["response"]["commands"] if each["applies"]]
    stage.check("what triage says to type", " and ".join(words[1] for words in typed), "skip and quarantine")
    for words in typed:
        stage.run(*words, why="Type in what triage says:" if words is typed[0] else "")


def _resume(stage: Stage, answer: dict[str, Any], event: DemoEvent, told: Told) -> None:
    """Go on with one rank from the checkpoint that triage names, and compare losses."""
    advice = answer["response"]["resume"]
    stage.check("where triage says to resume from", advice["kind"], "checkpoint")
    checkpoint = Path(advice["path"]).relative_to(stage.folder)
    why = f"Go on from the checkpoint that triage names, on one rank. Step {advice['next_step']} comes next."
    stage.run("python", TRAINER, _RUN, "--steps", str(_RESUMED_STEPS), "--resume", str(checkpoint), why=why)
    told.losses = losses = _losses(stage.folder / _RUN, event)
    stage.tell(f"# Loss right before the spike: {losses.before:.3f}; at its peak: {losses.peak:.3f};")
    stage.tell(
        f"# at the end of the resumed run: {losses.end:.3f} (medians of {losses.num_steps} steps, but for the peak).\n"
    )
    below = f"below {losses.before:.3f}"
    stage.check("the loss at the end", f"{losses.end:.3f}", below, right=losses.end < losses.before)


def _losses(run: Path, event: DemoEvent) -> DemoLosses:
    """From the telemetry of both attempts."""
    import numpy as np

    from dataguard import Run
    from dataguard.run.telemetry_reading import telemetry_of_lineage

    def curve(leaf: int) -> dict[int, float]:
        rows = telemetry_of_lineage(Run.open(run), leaf, names=("loss",))
        rows = rows[rows["slot"] < 0]
        return {int(step): float(rows["value"][rows["step"] == step].mean()) for step in np.unique(rows["step"])}

    first, resumed = curve(1), curve(2)
    before = [loss for step, loss in first.items() if event.start - 1 - _COMPARED_STEPS <= step < event.start - 1]
    return DemoLosses(
        before=float(np.median(before)),
        peak=first.get(event.peak, float("nan")),
        end=float(np.median([resumed[step] for step in sorted(resumed)[-_COMPARED_STEPS:]])),
        num_steps=_COMPARED_STEPS,
    )


def _close(stage: Stage, told: Told) -> None:
    stage.run("dataguard", "verify", _RUN, why="Do journal, index, plan and data agree?")
    words, why = [_RUN], "All of it on one page:"
    if told.event is not None:  # what went on is without incident
        words += ["--attempt", "1"]
        why = "The attempt that spiked, on one page; without --attempt it is the run as it goes on:"
    stage.run("dataguard", "report", *words, "-o", PAGE, why=why)
    told.has_page = True
