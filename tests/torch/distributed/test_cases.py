"""What users of other tools reported (K8 to K11, K13, K14), again through GuardedLoader and real processes.

The ways without torch stand in `tests/cases`; the inputs are the same. Ids are read back from the tensors handed over.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from typing import Any

import pyarrow.parquet as pq
import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.errors import GeometryError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run import amend
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, GuardedLoader
from tests.corpus.making import parquet
from tests.support.corpora import manifest_of, text_of
from tests.support.lineage import delivered
from tests.support.processes import environment
from tests.support.rows import id_of, rows_in
from tests.support.runs import make_run
from tests.torch.distributed.conftest import batches_of


def ids_of(answers: list[dict[str, Any]]) -> dict[int, list[int | None]]:
    """Ids of each global batch, by step; None for a slot that holds nothing."""
    return {
        step: [id_of(text.encode()) if text else None for text, _ in held] for step, held in batches_of(answers).items()
    }


def walk(run: Run, world_size: int, microbatch_size: int, **words: Any) -> dict[str, Any]:
    told = {"job": "walk", "run": str(run.path), "world_size": world_size, "microbatch_size": microbatch_size}
    return {**told, "dp": [list(range(world_size))], **words}


def clean(run: Run) -> None:
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok, [fault for check in answer.checks for fault in check.faults]


@pytest.fixture(scope="module")
def rows64(tmp_path_factory) -> Corpus:
    return rows_in(tmp_path_factory.mktemp("rows64"), [64])


# -- K8, batch geometry: G15, G16


@pytest.mark.parametrize(
    ("global_batch", "world_size", "microbatch_size", "rank"),
    [(10, 4, 1, 0), (8, 2, 3, 0), (8, 4, 1, 4), (8, 4, 1, -1), (512, 448, 1, 0)],
)
def test_g15_what_does_not_divide_is_refused_before_the_first_batch(
    tmp_path, rows64, global_batch, world_size, microbatch_size, rank
) -> None:
    run = make_run(tmp_path / "run", rows64, global_batch=global_batch)
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    with pytest.raises(GeometryError) as caught:
        GuardedLoader(run, geometry=geometry, rank=rank, transform=ByteTransform(8))
    numbers = (rank, world_size) if rank else (global_batch, world_size, microbatch_size)
    assert all(f"{number:,}" in str(caught.value) for number in numbers)
    assert run.head().number == 1


def test_g15_over_real_ranks(launch, tmp_path, rows64) -> None:
    (answers,) = launch([walk(make_run(tmp_path / "run", rows64, global_batch=10), 4, 1, steps=1, seconds=20)], 4)
    assert [answer["kind"] for answer in answers] == ["GeometryError"] * 4
    assert all("global batch of 10 cannot be cut into 4 ranks" in answer["error"] for answer in answers)


def test_g16_more_workers_and_ranks_than_shards(launch, tmp_path) -> None:
    corpus = rows_in(tmp_path, [5, 3])
    one = {"dp": [[0]], "epochs": 1}
    jobs = [
        walk(make_run(tmp_path / f"{n}", corpus, global_batch=2, lanes=1, shuffle="none"), 1, 2, num_workers=n, **one)
        for n in (0, 1, 2, 3, 8)
    ]
    wide = make_run(tmp_path / "wide", corpus, global_batch=4, lanes=1, shuffle="none")
    *several, ranks = launch([*jobs, walk(wide, 4, 1, num_workers=2, epochs=1)], 4)
    for answers in several:
        assert ids_of(answers) == {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6, 7]}
    assert ids_of(ranks) == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}


# -- K9, resume state: G17, G18


def test_g17_the_second_resume_goes_on_and_not_from_a_delta(launch, tmp_path) -> None:
    corpus = rows_in(tmp_path, [100])
    whole, run = (make_run(tmp_path / name, corpus, global_batch=2) for name in ("whole", "run"))
    unbroken = ids_of(launch([walk(whole, 1, 2, steps=45)], 1)[0])
    joined, state = {}, None
    for steps, next_step in ((30, 30), (10, 40), (5, 45)):
        # Three processes: nothing but the state goes from one to the next.
        saved, taken = launch(
            [walk(run, 1, 2, job="save", state=state), walk(run, 1, 2, num_workers=1, state=state, steps=steps)], 1
        )
        assert state is None or saved[0]["state"] == state, "load then save gives an equal state"
        joined |= ids_of(taken)
        state = taken[0]["state"]
        assert state["next_step"] == next_step
    assert joined == unbroken
    assert len({number for ids in unbroken.values() for number in ids}) == 90
    clean(run)


def test_g18_other_ranks_and_workers_at_resume(launch, tmp_path, rows64) -> None:
    whole, run = (make_run(tmp_path / name, rows64) for name in ("whole", "run"))
    grid = [(world_size, num_workers) for world_size in (1, 2, 4) for num_workers in (0, 1, 3, 7)]
    jobs = [
        walk(whole, 1, 8, epochs=1),
        walk(run, 2, 2, num_workers=2, steps=3),
        *(walk(run, ranks, 2, num_workers=workers, state={"of": 1}, steps=5) for ranks, workers in grid),
    ]
    first, second, *several = launch(jobs, 4)
    unbroken = ids_of(first)
    assert sorted(number for ids in unbroken.values() for number in ids) == list(range(64))
    for key, answers in zip(grid, several, strict=True):
        assert ids_of(second) | ids_of(answers) == unbroken, key
    assert len(run.attempts()) == 13
    clean(run)


# -- K10, skip and replay: G19, G20


def test_g19_a_skip_leaves_every_rank_its_own_rows(launch, tmp_path) -> None:
    corpus = rows_in(tmp_path, [4, 4, 4, 4])
    runs = [make_run(tmp_path / name, corpus, global_batch=4, skip_mode="hole") for name in ("plain", "run")]
    amend.skip(runs[1], 1, 2, reason="spike")
    plain, held = launch([walk(run, 2, 2, num_workers=1, epochs=1) for run in runs], 2)
    rows = []
    for rank in range(2):
        assert held[rank]["slots"] == {step: plain[rank]["slots"][step] for step in ("0", "2", "3")}
        rows += [id_of(text.encode()) for slots in held[rank]["slots"].values() for _, text, _ in slots]
    assert len(rows) == len(set(rows)) == 12


def test_g20_a_new_process_replays_every_label_from_the_record(launch, tmp_path, rows64) -> None:
    run = make_run(tmp_path / "run", rows64, global_batch=4, skip_mode="hole")
    amend.skip(run, 2, 5, reason="loss spike")
    labels = ids_of(launch([walk(run, 2, 2, num_workers=1, epochs=1)], 2)[0])
    assert list(labels) == [0, 1, *range(5, 16)]
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "dataguard", "replay", str(run.path), "--step", "0:16", "-o", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
    )
    answers = {answer["step"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert [answers[step]["status"] for step in (2, 3, 4)] == ["skipped"] * 3
    for label, ids in labels.items():
        table = pq.read_table(io.BytesIO((out / f"step={label}" / "samples.parquet").read_bytes()))
        assert [id_of(text) for text in table.column("text").to_pylist()] == ids
        samples = [sample for each in answers[label]["microbatches"] for sample in each["samples"]]
        assert {sample["status"] for sample in samples} == {"exact"}
    clean(run)


# -- K11, randomness: G21, G22

_ALONE = """
import json, sys
from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import ByteTransform, GuardedLoader

