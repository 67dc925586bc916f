"""Which indices did each batch of a DataLoader hold, when worker processes read ahead and nothing of it may change?

A DataLoader asks its batch sampler (its sampler, where there are no batches) for the indices of batch after batch, in
the order in which it hands them over, whatever its workers do. So a `_Recorder` stands in the sampler's place for the
moment in which the DataLoader makes its iterator, and notes what passes: it draws no random numbers, keeps the
sampler's state where it has one, and the DataLoader's own attributes are back before the first batch is handed over.

What was noted runs ahead of what is handed over, and where a loader that was resumed skips what it has delivered
before, some of it is never handed over at all. Which entry the first batch belongs to is worked out once, from the
iterator's own counts; from there on, one entry belongs to one batch.

Accelerate's prepared loaders hold a DataLoader inside and look one batch ahead of it; it is the inner one's sampler
that is watched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch.utils.data as data
from numpy.typing import NDArray

from dataguard.errors import UsageError

__all__ = ["IndexWatch", "inner_loader", "is_indexed"]

_END = object()


def inner_loader(loader: Any) -> Any:
    """The DataLoader whose sampler is asked: the loader itself, or the one that Accelerate's adapter holds."""
    while "base_dataloader" in getattr(loader, "__dict__", {}):
        loader = loader.__dict__["base_dataloader"]
    return loader


def is_indexed(loader: Any) -> bool:
    """Whether batches come of a data set with indices, in an order that its sampler gives."""
    inner = inner_loader(loader)
    if not isinstance(inner, data.DataLoader) or isinstance(inner.dataset, data.IterableDataset):
        return False
    # A dispatcher reads on rank 0 alone and hands parts of its batches to the others.
    return type(loader).__name__ != "DataLoaderDispatcher"


class _Recorder:
    """Stands for a sampler and notes what it gives."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.num_noted = 0
        """Since the newest iteration began."""
        self._first = 0
        self._items: deque[Any] = deque()
        self.newest: _Noting | None = None
        """The iteration that is noted."""

    def __iter__(self) -> Iterator[Any]:
        self._items.clear()
        self.num_noted = self._first = 0
        inner = iter(self.sampler)
        self.newest = (_StatefulNoting if _has_state(inner) else _Noting)(self, inner)
        return self.newest

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)

    def adopt(self, inner: Iterator[Any]) -> Iterator[Any]:
        """Note what an iterator gives that was made before."""
        self._items.clear()
        self.num_noted = self._first = 0
        self.newest = (_StatefulNoting if _has_state(inner) else _Noting)(self, inner)
        return self.newest

    def note(self, iteration: _Noting, item: Any) -> None:
        """One item of an iteration; only of the newest is kept."""
        if iteration is self.newest:
            self._items.append(item)
            self.num_noted += 1

    def begin_at(self, entry: int) -> None:
        """The next item that is handed over is this one; those before it never are."""
        while self._first < entry and self._items:
            self._items.popleft()
            self._first += 1

    def take(self) -> Any:
        """The item of the next batch; `_END` where there is none."""
        if not self._items:
            return _END
        self._first += 1
        return self._items.popleft()


class _StatefulRecorder(_Recorder):
    """The same for a sampler that has a state, which a loader may keep."""

    def state_dict(self) -> Any:
        """The sampler's."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Into the sampler."""
        self.sampler.load_state_dict(state)


class _Noting:
    """One iteration of a sampler."""

    def __init__(self, recorder: _Recorder, inner: Iterator[Any]) -> None:
        self._recorder = recorder
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self.inner)
        self._recorder.note(self, item)
        return item


class _StatefulNoting(_Noting):
    """The same for an iterator that has a state."""

    def state_dict(self) -> Any:
        """The iterator's."""
        return self.inner.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: Any) -> None:
        """Into the iterator."""
        self.inner.load_state_dict(state)  # type: ignore[attr-defined]


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


