"""Data sets and loaders for the tests of `guard`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

VOCABULARY = 1_000
LENGTH = 64


def ids_of(row: int) -> torch.Tensor:
    """Ids that look like text: no repeats, many different ones; the first is the row."""
    generator = torch.Generator().manual_seed(row)
    ids = torch.randint(100, VOCABULARY, (LENGTH,), generator=generator)
    ids[0] = row
    return ids


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Rows with ids and labels; `bad` rows are one id over and over, `changed` ones hold another last id."""

    def __init__(self, num_rows: int, *, bad: tuple[int, ...] = (), changed: tuple[int, ...] = ()) -> None:
        self.num_rows = num_rows
        self.bad = bad
        self.changed = changed

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        ids = ids_of(row)
        if row in self.bad:
            ids[1:] = 7
        if row in self.changed:
            ids[-1] += 1
        return {"input_ids": ids, "labels": ids.clone(), "row": torch.tensor(row)}


class Noisy(Rows):
    """Rows to which each generator of random numbers adds something."""

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        noise = torch.rand(1) + np.random.rand() + random.random()  # noqa: NPY002 - as people do
        return {**super().__getitem__(row), "noise": noise}


class Stream(IterableDataset[dict[str, torch.Tensor]]):
    """The same rows without indices."""

    def __init__(self, num_rows: int) -> None:
        self.rows = Rows(num_rows)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return (self.rows[row] for row in range(len(self.rows)))


def rows_of(batch: Any) -> list[int]:
    """Which rows a batch holds, by what is in it."""
    return batch["row"].reshape(-1).tolist()


def loader_of(num_rows: int = 23, *, seed: int = 3, dataset: Any = None, cls: Any = DataLoader, **settings: Any) -> Any:
    """A shuffling loader of batches of 4 whose order follows from the seed."""
    settings = {"batch_size": 4, "shuffle": True, **settings}
    generator = torch.Generator().manual_seed(seed)
    return cls(Rows(num_rows) if dataset is None else dataset, generator=generator, **settings)