if __name__ == "__main__":
    folder, name, method = sys.argv[1:]
    run = Run.open(f"{folder}/{name}", plan=Plan(Corpus.open(f"{folder}/M.parquet"), seed=7, global_batch=8))
    settings = {"transform": ByteTransform(16), "num_workers": 1, "start_method": method, "epochs": 1}
    with GuardedLoader(run, geometry=Geometry(world_size=1, microbatch_size=4), **settings) as loader:
        digests = [microbatch.digest.hex() for microbatch in loader]
    begun = run.begun(1)
    print(json.dumps([digests, begun.attempt_digest, begun.transform.parts, run.plan.digest]))
"""


def test_g21_nothing_depends_on_the_process(tmp_path) -> None:
    rows_in(tmp_path, [10, 20, 30, 4], block_bytes=300)
    script = tmp_path / "alone.py"
    script.write_text(_ALONE)
    ways = {"0": "fork", "12345": "spawn"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), f"run {seed}", method],
            env=environment(PYTHONHASHSEED=seed, OMP_NUM_THREADS="1", RANK=None, WORLD_SIZE=None),
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, method in ways.items()
    ]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert said[0] == said[1]
    assert len(set(json.loads(said[0])[0])) == 16
    assert delivered(tmp_path / "run 0") == delivered(tmp_path / "run 12345")


def test_g22_ranks_share_no_row_and_orders_no_seed(launch, tmp_path, rows64) -> None:
    seeds = (0, 1, 2**32, 2**32 + 1)
    runs = {seed: make_run(tmp_path / f"{seed}", rows64, seed=seed, lanes=4) for seed in seeds}
    told = launch([walk(run, 4, 1, epochs=2) for run in runs.values()], 4)
    orders = set()
    for seed, answers in zip(seeds, told, strict=True):
        held = ids_of(answers)
        for epoch in range(2):
            order = tuple(number for step in range(8 * epoch, 8 * epoch + 8) for number in held[step])
            assert sorted(order) == list(range(64)), (seed, epoch)
            orders.add(order)
    assert len(orders) == 8


# -- K13, parallel runtime: G25


def test_g25_workers_of_a_parent_whose_threads_have_scored_and_read(launch, tmp_path) -> None:
    """Five rounds of a fork, each of which opens, reads and scores anew; `tests/cases` has 20 of kernels alone."""
    shard = parquet(tmp_path / "web" / "a.parquet", [text_of("web/a.parquet", row) for row in range(64)], group=8)
    corpus = Corpus.open(manifest_of(tmp_path, ["web"]))
    runs = [make_run(tmp_path / f"run {number}", corpus) for number in range(5)]
    words = {"job": "busy", "shard": str(shard), "policy": "default", "num_workers": 2, "start_method": "fork"}
    told = launch([walk(run, 1, 4, epochs=1, **words) for run in runs], 1)
    for (answer,) in told:
        held = [text for batch in batches_of([answer]).values() for text, _ in batch]
        assert len(set(held)) == 64
        assert answer["digests"] == told[0][0]["digests"]


# -- K14, write safety: G27, G28


def test_g27_killed_anywhere_the_record_holds_what_was_handed_over(launch, tmp_path, rows64) -> None:
    """One process, killed after each of these many microbatches; the next goes on, and all is as in an unbroken run."""
    whole, run = (make_run(tmp_path / name, rows64, global_batch=4) for name in ("whole", "run"))
    launch([walk(whole, 1, 1, steps=16)], 1)
    state: Any = None
    next_step = 0
    for number, after in enumerate((3, 8, 1, 17, 6)):
        checkpoint = tmp_path / f"{number}.json"
        words = {"num_workers": number % 2, "save_to": str(checkpoint), "die_after": after, "state": state, "steps": 16}
        launch([walk(run, 1, 1, **words)], 1, die=(0,))
        held = [sample for sample in delivered(run.path) if sample[0] >= next_step]
        assert len(held) == after, "recorded is what was handed over"
        if checkpoint.exists():
            state = json.loads(checkpoint.read_text())
        elif state is None:
            head = run.head()
            state = {"version": 1, "root_digest": run.plan.root.digest, "attempt": 1, "next_step": 0}
            state["journal_head"] = {"number": head.number, "sha256": head.sha256}
        next_step = state["next_step"]
        assert next_step <= sum((3, 8, 1, 17, 6)[: number + 1]) // 4
    (last,) = launch([walk(run, 1, 4, state=state, steps=16 - next_step)], 1)
    assert max(map(int, last[0]["slots"])) == 15
    assert delivered(run.path) == delivered(whole.path)
    clean(run)


def test_g28_eight_ranks_make_one_run_at_once(launch, tmp_path) -> None:
    """Each opens a run in folders that are missing, from the same plan; one makes it and all of them begin."""
    rows_in(tmp_path, [64])
    words = {"job": "walk", "manifest": str(tmp_path / "M.parquet"), "plan": {"seed": 7, "global_batch": 8}, "steps": 1}
    paths = [tmp_path / f"{number}" / "a" / "b" / "run" for number in range(4)]
    told = launch([{**words, "world_size": 8, "run": str(path)} for path in paths], 8)
    assert [ids_of(answers) for answers in told] == [ids_of(told[0])] * 4
    for path in paths:
        run = Run.open(path)
        assert [entry.number for entry in run.read().entries] == [1, 2]
        assert list((path / "tmp").iterdir()) == []
        clean(run)
    digest = {hashlib.sha256(next((path / "plan").iterdir()).read_bytes()).hexdigest() for path in paths}
    assert len(digest) == 1
