"""Steps of a watched loader made again: exactly, or with what differs; and what the command line says of such runs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader

from dataguard.cli.main import main
from dataguard.errors import NotInRun
from dataguard.run.run import Run
from dataguard.torch import guard
from tests.torch.guarded_data import Noisy, Rows, Stream, loader_of, rows_of


def test_every_step_is_exact_and_the_batches_are_there_again(tmp_path: Path) -> None:
    with guard(loader_of(num_workers=1), tmp_path / "run", policy="default", vocab_size=1_000, store="all") as guarded:
        handed = list(guarded)
        states = torch.get_rng_state(), random.getstate()
    for step, batch in enumerate(handed):
        again = guarded.replay(step)
        assert (again.status, again.answer.origin) == ("exact", "both")
        assert list(again.batches) == [(0, 0)]
        assert all(torch.equal(again.batches[0, 0][name], batch[name]) for name in batch)
        assert [sample.row for sample in again.answer.microbatches[0].samples] == rows_of(batch)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    with pytest.raises(NotInRun, match="step 6"):
        guarded.replay(6)


def test_rows_that_were_changed_since_are_named(tmp_path: Path) -> None:
    with guard(loader_of(shuffle=False), tmp_path / "run") as guarded:
        list(guarded)
    changed = guard(loader_of(dataset=Rows(23, changed=(5, 21))), guarded.run)
    assert [changed.replay(step).status for step in range(6)] == ["exact", "differs", *["exact"] * 3, "differs"]
    (microbatch,) = changed.replay(1).answer.microbatches
    assert [(sample.row, sample.status) for sample in microbatch.samples] == [
        (4, "exact"),
        (5, "differs"),
        (6, "exact"),
        (7, "exact"),
    ]
    assert microbatch.samples[1].problem == "the data set gives other tensors than were handed over"


def test_another_collate_function_another_policy_and_random_numbers_differ(tmp_path: Path) -> None:
    def cut(rows: list[dict[str, torch.Tensor]]) -> Any:
        return torch.utils.data.default_collate([{**row, "more": torch.zeros(1)} for row in rows])

    with guard(loader_of(), tmp_path / "run") as guarded:
        list(guarded)
    assert guard(loader_of(collate_fn=cut), guarded.run).replay(2).status == "differs"
    with guard(loader_of(dataset=Noisy(23)), tmp_path / "noisy") as guarded:
        list(guarded)
    numpy = np.random.get_state()[1].copy()  # noqa: NPY002 - as people do
    assert guarded.replay(2).status == "differs"
    assert (np.random.get_state()[1] == numpy).all()  # noqa: NPY002 - as people do


def test_what_the_data_set_raises_is_the_answer(tmp_path: Path) -> None:
    class Gone(Rows):
        """A data set whose files are gone."""

        def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
            raise FileNotFoundError("shard-7.bin")

    with guard(loader_of(), tmp_path / "run") as guarded:
        list(guarded)
    again = guard(loader_of(dataset=Gone(23)), guarded.run).replay(0)
    assert again.status == "unreadable"
    assert "FileNotFoundError: shard-7.bin" in str(again.answer.microbatches[0].samples[0].problem)
    assert not again.batches


def test_batches_by_order_are_fetched_or_told_to_be_gone(tmp_path: Path) -> None:
    loader = DataLoader(Stream(20), batch_size=4)
    with guard(loader, tmp_path / "run", store="last:2") as guarded:
        handed = list(guarded)
    again = guarded.replay(4)
    assert (again.status, again.answer.origin) == ("exact", "fetched")
    assert all(torch.equal(again.batches[0, 0][name], handed[4][name]) for name in handed[4])
    gone = guarded.replay(1)
    assert "came without indices" in str(gone.answer.microbatches[0].samples[0].problem)
    assert (gone.status, gone.answer.origin) == ("unreadable", "none")
    assert not gone.batches


Capture = pytest.CaptureFixture[str]


def typed(capfd: Capture, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    capfd.readouterr()
    code = main(list(words))
    told = capfd.readouterr()
    return code, told.out, told.err


def test_what_was_just_handed_over_can_be_fetched_at_once(tmp_path: Path) -> None:
    with guard(DataLoader(Stream(40), batch_size=4), tmp_path / "run") as guarded:
        for step, batch in enumerate(guarded):
            again = guarded.replay(step)
            assert again.status == "exact"
            assert rows_of(again.batches[0, 0]) == rows_of(batch)


def test_the_command_line_tells_what_it_can_and_never_that_all_is_well_unchecked(
    tmp_path: Path, capfd: Capture
) -> None:
    with guard(loader_of(), tmp_path / "run", first_label=1) as guarded:
        list(guarded)
    run = str(tmp_path / "run")
    code, _, err = typed(capfd, "replay", run, "--step", "2")
    assert code == 2
    assert "cannot be rebuilt here, so nothing was checked" in err
    assert "in Python, with the data set" in err
    assert typed(capfd, "log", run)[0] == 0
    assert "dataset/indices" in typed(capfd, "inspect", run, "--step", "2")[1]
    code, out, _ = typed(capfd, "seen", run, "--step", "3")
    assert (code, "epochs are not told" in out) == (0, True)
    assert "1 place" in typed(capfd, "where", run, "indices:3")[1]
    code, out, _ = typed(capfd, "verify", run)
    assert code == 0
    assert "samples were not rebuilt" in out
    for words in (("skip", run, "1:2"), ("quarantine", run, "dataset/indices:3")):
        code, _, err = typed(capfd, *words, "--reason", "spike")
        assert code == 2
        assert "means nothing in this run" in err
    assert typed(capfd, "compact", run)[0] == 0
    assert typed(capfd, "verify", run)[0] == 0


def test_a_record_that_no_watched_loader_leaves_is_found(tmp_path: Path, capfd: Capture) -> None:
    with guard(loader_of(), tmp_path / "run") as guarded:
        for number, _ in enumerate(guarded):
            walk = guarded._walk
            assert walk is not None
            if number == 3:
                walk._empty["row"] = 99
                walk._empty["status"] = 2
    code, out, _ = typed(capfd, "verify", str(tmp_path / "run"))
    assert code == 1
    assert "names a row that is not there; was withheld, skipped or replaced" in out


def test_the_command_line_fetches_what_the_store_has(tmp_path: Path, capfd: Capture) -> None:
    with guard(DataLoader(Stream(20), batch_size=4), tmp_path / "run", store="last:2") as guarded:
        list(guarded)
    run = str(tmp_path / "run")
    assert typed(capfd, "replay", run, "--step", "4")[0] == 0
    code, _, err = typed(capfd, "replay", run, "--step", "1")
    assert code == 2
    assert "without indices, and the store has nothing of this step" in err
    assert "in Python" not in err, "nothing can make such a batch again"
    assert "what of them the store has is all there is" in typed(capfd, "verify", run)[1]
    path = Run.open(run).layout.store(1, 4, 0)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert typed(capfd, "replay", run, "--step", "4")[0] == 3


def test_the_command_line_writes_what_the_store_has(tmp_path: Path, capfd: Capture) -> None:
    with guard(loader_of(), tmp_path / "run", accumulate=2, store="all") as guarded:
        handed = list(guarded)
    out = tmp_path / "out"
    code, told, _ = typed(capfd, "replay", str(tmp_path / "run"), "--step", "2", "-o", str(out))
    assert code == 0
    assert "None" not in told
    for place, batch in enumerate(handed[4:]):
        kept = load_file(out / "rank=0" / f"microbatch={place}.safetensors")
        assert sorted(kept) == sorted(batch)
        assert all(torch.equal(kept[name], batch[name]) for name in batch)
    rows = pq.read_table(out / "samples.parquet").to_pylist()
    assert [row["row"] for row in rows] == rows_of(handed[4]) + rows_of(handed[5])
    assert [(row["slot"], row["status"]) for row in rows] == [(slot, "exact") for slot in range(7)]
