"""The process that is Grain or MosaicML Streaming in a benchmark: it sees nothing of this project.

Words and answers are JSON by the line (`tests.bench.other_process`):

1. which peer, the Parquet shards, a folder, the batch size. The documents are converted to what the peer reads, each
   shard to one of its own: ArrayRecord files, and a list in memory (Grain); MDS (Streaming). The answer says how many
   documents there are, and what can be resumed.
2. ``reach``: a contender delivers k batches, and its state behind them is kept. Those but the last 100 it is told that
   it has delivered (a state of either is a count), for hundreds of thousands of documents take minutes; Grain delivers
   all of them from memory, and all its contenders have to give the same document next.
3. ``resume``: objects are made anew, the state is loaded, and the first batch is taken. The answer says how long that
   took, and the first document.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["REQUIREMENTS"]

REQUIREMENTS = {
    "grain": ("grain==0.2.18", "pyarrow"),
    "streaming": ("mosaicml-streaming==0.13.0", "pyarrow"),
}
"""Packages of each peer's environment, itself first."""

SEED = 17
MOST_WALKED = 100


def documents(shard: str) -> list[str]:
    import pyarrow.parquet as pq

    texts: list[str] = pq.ParquetFile(shard).read(columns=["text"]).column("text").to_pylist()
    return texts


class Walk:
    """An iterator over batches whose state can be taken and loaded."""

    def __init__(
        self,
        batches: Any,
        state: Callable[[], Any],
        load: Callable[[Any], Any],
        state_behind: Callable[[int], Any] | None = None,
    ) -> None:
        self.batches, self.state, self.load = batches, state, load
        self.state_behind = state_behind
        """The state behind so many batches; None for what delivers all of them."""

    def close(self) -> None:
        """End what reads ahead."""
        if hasattr(self.batches, "close"):
            self.batches.close()


Contenders = dict[str, Callable[[], Walk]]


def grain_contenders(shards: list[str], folder: Path, batch_size: int) -> tuple[int, Contenders]:
    """A shuffled map-style dataset, which is what Grain recommends; as it comes, it reads ahead on 16 threads."""
    import grain
    from array_record.python.array_record_module import ArrayRecordWriter

    held: list[bytes] = []
    paths = []
    for number, shard in enumerate(shards):
        texts = [text.encode() for text in documents(shard)]
        paths.append(str(folder / f"{number:05d}.array_record"))
        writer = ArrayRecordWriter(paths[-1], "group_size:1")
        for text in texts:
            writer.write(text)
        writer.close()
        held += texts

    def behind(batches: int) -> Any:
        return {"next_index": batches}

    def walk(source: Callable[[], Any], state_behind: Any = behind, **reading: Any) -> Callable[[], Walk]:
        def make() -> Walk:
            dataset = grain.MapDataset.source(source()).shuffle(seed=SEED).batch(batch_size, batch_fn=list)
            settings = {"read_options": grain.ReadOptions(**reading)} if reading else {}
            batches = iter(dataset.to_iter_dataset(**settings))
            return Walk(batches, batches.get_state, batches.set_state, state_behind)

        return make

    def stored() -> Any:
        return grain.sources.ArrayRecordDataSource(paths)

    return len(held), {
        "in memory": walk(lambda: held, None, num_threads=0, prefetch_buffer_size=0),
        "ArrayRecord": walk(stored, num_threads=0, prefetch_buffer_size=0),
        "ArrayRecord, reading ahead": walk(stored),
    }


def streaming_contenders(shards: list[str], folder: Path, batch_size: int) -> tuple[int, Contenders]:
    """A shuffled local dataset under its own loader, without workers."""
    _without_pictures()
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    num_documents = 0
    with MDSWriter(out=str(folder), columns={"text": "str"}) as writer:
        for shard in shards:
            for text in documents(shard):
                writer.write({"text": text})
                num_documents += 1

    def behind(batches: int) -> Any:
        of_one_node = {"num_canonical_nodes": 1, "initial_physical_nodes": 1, "shuffle_seed": SEED}
        return {"epoch": 0, "sample_in_epoch": batches * batch_size, **of_one_node}

    def make() -> Walk:
        dataset = StreamingDataset(local=str(folder), shuffle=True, shuffle_seed=SEED, batch_size=batch_size)
        loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=0)
        return Walk(_begun_late(loader), loader.state_dict, loader.load_state_dict, behind)

    return num_documents, {"MDS": make}


def _without_pictures() -> None:
    """It imports torchvision for data sets of pictures; builds of that for graphics cards do not load beside a torch
    without."""
    names = {"torchvision": [], "torchvision.datasets": ["VisionDataset"], "torchvision.transforms": []}
    for module, held in {**names, "torchvision.transforms.functional": ["to_tensor"]}.items():
        sys.modules[module] = ModuleType(module)
        sys.modules[module].__spec__ = ModuleSpec(module, None)
        for name in held:
            setattr(sys.modules[module], name, type(name, (), {}))


def _begun_late(loader: Any) -> Iterator[Any]:
    """Its iterator is made when the first batch is asked for: behind a state that is loaded."""
    for batch in loader:
        yield batch["text"]


class Answers:
    """What is done for each of the words."""

    def __init__(self, peer: str, shards: list[str], folder: str, batch_size: int) -> None:
        make = {"grain": grain_contenders, "streaming": streaming_contenders}[peer]
        self.num_documents, self._contenders = make(shards, Path(folder), batch_size)
        self._states: dict[tuple[str, int], Any] = {}

    def begun(self) -> dict[str, Any]:
        return {"documents": self.num_documents, "contenders": list(self._contenders)}

    def reach(self, contender: str, k: int) -> dict[str, Any]:
        walk = self._contenders[contender]()
        told = max(k - MOST_WALKED, 0) if walk.state_behind is not None else 0
        if walk.state_behind is not None and told:
            walk.load(walk.state_behind(told))
        for _ in range(k - told):
            next(walk.batches)
        self._states[contender, k] = walk.state()
        following = next(walk.batches)
        walk.close()
        return {"first": _text(following[0])}

    def resume(self, contender: str, k: int) -> dict[str, Any]:
        began, processor = time.perf_counter(), time.process_time()
        walk = self._contenders[contender]()
        walk.load(self._states[contender, k])
        batch = next(walk.batches)
        took = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - processor}
        walk.close()
        del walk
        gc.collect()
        return {**took, "first": _text(batch[0]), "size": len(batch)}


def _text(document: bytes | str) -> str:
    return document.decode() if isinstance(document, bytes) else document


def main() -> None:
    """Answer words from standard input on standard output."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    answers = Answers(**json.loads(sys.stdin.readline()))
    print(json.dumps(answers.begun()), file=out, flush=True)
    for line in sys.stdin:
        words = json.loads(line)
        answer = {"reach": answers.reach, "resume": answers.resume}[words.pop("do")](**words)
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
