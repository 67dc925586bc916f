"""What happened to this run, in which order, and can the account be trusted?

The journal is a folder of event files, numbered from 1, each linked to the one before by the SHA-256 of its raw bytes.
Nothing is edited; order is the number.

To append: read the chain (refused where it is damaged), let the caller make the event from what stands there, write it
under a temporary name, fsync, `link()` it to the next number. Where that number is taken, the newcomer is read and the
caller makes the event again: whatever was checked is checked against what really precedes the event.

Reading goes on past damage and says what is wrong; appending is refused there. A removed tail leaves an unbroken
chain, so it shows only against a `Head` that somebody else kept: loader state and every frames header do.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dataguard.errors import EnvironmentFailed, RunDamaged
from dataguard.run.atomic import publish_new
from dataguard.run.events import Event, EventFile, EventUnreadableError, decode_event, encode_event
from dataguard.run.layout import Layout
from dataguard.version import __version__

__all__ = ["Entry", "Head", "Journal", "JournalProblem", "JournalRead"]

ProblemKind = Literal["gap", "mismatch", "unreadable", "tail-removed"]
_NAME = re.compile(r"([0-9]{6,})\.json\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest event somebody has seen. Number 0 is the head of an empty journal."""

    number: int
    sha256: str
    """Of the raw bytes of that event file, hexadecimal; empty for number 0."""

    def __str__(self) -> str:
        return f"{self.number}:{self.sha256[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event as it stands in the journal."""

    number: int
    event: Event
    time: str
    """UTC, ISO 8601: for people only."""
    by: str
    dataguard: str
    sha256: str
    """Of the raw bytes of its file, hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalProblem:
    """Something that makes the account doubtful."""

    number: int
    """The event it concerns."""
    kind: ProblemKind
    message: str
    """One line: the file, what is wrong, what was expected and found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRead:
    """Everything that could be read, in order, and what is wrong with it."""

    entries: tuple[Entry, ...]
    """Readable events by rising number; with no problems they are 1, 2, 3, ..."""
    problems: tuple[JournalProblem, ...]
    head: Head

    def require_sound(self, what: str) -> None:
        """RunDamaged, naming every problem, where the journal cannot be trusted enough for `what`."""
        if self.problems:
            raise RunDamaged(
                f"{what} is refused: the journal is damaged",
                found="; ".join(problem.message for problem in self.problems),
                todo="restore the event files from a copy; `dataguard verify` lists what is wrong",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """One event file as it was when it was read."""

    signature: tuple[int, ...]
    sha256: str = ""
    prev: str = ""
    entry: Entry | None = None
    why: str = ""
    """Why there is no entry."""


class Journal:
    """The event files of one run. Several processes may append at once; threads may share it for reading.

    Parameters
    ----------
    layout
        Names of the run directory.
    by
        Who writes: ``user@host``; by default who runs this process.
    clock
        Unix time in ns; for people only.
    """

    def __init__(self, layout: Layout, *, by: str | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        self.layout = layout
        self._by = by or writer_name()
        self._clock = clock
        self._cache: dict[int, _Cached] = {}
        self._asked = (0, "")

    def beside(self, layout: Layout) -> Journal:
        """Of another folder, by the same writer and clock."""
        return Journal(layout, by=self._by, clock=self._clock)

    def read(self) -> JournalRead:
        """All events. Problems are in the answer, never raised; a missing journal is an empty one."""
        listed = self._listed()
        top = max(listed, default=0)
        # What was linked since the folder was listed (or a far file system has not listed yet) opens by its name.
        while self.next_exists(top + 1):
            top += 1
            listed[top] = ()
        entries: list[Entry] = []
        problems: list[JournalProblem] = []
        before: str | None = ""
        missing_from: int | None = None
        for number in range(1, top + 1):
            if number not in listed and not self.next_exists(number):
                missing_from = missing_from or number
                before = None
                continue
            if missing_from is not None:
                problems.append(_gap(missing_from, number))
                missing_from = None
            cached = self._load(number, listed.get(number, ()))
            if cached.entry is None:
                message = f"{self._name(number)}: {cached.why}"
                problems.append(JournalProblem(number=number, kind="unreadable", message=message))
                before = cached.sha256 or None
                continue
            if before is not None and cached.prev != before:
                message = (
                    f"{self._name(number)} follows a file with SHA-256 {cached.prev[:16] or 'none'}, "
                    f"the one before it has {before[:16] or 'none'}"
                )
                problems.append(JournalProblem(number=number, kind="mismatch", message=message))
            before = cached.sha256
            entries.append(cached.entry)
        head = Head(number=top, sha256=self._cache[top].sha256 if top else "")
        return JournalRead(entries=tuple(entries), problems=tuple(problems), head=head)

    def head(self) -> Head:
        """The newest event."""
        return self.read().head

    def next_exists(self, number: int) -> bool:
        """Whether event `number` stands: one `stat`, what a writer asks before each frame to see if it is fenced."""
        asked = self._asked
        if asked[0] != number:
            self._asked = asked = (number, os.fspath(self.layout.journal_event(number)))
        path = asked[1]
        try:
            os.stat(path)  # noqa: PTH116 - asked before every frame: building a path costs ten times as much
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unreachable(Path(path), error) from error
        return True

    def check(self, heads: Iterable[Head] = ()) -> tuple[JournalProblem, ...]:
        """Every problem, those included that only heads kept elsewhere can show: a removed or exchanged tail."""
        read = self.read()
        digests = {number: cached.sha256 for number, cached in self._cache.items() if number <= read.head.number}
        problems = list(read.problems)
        for head in sorted(set(heads), key=lambda head: (head.number, head.sha256)):
            problem = _against(head, read, digests)
            if problem is not None:
                problems.append(problem)
        return tuple(problems)

    def append(self, event: Event | Callable[[JournalRead], Event], *, by: str | None = None) -> Entry:
        """Write one event after all that stand, durably, and return it as it stands.

        Parameters
        ----------
        event
            The event, or a function that makes it from all that stands before it, and raises where it may not be
            written. The function is called again whenever another writer came first.
        by
            Who writes this one; default whoever the journal was opened by.

        Raises
        ------
        RunDamaged
            The journal has a gap or a mismatch: nothing may be built on it.
        WriteFailed
            The event could not be made durable; it does not stand.
        """
        while True:
            read = self.read()
            read.require_sound("appending an event")
            number = read.head.number + 1
            made = event(read) if callable(event) else event
            now = self._clock()
            moment = datetime.fromtimestamp(now // 10**9, tz=UTC).replace(microsecond=now % 10**9 // 1000)
            document = EventFile(
                number=number,
                prev=read.head.sha256 or None,
                time=moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                by=by or self._by,
                dataguard=__version__,
                event=made,
            )
            raw = encode_event(document)
            if publish_new(self.layout.journal_event(number), raw, tmp=self.layout.tmp):
                return _entry(document, hashlib.sha256(raw).hexdigest())

    def _listed(self) -> dict[int, tuple[int, ...]]:
        """The event files that the folder lists, each with what tells whether it was changed since it was read."""
        listed: dict[int, tuple[int, ...]] = {}
        try:
            with os.scandir(self.layout.journal) as found:
                for item in found:
                    if match := _NAME.match(item.name):
                        linked = item.is_symlink()
                        listed[int(match.group(1))] = () if linked else _signature(item.stat(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return listed
        except OSError as error:
            raise _unreachable(self.layout.journal, error) from error
        return listed

    def _name(self, number: int) -> str:
        path = self.layout.journal_event(number)
        return f"{path.parent.name}/{path.name}"

    def _load(self, number: int, signature: tuple[int, ...]) -> _Cached:
        """The event file, decoded; again only where its inode, size or times are others than when it was read."""
        known = self._cache.get(number)
        if known is not None and signature and known.signature == signature:
            return known
        try:
            with self.layout.journal_event(number).open("rb") as file:
                signature = _signature(os.fstat(file.fileno()))
                raw = file.read()
        except OSError as error:
            loaded = _Cached(signature=(), why=f"it cannot be read: {error.strerror}")
        else:
            loaded = _decoded(number, raw, signature)
        self._cache[number] = loaded
        return loaded


def _decoded(number: int, raw: bytes, signature: tuple[int, ...]) -> _Cached:
    sha256 = hashlib.sha256(raw).hexdigest()
    try:
        document = decode_event(raw)
    except EventUnreadableError as error:
        return _Cached(signature=signature, sha256=sha256, why=str(error))
    if document.number != number:
        return _Cached(signature=signature, sha256=sha256, why=f"it says it is event {document.number}")
    return _Cached(signature=signature, sha256=sha256, prev=document.prev or "", entry=_entry(document, sha256))


def _entry(document: EventFile, sha256: str) -> Entry:
    return Entry(
        number=document.number,
        event=document.event,
        time=document.time,
        by=document.by,
        dataguard=document.dataguard,
        sha256=sha256,
    )


def _signature(state: os.stat_result) -> tuple[int, ...]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _unreachable(path: Path, error: OSError) -> EnvironmentFailed:
    return EnvironmentFailed(f"the journal cannot be looked at: {path}", found=error.strerror or str(error))


def _gap(first: int, stop: int) -> JournalProblem:
    gone = f"event {first} is" if stop == first + 1 else f"events {first} to {stop - 1} are"
    return JournalProblem(number=first, kind="gap", message=f"{gone} missing, event {stop} stands")


def _against(head: Head, read: JournalRead, digests: dict[int, str]) -> JournalProblem | None:
    """What a head kept elsewhere shows about the chain that stands now."""
    if head.number > read.head.number:
        message = (
            f"event {head.number} was seen, the journal now ends with event {read.head.number}: its tail was removed"
        )
        return JournalProblem(number=head.number, kind="tail-removed", message=message)
    if head.number and digests.get(head.number, head.sha256) != head.sha256:
        message = (
            f"event {head.number} was seen with SHA-256 {head.sha256[:16]}, "
            f"it now has {digests[head.number][:16]}: it was exchanged"
        )
        return JournalProblem(number=head.number, kind="mismatch", message=message)
    return None


def writer_name() -> str:
    """``user@host`` of this process; the user's number where it has no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    return f"{user}@{platform.node() or 'unknown'}"
