"""Long runs of many ranks, made in seconds: what the plan delivers, recorded by the real writers without a loader.

Every record of the corpus is scored, judged and digested once; the records of the index are then looked up by the row
that stands at each position. So whatever looks back (triage, rebuilding, previews) finds what a loader would have left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dataguard.core.address import Geometry
from dataguard.core.digests import sample_digest
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.gate.gate import Gate
from dataguard.gate.policy import Policy
from dataguard.plan.plan import Plan
from dataguard.run.begin import begin_attempt
from dataguard.run.headline import encode
from dataguard.run.launch import AttemptRequest
from dataguard.run.policies import policy_of
from dataguard.run.records import HEADLINE_PREFIX, INDEX_RECORD, SIGNAL_PREFIX, index_record, rounded
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.run.writer import RankWriter
from dataguard.score.registry import HEADLINE
from tests.triage.localise.planted import ordinary

_STEPS_AT_ONCE = 1_000


def made_corpus(folder: Path, *, num_rows: int = 4_000) -> Corpus:
    """Two sources of prose, the second with one shard of repeated words."""
    dice = np.random.default_rng(11)
    texts = {
        "web": {"a": ordinary(dice, num_rows), "b": ordinary(dice, num_rows)},
        "code": {"c": ordinary(dice, num_rows // 2), "odd": ["buy now " * 40] * max(1, num_rows // 40)},
    }
    for source, shards in texts.items():
        (folder / source).mkdir(parents=True)
        for name, rows in shards.items():
            lines = "".join(json.dumps({"text": f"{text} {i}"}) + "\n" for i, text in enumerate(rows))
            (folder / source / f"{name}.jsonl").write_text(lines)
    build_manifest_file([f"{source}={folder / source}" for source in texts], folder / "M.parquet", num_workers=1)
    return Corpus.open(folder / "M.parquet")


def recorded_run(
    path: Path,
    corpus: Corpus,
    *,
    num_ranks: int,
    steps: int,
    size: int = 8,
    excess: Mapping[int, float] | None = None,
    policy: str | None = "default",
    seal: bool = True,
    sample_losses: bool = True,
    seed: int = 7,
) -> Run:
    """A run of one attempt that has delivered all its steps, with what its ranks logged.

    Parameters
    ----------
    size
        Samples of a rank in a step.
    excess
        What the loss of all ranks has on top, by step; samples of the odd shard have as much again.
    seal
        Leave it sealed; else as frames, as a run that was killed.
    """
    run = Run.create(path, Plan(corpus, seed=seed, global_batch=num_ranks * size), policy=policy)
    geometry = Geometry(world_size=num_ranks, microbatch_size=size)
    attempt = begin_attempt(run, AttemptRequest(launch_id="long run", geometry=geometry))
    rows = _rows(run, corpus, policy_of(run, 1))
    odd = run.stream_of(1).manifest_set.find_shards("code/odd.jsonl")
    head, begun = run.head(), run.begun(1)
    writers = [
        RankWriter.open(
            run.layout, run_id=run.run_id, attempt=1, rank=rank, first_step=0, microbatch_size=size,
            digests={"plan": begun.plan, "attempt": begun.attempt_digest}, head=(head.number, head.sha256),
            clock=lambda: "2026-01-02T03:04:05Z", background=False, record=rows.dtype, host=f"node-{rank // 8}",
        )
        for rank in range(num_ranks)
    ]  # fmt: skip
    logs = [open_telemetry(run, attempt.number, rank) for rank in range(num_ranks)]
    for first in range(0, steps, _STEPS_AT_ONCE):
        stop = min(first + _STEPS_AT_ONCE, steps)
        records = _recorded(run, rows, first, stop, num_ranks, size)
        dice = np.random.default_rng([seed, first])
        level = 2 + 4 * np.exp(-np.arange(first, stop) / 400)
        level += np.array([(excess or {}).get(step, 0.0) for step in range(first, stop)])
        losses = level[:, None] + dice.normal(0, 0.1, (stop - first, num_ranks * size))
        strange = np.isin(records["shard"].reshape(losses.shape), odd)
        losses[strange] += np.repeat(level[:, None] - 2, losses.shape[1], axis=1)[strange]
        for rank in range(num_ranks):
            mine = slice(rank * size, (rank + 1) * size)
            own = records.reshape(losses.shape)[:, mine]
            for step in range(stop - first):
                writers[rank].append(own[step])
            logs[rank].append(_logged(first, stop, losses[:, mine], mine, dice, sample_losses=sample_losses))
    for writer, log in zip(writers, logs, strict=True):
        writer.close(seal=seal)
        log.close()
    return run


def _logged(
    first: int, stop: int, losses: np.ndarray, slots: slice, dice: np.random.Generator, *, sample_losses: bool
) -> np.ndarray:
    steps, mean = np.arange(first, stop), losses.mean(axis=1)
    norm = np.exp(dice.normal(0, 0.1, len(steps)))
    names = ["loss", "grad_norm", "lr", "local_grad_norm"]
    values = np.stack([mean, norm, np.full(len(steps), 1e-3), norm * 1.2], axis=1)
    time_ns = 1_800_000_000_000_000_000 + steps * 1_000_000_000
    whole = telemetry_records(
        np.repeat(steps, 4), names * len(steps), values.reshape(-1), time_ns=np.repeat(time_ns, 4)
    )
    if not sample_losses:
        return whole
    size = losses.shape[1]
    of_samples = telemetry_records(
        np.repeat(steps, size), "loss", losses.reshape(-1), time_ns=np.repeat(time_ns, size),
        slots=np.tile(np.arange(slots.start, slots.stop), len(steps)),
    )  # fmt: skip
    both = np.concatenate([whole, of_samples])
    return both[np.argsort(both["step"], kind="stable")]


def _rows(run: Run, corpus: Corpus, policy: Policy | None) -> np.ndarray:
    """One index record for each row of the corpus, rows of a shard one after the other."""
    texts: list[bytes] = []
    source: list[int] = []
    for shard in corpus.manifest.shards:
        name = corpus.manifest.sources[shard.source].name
        lines = (Path(corpus.roots[name]) / shard.path).read_text().splitlines()
        texts += [json.loads(line)["text"].encode() for line in lines]
        source += [run.stream_of(1).source_names.index(name)] * len(lines)
    signals = () if policy is None else policy.signals("text")
    dtype = INDEX_RECORD if policy is None else index_record(HEADLINE["text"], signals)
    rows = np.zeros(len(texts), dtype)
    rows["delivered_shard"] = rows["delivered_row"] = -1
    rows["source"] = source
    rows["length"] = [len(text) for text in texts]
    rows["digest"] = np.frombuffer(b"".join(sample_digest(text)[:8] for text in texts), "V8")
    if policy is not None:
        gate = Gate(policy, source_names=run.stream_of(1).source_names)
        offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
        judged = gate.judge_texts(np.frombuffer(b"".join(texts), np.uint8), offsets, np.array(source, np.int32))
        rows["verdict"], rows["rules"] = judged.verdict, judged.rules
        keep = (judged.verdict > 0) | (np.arange(len(rows)) % 100 == 0)
        nothing = np.full(len(rows), np.nan)
        for name in HEADLINE["text"]:
            rows[HEADLINE_PREFIX + name] = encode(name, judged.signals.get(name, nothing))
        for name in signals:
            rows[SIGNAL_PREFIX + name] = np.where(keep, rounded(judged.signals.get(name, nothing)), np.float32(np.nan))
    return rows


def _recorded(run: Run, rows: np.ndarray, first: int, stop: int, num_ranks: int, size: int) -> np.ndarray:
    """Records of steps, in the order of steps and slots."""
    batch = num_ranks * size
    lanes = run.plan_document().root.lanes
    positions = np.arange(first * batch, stop * batch, dtype=np.int64)
    within = positions.reshape(-1, batch)
    order = np.argsort(within & (lanes - 1), axis=1, kind="stable")
    positions = np.take_along_axis(within, order, axis=1).reshape(-1)
    samples = run.stream_of(1, bulk=True).samples(positions)
    starts = np.cumsum([0, *(shard.num_rows for shard in run.stream_of(1).manifest_set.manifests[0].shards)])
    records = rows[starts[samples.shard] + samples.row]
    records["step"] = records["batch"] = np.repeat(np.arange(first, stop), batch)
    records["slot"] = np.tile(np.arange(batch), stop - first)
    records["position"] = positions
    records["shard"], records["row"] = samples.shard, samples.row
    starts_of = np.arange(0, len(records), size)
    records["microbatch_digest"][starts_of] = np.frombuffer(
        b"".join(sample_digest(str(int(p)).encode()) for p in positions[starts_of]), "V16"
    )
    return records
