"""What is each file of a run directory called?

Names and nothing else: no file is opened, listed or made here. Numbers are padded with zeros (attempt 4 digits, rank
5, steps 9, events 6) so that the byte order of names is the order of numbers; a number too large for its width simply
makes a longer name. Spans of steps are half-open, ``<first>-<stop>``.

``index/`` and ``notable/`` hold finished Parquet only; temporaries live in ``tmp/`` and nowhere else.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from dataguard.errors import UsageError

__all__ = ["Layout", "parse_attempt", "parse_rank", "parse_span"]

_SPAN = re.compile(r"(\d{9,})-(\d{9,})\.parquet")
_ATTEMPT = re.compile(r"attempt=(\d{4,})")
_RANK = re.compile(r"rank=(\d{5,})(?:\.frames)?")


def _count(what: str, number: int, width: int) -> str:
    if number < 0:
        raise UsageError(f"{what} {number} cannot be", allowed="0 or more")
    return f"{number:0{width}d}"


def _digest(digest: str) -> str:
    if not digest or not digest.isalnum():
        raise UsageError(f"{digest!r} is no digest, and no file can be named after it")
    return digest


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one run directory.

    >>> Layout(Path("runs/a")).hot_segment(1, 0, 10_000).as_posix()
    'runs/a/hot/attempt=0001/rank=00000/000010000.frames'
    """

    root: Path
    """The run directory itself."""
    spool: Path | None = None
    """A folder on a local disk that holds this run's hot files, where the run directory is far or slow."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(os.fspath(self.root)))
        if self.spool is not None:
            object.__setattr__(self, "spool", Path(os.fspath(self.spool)))

    # -- folders

    @property
    def journal(self) -> Path:
        """Folder of the event files."""
        return self.root / "journal"

    @property
    def tmp(self) -> Path:
        """Folder of every temporary."""
        return self.root / "tmp"

    @property
    def hot(self) -> Path:
        """Folder of the ranks' write-ahead records."""
        return (self.spool or self.root) / "hot"

    @property
    def hot_tmp(self) -> Path:
        """Folder of temporaries on the file system of `hot`."""
        return (self.spool or self.root) / "tmp"

    @property
    def index(self) -> Path:
        """Folder of sealed and compacted index files."""
        return self.root / "index"

    def index_attempt(self, attempt: int) -> Path:
        """Folder of one attempt's sealed and compacted files."""
        return self.index / self.attempt_name(attempt)

    def hot_attempt(self, attempt: int) -> Path:
        """Folder of one attempt's write-ahead records."""
        return self.hot / self.attempt_name(attempt)

    def hot_rank(self, attempt: int, rank: int) -> Path:
        """Folder of one rank's write-ahead records."""
        return self.hot_attempt(attempt) / self.rank_name(rank)

    def index_rank(self, attempt: int, rank: int) -> Path:
        """Folder of one rank's sealed files."""
        return self.index_attempt(attempt) / self.rank_name(rank)

    def notable_rank(self, attempt: int, rank: int) -> Path:
        """Folder of one rank's notable samples, until they are compacted."""
        return self.root / "notable" / self.attempt_name(attempt) / self.rank_name(rank)

    def seals_attempt(self, attempt: int) -> Path:
        """Folder of one attempt's seals: a file here is a rank that has had its one writer."""
        return self.root / "seals" / self.attempt_name(attempt)

    @property
    def streams(self) -> Path:
        """Folder of the run's named streams."""
        return self.root / "streams"

    def stream(self, name: str) -> Path:
        """``streams/NAME``: journal, plan, manifest and index of a named stream, laid out as those of a run."""
        return self.streams / name

    # -- parts of names

    @staticmethod
    def attempt_name(attempt: int) -> str:
        """``attempt=0001``."""
        return f"attempt={_count('attempt', attempt, 4)}"

    @staticmethod
    def rank_name(rank: int) -> str:
        """``rank=00000``."""
        return f"rank={_count('rank', rank, 5)}"

    @staticmethod
    def span_name(first: int, stop: int) -> str:
        """``000000000-000010000.parquet``, the steps ``first:stop``."""
        if not first < stop:
            raise UsageError(f"steps {first}:{stop} hold nothing", allowed="START:STOP with START below STOP")
        return f"{_count('step', first, 9)}-{_count('step', stop, 9)}.parquet"

    # -- the journal and the immutable copies

    def journal_event(self, number: int) -> Path:
        """Event files count from 1: ``journal/000001.json``."""
        return self.journal / f"{_count('event', number, 6)}.json"

    def manifest(self, digest: str) -> Path:
        """``manifest/<digest>.parquet``."""
        return self.root / "manifest" / f"{_digest(digest)}.parquet"

    def plan(self, digest: str) -> Path:
        """``plan/<digest>.json``."""
        return self.root / "plan" / f"{_digest(digest)}.json"

    def withheld(self, digest: str) -> Path:
        """``withheld/<digest>.parquet``: a list of shards and rows to withhold."""
        return self.root / "withheld" / f"{_digest(digest)}.parquet"

    def triage(self, what: str, digest: str) -> Path:
        """``triage/<what>-<digest>.json``: what an experiment or a canary found."""
        return self.root / "triage" / f"{what}-{_digest(digest)}.json"

    def policy(self, digest: str) -> Path:
        """``policy/<digest>.toml``."""
        return self.root / "policy" / f"{_digest(digest)}.toml"

    def profile(self, digest: str) -> Path:
        """``profile/<digest>.json``."""
        return self.root / "profile" / f"{_digest(digest)}.json"

    # -- the record

    def hot_segment(self, attempt: int, rank: int, first_step: int) -> Path:
        """``hot/attempt=0001/rank=00000/<first step>.frames``."""
        return self.hot_rank(attempt, rank) / f"{_count('step', first_step, 9)}.frames"

    def sealed(self, attempt: int, rank: int, first: int, stop: int) -> Path:
        """``index/attempt=0001/rank=00000/<first>-<stop>.parquet``."""
        return self.index_rank(attempt, rank) / self.span_name(first, stop)

    def compacted(self, attempt: int, first: int, stop: int) -> Path:
        """``index/attempt=0001/<first>-<stop>.parquet``, merged over ranks."""
        return self.index_attempt(attempt) / self.span_name(first, stop)

    def notable(self, attempt: int, first: int, stop: int, *, rank: int | None = None) -> Path:
        """``notable/attempt=0001/[rank=00000/]<first>-<stop>.parquet``, beside a compacted or a sealed file."""
        folder = self.root / "notable" / self.attempt_name(attempt)
        return (folder if rank is None else self.notable_rank(attempt, rank)) / self.span_name(first, stop)

    def exceptions(self, attempt: int, rank: int) -> Path:
        """``exceptions/attempt=0001/rank=00000.frames``."""
        return self.root / "exceptions" / self.attempt_name(attempt) / f"{self.rank_name(rank)}.frames"

    def seals(self, attempt: int, rank: int) -> Path:
        """``seals/attempt=0001/rank=00000.frames``; whoever makes it is the rank's one writer for ever."""
        return self.seals_attempt(attempt) / f"{self.rank_name(rank)}.frames"

    def compacted_seals(self, attempt: int) -> Path:
        """``seals/attempt=0001/compacted.frames``: digest and size of every compacted file."""
        return self.seals_attempt(attempt) / "compacted.frames"

    def halts_attempt(self, attempt: int) -> Path:
        """Folder of what ranks publish in an attempt to stop it."""
        return self.root / "halts" / self.attempt_name(attempt)

    def halt(self, attempt: int, stop_step: int, rank: int) -> Path:
        """``halts/attempt=0001/<stop step>.rank=00000.json``."""
        name = f"{_count('step', stop_step, 9)}.{self.rank_name(rank)}.json"
        return self.halts_attempt(attempt) / name

    def store(self, attempt: int, step: int, rank: int) -> Path:
        """``store/attempt=0001/step-000009000/rank=00000.safetensors.zst``."""
        step_name = f"step-{_count('step', step, 9)}"
        return self.store_attempt(attempt) / step_name / f"{self.rank_name(rank)}.safetensors.zst"

    def store_attempt(self, attempt: int) -> Path:
        """Folder of what is kept of one attempt."""
        return self.root / "store" / self.attempt_name(attempt)

    def store_settings(self, attempt: int, rank: int) -> Path:
        """``store/attempt=0001/rank=00000.json``: what the rank's store was told."""
        return self.store_attempt(attempt) / f"{self.rank_name(rank)}.json"

    def store_ledger(self, attempt: int, rank: int) -> Path:
        """``store/attempt=0001/rank=00000.frames``: what the rank's store let go of."""
        return self.store_attempt(attempt) / f"{self.rank_name(rank)}.frames"

    def telemetry_attempt(self, attempt: int) -> Path:
        """Folder of what the ranks of one attempt logged."""
        return self.root / "telemetry" / self.attempt_name(attempt)

    def telemetry(self, attempt: int, rank: int) -> Path:
        """``telemetry/attempt=0001/rank=00000.frames``."""
        return self.telemetry_attempt(attempt) / f"{self.rank_name(rank)}.frames"


def parse_span(name: str) -> tuple[int, int] | None:
    """The steps a sealed or compacted file's name says, ``None`` where it is no such name.

    >>> parse_span("000000000-000010000.parquet")
    (0, 10000)
    """
    match = _SPAN.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_attempt(name: str) -> int | None:
    """The number in ``attempt=0001``, ``None`` where it is no such name."""
    match = _ATTEMPT.fullmatch(name)
    return int(match[1]) if match else None


def parse_rank(name: str) -> int | None:
    """The number in ``rank=00000`` or ``rank=00000.frames``, ``None`` where it is no such name."""
    match = _RANK.fullmatch(name)
    return int(match[1]) if match else None