class IndexWatch:
    """Iterates a loader and tells the indices of each batch.

    Parameters
    ----------
    loader
        `is_indexed`.

    Raises
    ------
    UsageError
        It hands batches over in whatever order they are ready.

    Examples
    --------
    >>> loader = data.DataLoader(range(5), batch_size=2)
    >>> [(batch.tolist(), indices.tolist()) for batch, indices in IndexWatch(loader).batches()]
    [([0, 1], [0, 1]), ([2, 3], [2, 3]), ([4], [4])]
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.inner = inner_loader(loader)
        if self.inner.num_workers > 0 and not getattr(self.inner, "in_order", True):
            raise UsageError(
                "a DataLoader with in_order=False hands batches over in no order that could be recorded",
                todo="leave in_order out",
            )
        self.has_batches = self.inner.batch_sampler is not None
        """Whether each item of the sampler is a list of indices; else it is one index."""
        self._name = "batch_sampler" if self.has_batches else "sampler"
        sampler = getattr(self.inner, self._name)
        self._recorder = (_StatefulRecorder if _has_state(sampler) else _Recorder)(sampler)
        self._iterator: Any = None
        self._num_before = 0

    @property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return len(self.inner.dataset)

    def batches(self) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """One epoch: each batch with its indices, int64, shape (n,).

        The loader's iterator is made at once, as `iter` makes it: random numbers are drawn then, and workers begin.
        """
        before = self._recorder.newest
        with self.in_place():
            source = iter(self.loader)
        newest, made = self._recorder.newest, (self._iterator, self._num_before)
        self._iterator = None  # whoever keeps it keeps workers that the trainer has let go of
        return self._told(source, made, None if newest is before else newest)

    def _told(
        self, source: Iterator[Any], made: tuple[Any, int], own: _Noting | None
    ) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """`own` is None where the loader makes its iterator at the first batch, as one of Accelerate's does."""
        if own is None:
            with self.in_place():
                batch = next(source, _END)
            own, made = self._recorder.newest, (self._iterator, self._num_before)
            self._iterator = None
        else:
            self._require_newest(own)
            batch = next(source, _END)
        if batch is not _END:
            self._recorder.begin_at(self._first_entry(*made))
        del made
        num_rows = self.num_rows
        while batch is not _END:
            self._require_newest(own)
            yield batch, self._rows(self._recorder.take(), num_rows)
            batch = None  # the trainer alone keeps it while the next one is made
            batch = next(source, _END)

    def _require_newest(self, own: _Noting | None) -> None:
        if self._recorder.newest is not own:
            raise UsageError(
                "a guarded loader was begun again, and its iteration before went on",
                found="two iterations at once, of which one alone can be recorded",
                todo="guard a loader of its own for each",
            )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While inside, an iterator that the DataLoader makes asks the recorder."""
        inner = self.inner
        own, sampler = vars(inner), getattr(inner, self._name)
        self._iterator, self._num_before = getattr(inner, "_iterator", None), 0
        self._adopt(self._iterator)
        had = own.get("_get_iterator", _END)
        make = inner._get_iterator

        def made() -> Any:
            self._iterator = make()
            self._num_before = getattr(self._iterator, "_num_yielded", 0)
            return self._iterator

        own[self._name], own["_get_iterator"] = self._recorder, made
        try:
            yield
        finally:
            own[self._name] = sampler
            if had is _END:
                del own["_get_iterator"]
            else:
                own["_get_iterator"] = had

    def _adopt(self, iterator: Any) -> None:
        """An iterator that was made before anybody watched: one of persistent workers, or for asking a state."""
        if iterator is None or iterator._index_sampler is self._recorder:
            return
        iterator._index_sampler = self._recorder
        if getattr(self.inner, "_initial_iter_for_state_dict", False):
            if self.inner.num_workers > 0:
                raise UsageError(
                    "the DataLoader was asked for its state before guard() watched it, and its workers have begun",
                    todo="call guard() first",
                )
            iterator._sampler_iter = self._recorder.adopt(iterator._sampler_iter)
            self._num_before = iterator._num_yielded

    def _first_entry(self, iterator: Any, num_before: int) -> int:
        """Which noted item the first batch of this iteration belongs to."""
        noted = self._recorder.num_noted
        if iterator is None or not hasattr(iterator, "_num_yielded"):
            return 0
        newest: int = noted - 1
        if hasattr(iterator, "_rcvd_idx"):
            # Tasks are numbered as they are sent; what was noted beyond them was skipped before the first.
            newest = iterator._rcvd_idx - 1 + noted - iterator._send_idx
        ahead: int = iterator._num_yielded - num_before - 1
        return newest - max(ahead, 0)

    def _rows(self, item: Any, num_rows: int) -> NDArray[np.int64]:
        if item is _END:
            raise UsageError(
                "a batch was handed over for which the sampler gave no indices",
                found=f"{type(self.loader).__name__} over {type(self._recorder.sampler).__name__}",
                todo="guard it without its indices: guard(..., by='order')",
            )
        given = np.asarray(item).reshape(-1)
        if given.dtype.kind not in "iu" or not len(given):
            raise UsageError(
                "the sampler gives something else than indices",
                found=repr(item)[:80],
                allowed="whole numbers, by which the data set is asked",
                todo="guard it without its indices: guard(..., by='order')",
            )
        rows = given.astype(np.int64)
        if rows.min() < 0:
            rows = np.where(rows < 0, rows + num_rows, rows)
        if not 0 <= int(rows.min()) <= int(rows.max()) < num_rows:
            raise UsageError(
                "the sampler gives an index that the data set does not have",
                found=repr(item)[:80],
                allowed=f"0:{num_rows:,}",
            )
        return rows
