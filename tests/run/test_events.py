"""Event files: bytes that come back equal, and no changed byte that passes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.evidence import Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import OptimizerFacts, PlannedChange, TrainerFacts
from dataguard.run.events import (
    AppliedSkip,
    AttemptBegun,
    CanaryCompared,
    CheckpointSaved,
    Diagnosed,
    EvaluatedAt,
    Event,
    EventFile,
    EventUnreadableError,
    ExperimentDone,
    Halted,
    Proposed,
    Quarantined,
    RankPlace,
    Released,
    Revoked,
    RunCreated,
    SkipAdded,
    SpikeFound,
    StreamAdded,
    StreamIdentity,
    TrainerDescribed,
    TransformIdentity,
    decode_event,
    encode_event,
    kind_of,
)

DIGEST = "0123456789abcdef" * 4

ALL_KINDS: list[Event] = [
    RunCreated(
        run="a" * 32, plan=DIGEST, root=DIGEST, manifests=(DIGEST,), skip_mode="jump", fill="mask", first_label=1,
        roots={"web": "/data/web"},
    ),
    AttemptBegun(
        attempt=2, parent=1, fork_step=30, start_position=240, world_size=4, microbatch_size=2, plan=DIGEST,
        root=DIGEST, seed=7, manifests=(DIGEST,), skips=(AppliedSkip(start=320, stop=360, event=3, reason="spike"),),
        withheld=DIGEST, num_withheld=1, attempt_digest=DIGEST, launch_id="job 7, restart 1",
        ranks=(RankPlace(rank=0, host="node-1", device="cuda:0", process=71),),
    ),
    SkipAdded(start=320, stop=360, steps=(40, 45), batches=(40, 45), attempt=1, reason="Verlust: 5 → 9"),
    Quarantined(shard="web/a.jsonl", row=3, reason="damaged", evidence="page 4"),
    Quarantined(withheld=DIGEST, reason="audit"),
    Released(shard="web/a.jsonl"),
    Revoked(event=3, reason="not the cause"),
    Proposed(proposal="quarantine", attempt=1, shard="web/a.jsonl", rows=(3, 4), positions=(77,), reason="unreadable"),
    Halted(
        attempt=2, stop_step=33, step=31, rank=1, microbatch=0, slot=9, position=257, shard="web/a.jsonl", row=17,
        rules=("out_of_vocabulary",),
    ),
    StreamAdded(name="valid-code", stream="b" * 32, plan=DIGEST, manifest=DIGEST[::-1], num_steps=None),
]  # fmt: skip

NOTES: list[Event] = [
    CheckpointSaved(attempt=2, next_step=30, path="s3://bucket/ckpt/30"),
    TrainerDescribed(
        attempt=2,
        facts=TrainerFacts(
            optimizer=OptimizerFacts(epsilon=1e-8), changes=(PlannedChange(step=40, what="lr / 3"),)
        ),
    ),
    SpikeFound(
        attempt=2, event_class=EventClass.TRANSIENT_SPIKE, start=31, stop=36, peak=33, size_nats=0.75, sigmas=12.5,
        aftermath_nats=None, grad_norm_ratio=4.0, signal="loss", rank=None, detector="default",
    ),
    ExperimentDone(
        attempt=2, step=33, outcome=Replay.BATCH_FROM_THIS_STATE, number_type=Told.NO, first_layer="blocks.3.attn",
        results=DIGEST, summary="the batch spikes from step 30, not from step 20",
    ),
    CanaryCompared(
        attempt=None, step=0, differs=Told.YES, odd=("node-7/cuda:3",), results=DIGEST, summary="1 of 8 differs"
    ),
    Diagnosed(
        attempt=2, step=33, event_class=EventClass.TRANSIENT_SPIKE, verdict=Verdict.DATA_AND_STATE,
        scores={"data": 2.5, "hardware": 0.0}, evidence={"replay": "batch_from_this_state"}, summary="rewind to 30",
    ),
]  # fmt: skip

JUDGED: list[Event] = [
    msgspec.structs.replace(ALL_KINDS[0], policy=DIGEST, profile=DIGEST[::-1], vocab_size=50_257),
    msgspec.structs.replace(ALL_KINDS[1], policy=DIGEST, profile=DIGEST[::-1], vocab_size=50_257),
    msgspec.structs.replace(ALL_KINDS[7], rule="many_refused"),
    ALL_KINDS[8],
]

OF_STREAMS: list[Event] = [
    msgspec.structs.replace(
        ALL_KINDS[0], stream=StreamIdentity(name="valid-code", run="a" * 32, first_label=1, num_steps=12)
    ),
    msgspec.structs.replace(ALL_KINDS[1], parent=None, fork_step=0, evaluated_at=EvaluatedAt(attempt=2, step=300)),
]

TRANSFORM = TransformIdentity(name="train:tokenize", source=DIGEST, version="3", parts={"tokenizer": DIGEST[::-1]})

OF_TRAINING: dict[str, Event] = {
    "stream-added": ALL_KINDS[9],
    "run-created": OF_STREAMS[0],
    "attempt-begun evaluation": OF_STREAMS[1],
    "attempt-begun transform": msgspec.structs.replace(ALL_KINDS[1], transform=TRANSFORM),
}
"""What came with training: named streams, and what makes tensors of samples."""

GOLDEN = Path(__file__).parents[1] / "golden" / "judged-events-v1"


def file_of(event: Event, number: int = 1) -> EventFile:
    return EventFile(
        number=number, prev=DIGEST if number > 1 else None, time="2026-01-02T03:04:05.000006Z", by="ada@host",
        dataguard="0.1.0", event=event,
    )  # fmt: skip


@pytest.mark.parametrize("event", ALL_KINDS + NOTES + OF_STREAMS, ids=kind_of)
def test_an_event_comes_back_equal(event: Event) -> None:
    document = file_of(event, 7)
    assert decode_event(encode_event(document)) == document


def test_the_bytes_are_one_line_of_json_with_the_facts_in_plain_sight() -> None:
    raw = encode_event(file_of(ALL_KINDS[2], 3))
    assert raw.count(b"\n") == 1
    assert raw.endswith(b"\n")
    document = json.loads(raw)
    assert document["number"] == 3
    assert document["event"]["kind"] == "skip-added"
    assert document["event"]["steps"] == [40, 45]
    body = raw[: raw.rindex(b',"check"')]
    assert document["check"] == hashlib.sha256(body).hexdigest()


@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
@pytest.mark.parametrize("event", ALL_KINDS[1:3], ids=kind_of)
def test_any_flipped_bit_shows(event: Event, place: int, bit: int) -> None:
    raw = bytearray(encode_event(file_of(event)))
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(EventUnreadableError):
        decode_event(bytes(raw))


def test_any_cut_and_any_addition_shows() -> None:
    raw = encode_event(file_of(ALL_KINDS[6]))
    for length in range(len(raw)):
        with pytest.raises(EventUnreadableError):
            decode_event(raw[:length])
    for extra in (b"\n", b"\0", raw):
        with pytest.raises(EventUnreadableError):
            decode_event(raw + extra)


def signed(body: bytes) -> bytes:
    return body + b',"check":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def body_of(event: Event) -> bytes:
    raw = encode_event(file_of(event))
    return raw[: raw.rindex(b',"check"')]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"version":1', b'"version":2', "version 2"),
        (b'"kind":"revoked"', b'"kind":"forgiven"', "forgiven"),
        (b'"event":3', b'"event":0', ">= 1"),
        (b'"reason"', b'"raison"', "raison"),
        (b'"by":"ada@host"', b'"by":null', "str"),
        (b'{"by"', b'["by"', "object"),
    ],
)
def test_what_is_whole_but_no_event_of_this_version_is_told(old: bytes, new: bytes, says: str) -> None:
    body = body_of(ALL_KINDS[6])
    assert old in body
    with pytest.raises(EventUnreadableError, match=says):
        decode_event(signed(body.replace(old, new, 1)))


def test_a_quarantine_names_a_shard_or_a_list() -> None:
    for facts in ({}, {"shard": "a", "withheld": DIGEST}, {"withheld": DIGEST, "row": 3}):
        with pytest.raises(ValueError, match="quarantine"):
            msgspec.convert({"kind": "quarantined", "reason": "x", **facts}, Quarantined)


def test_every_kind_of_event_is_covered_here() -> None:
    assert {type(event) for event in ALL_KINDS + NOTES} == set(Event.__args__)


@pytest.mark.parametrize("event", JUDGED, ids=kind_of)
def test_events_of_a_run_with_a_policy_are_what_they_were(event: Event) -> None:
    raw = (GOLDEN / f"{kind_of(event)}.json").read_bytes()
    assert decode_event(raw) == file_of(event)
    assert encode_event(file_of(event)) == raw


@pytest.mark.parametrize("name", OF_TRAINING)
def test_events_of_training_are_what_they_were(name: str) -> None:
    raw = (GOLDEN.parent / "training-events-v1" / f"{name}.json").read_bytes()
    assert decode_event(raw) == file_of(OF_TRAINING[name])
    assert encode_event(file_of(OF_TRAINING[name])) == raw


@pytest.mark.parametrize("event", NOTES, ids=kind_of)
def test_events_of_triage_are_what_they_were(event: Event) -> None:
    raw = (GOLDEN.parent / "triage-events-v1" / f"{kind_of(event)}.json").read_bytes()
    assert decode_event(raw) == file_of(event)
    assert encode_event(file_of(event)) == raw


def test_what_a_run_without_a_policy_writes_has_no_word_of_it() -> None:
    for event in ALL_KINDS[1:-1]:
        assert not {b"vocab", b"rule", b"policy", b"profile"} & set(encode_event(file_of(event)).split(b'"'))
