"""How are the tensors of a past step made again?

The samples are rebuilt as any replay rebuilds them; then the transform makes tensors of them in the way a worker did
(`dataguard.torch.making`), so that equal records give equal tensors, and the digest over names, dtypes, shapes and
bytes is held against the index: rebuilt exactly means bit by bit.

Which function it was the attempt says by name and by digests of its source, state and tokenizer. It is not imported
because a record names it: somebody gives it, or names it on the command line. What comes with dataguard is found by
itself. Where the one given is not the one recorded, a note says what differs, with both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from dataguard.core.tensors import NamedTensor, Tensors
from dataguard.errors import TransformFailed, UsageError
from dataguard.replay.answers import ReplayAnswer
from dataguard.replay.lookup import Lookup
from dataguard.replay.rebuild import Rebuilder, Rebuilt
from dataguard.replay.replay import Remake, Remaking, replay_step
from dataguard.run.events import TransformIdentity
from dataguard.run.run import Run
from dataguard.torch.making import Collate, Maker, Recipe, Transform
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.tensors import DTYPES, named_tensors
from dataguard.torch.transform import identity_of, name_of
from dataguard.torch.transforms import IGNORE_INDEX, ByteTransform, WindowTransform, settings_of

__all__ = ["ReplayedTensors", "built_in", "imported", "rebuild_tensors", "remaking", "torch_tensors"]

_LABELS, _IGNORE = "labels", "ignore index"
_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayedTensors:
    """One step with its tensors."""

    answer: ReplayAnswer
    """Status, digests as rebuilt and as recorded, notes."""
    microbatches: tuple[TensorMicrobatch, ...]
    """In order of rank and microbatch; those whose tensors are known (all, where `answer.status` is ``exact``)."""


def rebuild_tensors(
    run: Run,
    step: int,
    *,
    attempt: int | None = None,
    rank: int | None = None,
    transform: Transform | None = None,
    collate: Collate | None = None,
    roots: Mapping[str, str] | None = None,
) -> ReplayedTensors:
    r"""Make the tensors of a step again, and compare them bit by bit with what was delivered.

    Parameters
    ----------
    step
        In the trainer's labels.
    attempt
        The lineage; default the newest leaf's.
    rank
        One rank alone; default all of them.
    transform, collate
        As `GuardedLoader` was given them. What comes with dataguard need not be given.
    roots
        Where sources lie now, where that is another place than the run remembers.

    Raises
    ------
    NotInRun
        No attempt on the lineage delivered the step.
    UsageError
        Microbatches were put together by a collate function, and none is given.
    TransformFailed
        The transform or the collate function raised an error.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dataguard import Corpus, Geometry, Plan
    >>> from dataguard.corpus import build_manifest_file
    >>> from dataguard.torch import GuardedLoader
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "web").mkdir()
    >>> _ = (here / "web" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    >>> _ = build_manifest_file([str(here / "web")], here / "M.parquet")
    >>> run = Run.open(here / "run", plan=Plan(Corpus.open(here / "M.parquet"), seed=17, global_batch=2))
    >>> geometry = Geometry(world_size=1, microbatch_size=2)
    >>> with GuardedLoader(run, geometry=geometry, transform=ByteTransform(8), steps=1) as loader:
    ...     (delivered,) = loader
    >>> again = rebuild_tensors(run, 0)
    >>> again.answer.status, torch.equal(again.microbatches[0]["input_ids"], delivered["input_ids"])
    ('exact', True)
    """
    answer, rebuilt = replay_step(
        Lookup(run), step, attempt=attempt, rank=rank, roots=roots, remaking=remaking(transform, collate)
    )
    identity = run.begun(answer.attempt).transform or None
    labels, ignore_index = _labels_of(identity)
    microbatches = tuple(_delivered(each, labels, ignore_index) for each in rebuilt if each.tensors is not None)
    return ReplayedTensors(answer=answer, microbatches=microbatches)


def remaking(transform: Transform | None = None, collate: Collate | None = None) -> Remaking:
    """For `dataguard.replay.replay.replay_step`: makes tensors of an attempt's samples with these functions.

    Without a transform, with the one of dataguard that the attempt names; where it names another, nothing is made.
    """

    def of_attempt(rebuilder: Rebuilder) -> Remake | None:
        recorded = rebuilder.transform
        assert recorded is not None, "the attempt delivered tensors"
        function = transform or built_in(recorded)
        if function is None or (transform is None and collate is None and "collate" in recorded.parts):
            return None
        if collate is None and "collate" in recorded.parts:
            raise UsageError(
                f"the microbatches of attempt {rebuilder.attempt.number} were put together by a function of their own",
                found=recorded.parts["collate"],
                todo="give it as well: collate=, or --collate MODULE:NAME",
            )
        labels, ignore_index = _labels_of(recorded)
        recipe = Recipe(
            transform=function,
            collate=collate,
            label_names=labels,
            ignore_index=ignore_index,
            first_label=rebuilder.first_label,
        )
        given = identity_of(
            function,
            version=recorded.version,
            collate=collate,
            settings={_LABELS: ",".join(labels), _IGNORE: ignore_index, **settings_of(function)},
        )
        maker = Maker(recipe, reader=rebuilder.reader, stream=rebuilder.stream)

        def tensors(rebuilt: Rebuilt) -> Tensors:
            try:
                return named_tensors(maker.make(rebuilt.microbatch, rebuilt.planned).tensors)
            except TransformFailed as error:
                error.todo = "mend it, or leave --transform out: samples are then compared without their tensors"
                raise

        return Remake(tensors=tensors, notes=_differences(recorded, given))

    return of_attempt


def built_in(recorded: TransformIdentity) -> Transform | None:
    """The transform of dataguard that an attempt names, as it was set; None where it names another."""
    ignore_index = int(recorded.parts.get(_IGNORE, IGNORE_INDEX))
    if recorded.name == name_of(WindowTransform()):
        return WindowTransform(ignore_index=ignore_index)
    if recorded.name == name_of(ByteTransform(1)) and "seq_len" in recorded.parts:
        return ByteTransform(int(recorded.parts["seq_len"]), ignore_index=ignore_index)
    return None


def imported(name: str) -> Any:
    """What ``MODULE:NAME`` names, a class as an object of it; modules of the working directory are found as well.

    Raises
    ------
    UsageError
        There is no such module or name, or importing it failed.
    """
    module, colon, attributes = name.partition(":")
    if not colon or not module or not attributes:
        raise UsageError(f"{name!r} names no function", allowed="MODULE:NAME, as in train:tokenize")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        value: Any = import_module(module)
        for attribute in attributes.split("."):
            value = getattr(value, attribute)
        return value() if isinstance(value, type) else value
    except Exception as error:
        raise UsageError(
            f"{name} cannot be had",
            found=f"{type(error).__name__}: {error}",
            todo="name a function at the top level of a module that can be imported from here, and keep what trains "
            'behind if __name__ == "__main__":',
        ) from error
    finally:
        sys.path.remove(here)


def torch_tensors(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Tensors of memory of their own, in the order of their names.

    >>> torch_tensors({"x": NamedTensor(dtype="BOOL", shape=(1, 2), data=bytes([1, 0]))})["x"]
    tensor([[ True, False]])
    """
    return {name: _tensor(tensors[name]) for name in sorted(tensors)}


def _tensor(named: NamedTensor) -> torch.Tensor:
    dtype = next(kind for kind, name in DTYPES.items() if name == named.dtype)
    if not named.num_bytes:
        return torch.empty(named.shape, dtype=dtype)
    return torch.frombuffer(bytearray(named.data), dtype=torch.uint8).view(dtype).reshape(named.shape)


def _delivered(rebuilt: Rebuilt, labels: tuple[str, ...], ignore_index: int) -> TensorMicrobatch:
    assert rebuilt.tensors is not None
    tensors = torch_tensors(rebuilt.tensors)
    num_loss_tokens = int((tensors[labels[0]] != ignore_index).sum()) if labels and labels[0] in tensors else None
    return TensorMicrobatch.delivered(tensors, rebuilt.microbatch, num_loss_tokens=num_loss_tokens)


def _labels_of(identity: TransformIdentity | None) -> tuple[tuple[str, ...], int]:
    """Names of the labels, and what a label is that does not count, as the attempt recorded them."""
    parts = {} if identity is None else identity.parts
    names = tuple(name for name in parts.get(_LABELS, "labels").split(",") if name)
    return names, int(parts.get(_IGNORE, IGNORE_INDEX))


def _differences(recorded: TransformIdentity, given: TransformIdentity) -> tuple[str, ...]:
    """What of the identity of a transform is another one; nothing where it is the same."""
    told = []
    theirs, ours = recorded.name, given.name
    if theirs != ours and not (theirs.startswith("__main__:") and theirs.partition(":")[2] == ours.partition(":")[2]):
        told.append(f"{theirs} recorded, {ours} given")
    facts = [("source", recorded.source, given.source)]
    facts += [(name, recorded.parts.get(name), given.parts.get(name)) for name in {**recorded.parts, **given.parts}]
    for name, was, now in facts:
        if was != now and not _is_main(name, was, now):
            told.append(f"{name} {_short(was)} recorded, {_short(now)} given")
    if not told:
        return ()
    return (f"this is not the transform that attempt recorded: {'; '.join(told)}",)


def _is_main(name: str, was: str | None, now: str | None) -> bool:
    """Whether a function is the same, which a script had that was run and not imported."""
    if name != "collate" or was is None or now is None or not was.startswith("__main__:"):
        return False
    return was.partition(":")[2] == now.partition(":")[2]


def _short(value: str | None) -> str:
    if value is None:
        return "none"
    return value[:_SHOWN] if len(value) == 64 else value
