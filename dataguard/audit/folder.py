"""What lies in an audit's folder, whose is it, and how far has it come?

::

    AUDIT/
      audit.json            what this is an audit of and by what: the header; written before the first block is read
      manifest.parquet      the manifest, built here or copied
      work/parts/000/       parts of tasks that are done, until the audit is complete and no storage failed it
      signals/              a row a scored sample
      withhold.parquet      rows and shards that a plan should leave out
      shards.parquet        the account of every shard, rule by rule
      duplicates.parquet    every record that is there before
      against/, overlap.parquet  manifests of evaluation data, and every record that is on both sides (`against`)
      profile.json          what is usual in each source
      summary.json          the answer; written last: an audit is complete when it is there
      report.html           the answer as a page

Files come under their names whole or not at all (run/atomic.py). An audit that was begun is gone on with only by one
that asks for the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from dataguard.errors import RunDamaged, UsageError, WriterConflict
from dataguard.run.atomic import Content, make_folders, publish, remove_durably, write_failed
from dataguard.run.locks import try_lock

__all__ = ["HEADER_VERSION", "AgainstAsked", "AuditFolder", "AuditHeader", "State"]

HEADER_VERSION = 1

State = Literal["new", "begun", "complete"]
_PER_FOLDER = 1000


class AgainstAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Evaluation data that the corpus is held against."""

    asked: str
    """As it was named."""
    manifest: str
    """Digest of its manifest."""
    unreachable: tuple[tuple[str, str], ...] = ()
    """Paths that its scan could not look into, and why."""

    def __str__(self) -> str:
        return f"{self.asked} ({self.manifest[:16]})"


class AuditHeader(msgspec.Struct, frozen=True, kw_only=True):
    """``audit.json``: all that the answer of an audit depends on, beside the bytes of the shards."""

    version: int = HEADER_VERSION
    asked: tuple[str, ...]
    """The paths that were scanned, as typed; none where a manifest was given."""
    scan: dict[str, int | str]
    """What the scan of paths was told."""
    format_name: str
    """The format that every file was read as; empty for whatever each file is."""
    unreachable: tuple[tuple[str, str], ...]
    """Paths that the scan could not look into, and why."""
    manifest: str
    """Digest of the manifest, SHA-256."""
    policy: str
    """Name of the policy."""
    policy_digest: str
    policy_text: str
    """policy.toml as written."""
    profile: str | None
    """Digest of the reference profile that was given; null for one of this audit's own signals."""
    baseline: str | None
    """Digest of the profile of an earlier audit."""
    sample: str
    """Share of the corpus that is looked at, as a fraction."""
    seq_len: int
    """Tokens of a window, the sample of a token shard."""
    vocab_size: int | None
    weights: dict[str, str]
    """Mixture weights that were asked for, as typed."""
    fail_on: tuple[str, ...]
    task_bytes: int
    signals: dict[str, int]
    """Signal -> version of its definition."""
    against: tuple[AgainstAsked, ...] | msgspec.UnsetType = msgspec.UNSET
    """What the corpus is held against; left out where it is nothing."""


