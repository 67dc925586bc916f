"""Every exception of dataguard, and the exit code each one ends a command with.

::

    DataguardError                    1  the answer is no
    ├── AnswerNo                      1  verification failed, digests differ, the gate failed
    ├── UsageError (ValueError)       2  what was asked for cannot be asked for
    │   ├── GeometryError             2  world size, microbatch size and global batch do not fit
    │   ├── PlanError                 2  a plan, mixture or batch size that cannot be
    │   ├── SpanError                 2  a range that is empty, reversed or negative
    │   ├── AttemptError              2  a fork, a state or an amendment that does not fit the run
    │   ├── UnknownSignal             2  a signal that nobody computes
    │   ├── PolicyError               2  a policy that cannot be: every problem of it, with its line
    │   └── NotInRun (LookupError)    2  a step, shard, row or event that the run does not hold
    ├── InputError                    3  input cannot be read or is damaged
    │   ├── ShardDamaged              3  a shard (or one of its rows) cannot be read
    │   ├── ShardChanged              3  a shard holds other bytes than the manifest says
    │   ├── ManifestDamaged           3  a manifest cannot be trusted
    │   └── RunDamaged                3  a journal, frames file or sealed file cannot be trusted
    └── EnvironmentFailed (OSError)   4  disk full, no permission, a worker died
        ├── WriteFailed               4  bytes could not be made durable; nothing was handed over
        ├── UnfitFileSystem           4  the run directory's file system lacks link, rename or exclusive create
        ├── WriterConflict            4  another writer owns this rank, or a newer attempt fenced this one
        ├── RanksDisagree             4  ranks of one launch differ in seed, plan, geometry or start step
        ├── RankMissing               4  a rank did not appear in time, or is gone
        ├── TransformFailed           4  the user's own function failed on a sample
        └── WorkerDied                4  a process that reads ahead of the trainer died, or answers no more

A message says up to four things, each on a line of its own: what is wrong, what was found, what is allowed, what to do
next.

>>> print(GeometryError("448 ranks cannot share a global batch of 512", allowed="a world size that divides 512",
...                     todo="use --world-size 256 or 512"))
448 ranks cannot share a global batch of 512
  allowed: a world size that divides 512
  next: use --world-size 256 or 512
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AnswerNo",
    "AttemptError",
    "DataguardError",
    "EnvironmentFailed",
    "GeometryError",
    "InputError",
    "ManifestDamaged",
    "NotInRun",
    "PlanError",
    "PolicyError",
    "RankMissing",
    "RanksDisagree",
    "RunDamaged",
    "ShardChanged",
    "ShardDamaged",
    "SpanError",
    "TransformFailed",
    "UnfitFileSystem",
    "UnknownSignal",
    "UsageError",
    "WorkerDied",
    "WriteFailed",
    "WriterConflict",
]


class DataguardError(Exception):
    """The root of the tree; carries the exit code of a command that ends with it.

    Parameters
    ----------
    asked
        What is wrong, with the value that was asked for: one line.
    found, allowed, todo
        What was found instead, what would be accepted, and what to do next; each is left out where there is nothing
        to say.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self, asked: str, *, found: str | None = None, allowed: str | None = None, todo: str | None = None
    ) -> None:
        super().__init__(asked)
        self.asked = asked
        self.found = found
        self.allowed = allowed
        self.todo = todo

    def __str__(self) -> str:
        lines = [self.asked]
        for label, text in (("found", self.found), ("allowed", self.allowed), ("next", self.todo)):
            if text:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_revive, (type(self), self.asked, self.found, self.allowed, self.todo))


def _revive(
    kind: type[DataguardError], asked: str, found: str | None, allowed: str | None, todo: str | None
) -> DataguardError:
    """Unpickle an error in a parent process with all four parts intact."""
    return kind(asked, found=found, allowed=allowed, todo=todo)


class AnswerNo(DataguardError):
    """The question was answered, and the answer is no."""


class UsageError(DataguardError, ValueError):
    """What was asked for cannot be asked for."""

    exit_code = 2


class GeometryError(UsageError):
    """World size, microbatch size and global batch do not fit each other."""


class PlanError(UsageError):
    """A plan, mixture, weight or batch size that cannot be."""


class SpanError(UsageError):
    """A range that is empty, reversed or negative."""


class AttemptError(UsageError):
    """A fork, a loader state or an amendment that does not fit the run."""


class UnknownSignal(UsageError):
    """A signal that is not in the registry."""


class PolicyError(UsageError):
    """A policy that cannot be: unknown signals, bounds outside a signal's range, rules that can never fire."""


class NotInRun(UsageError, LookupError):
    """A step, shard, row or event that the run (or manifest) does not hold."""


class InputError(DataguardError):
    """Input cannot be read, or is damaged."""

    exit_code = 3


class ShardDamaged(InputError):
    """A shard, or one of its rows, cannot be read."""


class ShardChanged(InputError):
    """A shard holds other bytes than those the manifest was built over."""


class ManifestDamaged(InputError):
    """A manifest file cannot be trusted."""


class RunDamaged(InputError):
    """A journal event, frames file or sealed file cannot be trusted."""


class EnvironmentFailed(DataguardError, OSError):
    """The environment failed: disk full, no permission, a worker died."""

    exit_code = 4


class WriteFailed(EnvironmentFailed):
    """Bytes could not be made durable; nothing was handed over."""


class UnfitFileSystem(EnvironmentFailed):
    """The run directory lies on a file system without link, rename or exclusive create."""


class WriterConflict(EnvironmentFailed):
    """Another writer owns this rank's files, or a newer attempt has fenced this one."""


class RanksDisagree(EnvironmentFailed):
    """Ranks of one launch differ in seed, plan, geometry or start step."""


class RankMissing(EnvironmentFailed):
    """A rank of the launch did not appear in time, or is gone."""


class TransformFailed(EnvironmentFailed):
    """The user's transform or collate function failed on a sample, whose address the message names."""


class WorkerDied(EnvironmentFailed):
    """A process that reads ahead of the trainer died, or answers no more."""
