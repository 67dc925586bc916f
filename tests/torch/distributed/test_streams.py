"""A named stream over real processes: any number of ranks, and processes that share one, are given the same set."""

from __future__ import annotations

from typing import Any

from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.torch.distributed.conftest import batches_of


def test_ranks_and_replicas_evaluate_the_same_set_again_and_again(launch, run, corpus) -> None:
    stream = run.stream("valid", corpus)
    words = {"job": "evaluate", "run": str(run.path), "stream": "valid", "microbatch_size": 2}
    replica = [[0, 1], [2, 3]]
    jobs: list[dict[str, Any]] = [
        {**words, "dp": [[0]], "world_size": 1},
        {**words, "dp": [[0, 1, 2, 3]], "world_size": 4, "num_workers": 1},
        {**words, "world_size": 2, "dp": [[0, 2], [1, 3]], "replica": replica},
        {**words, "dp": [[1, 2]], "world_size": 2, "launch_id": "told by the trainer"},
    ]
    alone, *others = launch(jobs, 4)
    wanted = batches_of(alone)
    assert sum(map(len, wanted.values())) == 96
    for answers in (alone, *others[:1], *others[2:]):
        assert batches_of(answers) == wanted
        assert batches_of([{"slots": each.get("again", {})} for each in answers]) == wanted
    # a replica's processes are handed the same
    shared = others[1]
    assert shared[0] == shared[1]
    assert batches_of(shared[::2]) == wanted
    assert batches_of([{"slots": each["again"]} for each in shared[1::2]]) == wanted
    assert [each.world_size for each in stream.evaluations()] == [1, 1, 4, 4, 2, 2, 2, 2]
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok, answer
    assert not len(run.attempts())