class AuditFolder:
    """The folder of one audit."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.work = self.path / "work"
        self.tmp = self.work / "tmp"
        self.header = self.path / "audit.json"
        self.manifest = self.path / "manifest.parquet"
        self.summary = self.path / "summary.json"
        self.profile = self.path / "profile.json"
        self.withhold = self.path / "withhold.parquet"
        self.shards = self.path / "shards.parquet"
        self.duplicates = self.path / "duplicates.parquet"
        self.signals = self.path / "signals"
        self.report = self.path / "report.html"
        self.against = self.path / "against"
        self.overlap = self.path / "overlap.parquet"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder where it is missing, and hold it: no other process audits into it meanwhile.

        One that was made for nothing, and is still empty at the end, is taken away again.

        Raises
        ------
        WriterConflict
            Another process does.
        WriteFailed
            It cannot be made.
        """
        stood = self.path.exists()
        make_folders(self.path)
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise write_failed(self.path, error, doing="open") from error
        try:
            if not try_lock(descriptor, self.path):
                raise WriterConflict(
                    f"another process is auditing into {self.path}", todo="wait for it, or name another folder"
                )
            yield
        finally:
            if not stood:
                with contextlib.suppress(OSError):  # it holds something, as it should
                    self.path.rmdir()
            os.close(descriptor)

    def state(self, *, resume: bool) -> State:
        """How far it has come.

        Raises
        ------
        UsageError
            It holds something and `resume` was not asked for, or it holds something else than an audit.
        """
        if self.summary.exists():
            state: State = "complete"
        elif self.header.exists() or self._is_scanning():
            state = "begun"
        elif any(self.path.iterdir()):
            raise UsageError(
                f"{self.path} is no folder of an audit",
                found=", ".join(sorted(entry.name for entry in self.path.iterdir())[:5]),
                todo="name a new folder with -o",
            )
        else:
            return "new"
        if not resume:
            told = "holds a complete audit" if state == "complete" else "holds an audit that was interrupted"
            todo = (
                "name another folder, or give --resume to have its answer again"
                if state == "complete"
                else "give --resume to go on with it"
            )
            raise UsageError(f"{self.path} {told}", todo=todo)
        return state

    def _is_scanning(self) -> bool:
        return self.manifest.exists() or self.manifest.with_name(self.manifest.name + ".building").exists()

    def read_header(self) -> AuditHeader | None:
        """The header; None where the audit was interrupted before there was one."""
        try:
            content = self.header.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunDamaged(f"{self.header} cannot be read", found=error.strerror) from error
        try:
            return msgspec.json.decode(content, type=AuditHeader)
        except msgspec.MsgspecError as error:
            raise RunDamaged(
                f"{self.header} is no header of an audit", found=str(error), todo="name a new folder with -o"
            ) from error

    def begin(self, header: AuditHeader) -> None:
        """Write the header, or see that the one that stands asks for the same.

        Raises
        ------
        UsageError
            It asks for something else; the message says what differs.
        """
        stands = self.read_header()
        if stands is None:
            content = msgspec.json.format(msgspec.json.encode(header, order="sorted"), indent=2) + b"\n"
            self.publish(self.header, content)
            return
        if stands == header:
            return
        differ = [name for name in AuditHeader.__struct_fields__ if getattr(stands, name) != getattr(header, name)]
        # what is said by another of them is not said again
        beside = {"policy_text", "signals", *(["policy_digest"] if "policy" in differ else [])}
        shown = [name for name in differ if name not in beside] or differ
        names = {name: _WORDS.get(name, name.replace("_", " ")) for name in shown}
        raise UsageError(
            f"the audit in {self.path} is of something else: {', '.join(names.values())}",
            found="; ".join(
                f"{word} {_shown(getattr(header, name), getattr(stands, name))}" for name, word in names.items()
            ),
            allowed="; ".join(
                f"{word} {_shown(getattr(stands, name), getattr(header, name))}" for name, word in names.items()
            ),
            todo="ask for the same to go on, or name another folder with -o",
        )

    def part(self, number: int) -> Path:
        """Where the part of a task lies."""
        return self.work / "parts" / f"{number // _PER_FOLDER:03d}" / f"{number:06d}.parquet"

    def parts_done(self) -> set[int]:
        """Numbers of the tasks whose parts are there."""
        return {int(path.stem) for path in (self.work / "parts").glob("*/*.parquet")}

    def forget(self, parts: Sequence[Path]) -> None:
        """Remove parts that are to be made again, and before them the answer that was made of them."""
        if not parts:
            return
        for path in (self.summary, self.report, *sorted(self.signals.glob("*.parquet")), *parts):
            remove_durably(path)

    def publish(self, path: Path, content: Content) -> None:
        """Write a file of the audit, whole or not at all; see `run.atomic.publish`."""
        publish(path, content, tmp=self.tmp)

    def sweep(self) -> None:
        """Remove temporaries that a killed process left; only whoever holds the folder may."""
        shutil.rmtree(self.tmp, ignore_errors=True)

    def leave(self) -> None:
        """Remove what lies in a folder of which no audit was begun: the manifest."""
        self.manifest.unlink(missing_ok=True)
        shutil.rmtree(self.against, ignore_errors=True)
        shutil.rmtree(self.work, ignore_errors=True)

    def tidy(self) -> None:
        """Remove the parts: the audit is complete."""
        shutil.rmtree(self.work, ignore_errors=True)


_WORDS = {"asked": "paths", "format_name": "format", "scan": "options of the scan"}
"""What members of the header are called where people read of them, if it is not their name."""


def _shown(value: object, other: object) -> str:
    """A member in words; of a table, the entries that differ from those of the other."""
    if isinstance(value, dict) and isinstance(other, dict):
        shown = ", ".join(f"{name} {each}" for name, each in value.items() if other.get(name) != each)
    elif isinstance(value, tuple | list):
        shown = ", ".join(" ".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in value)
    else:
        shown = "" if value is None or value is msgspec.UNSET else str(value)
    return (shown if len(shown) <= 80 else shown[:77] + "...") or "none"
