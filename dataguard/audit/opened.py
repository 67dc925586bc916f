"""How does one look at an audit from Python: its answer, and its tables as polars frames?

`open_audit` opens a folder that ``dataguard audit`` wrote. The answer is read when it is asked for; tables are scanned
lazily, so that of billions of rows only what a query asks for is read. polars does not verify the checksums of pages;
whoever doubts a disk reads with pyarrow, ``page_checksum_verification=True``.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dataguard.audit.folder import AuditFolder, AuditHeader
from dataguard.core.notebook import card, guarded
from dataguard.errors import RunDamaged, UsageError

if TYPE_CHECKING:
    import polars as pl

    from dataguard.audit.documents import AuditSummary

__all__ = ["Audit", "open_audit"]


class Audit:
    """An audit's folder, opened; made by `open_audit`. Nothing in it is ever written."""

    def __init__(self, folder: AuditFolder) -> None:
        self._folder = folder

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def is_complete(self) -> bool:
        """Whether it has its answer, which is written last."""
        return self._folder.summary.exists()

    @cached_property
    def header(self) -> AuditHeader:
        """What was asked for.

        Raises
        ------
        RunDamaged
            It cannot be read.
        """
        header = self._folder.read_header()
        if header is None:
            raise RunDamaged(f"the audit in {self.path} was interrupted before it had a header", todo=_RESUME)
        return header

    @cached_property
    def summary(self) -> AuditSummary:
        """The answer.

        Raises
        ------
        RunDamaged
            The audit was interrupted and has none yet, or it cannot be read.
        """
        from dataguard.audit.run import read_summary

        if not self.is_complete:
            raise RunDamaged(f"the audit in {self.path} was interrupted, so it has no answer", todo=_RESUME)
        return read_summary(self._folder.summary)

    def signals_frame(self) -> pl.LazyFrame:
        """A row a scored sample: source, shard, row, digest, content_bytes, verdict, rules, and a column a signal.

        Raises
        ------
        RunDamaged
            It was interrupted before the table was whole.
        """
        import polars as pl

        self._require_answer()
        paths = sorted(self._folder.signals.glob("*.parquet"))
        if not paths:
            raise RunDamaged(f"the audit in {self.path} has no signals", found=f"no file in {self._folder.signals}")
        return pl.scan_parquet(paths)

    def withhold_frame(self) -> pl.LazyFrame:
        """What a plan should leave out: shard, row (null for the whole shard), verdict, rules."""
        return self._scanned(self._folder.withhold)

    def shards_frame(self) -> pl.LazyFrame:
        """The account of every shard, rule by rule."""
        return self._scanned(self._folder.shards)

    def duplicates_frame(self) -> pl.LazyFrame:
        """Every record that stands, byte for byte, before it in the corpus, and where."""
        return self._scanned(self._folder.duplicates)

    def __repr__(self) -> str:
        return f"<Audit {str(self.path)!r}{'' if self.is_complete else ' interrupted'}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        return guarded(repr(self), self._html)

    def _html(self) -> str:
        from dataguard.audit.shown import summary_html

        if self.is_complete:
            return summary_html(self.summary, title=f"Audit {self.path}")
        return card(f"Audit {self.path}", {}, problems=[f"it was interrupted, and has no answer; {_RESUME}"])

    def _require_answer(self) -> None:
        if not self.is_complete:
            raise RunDamaged(f"the audit in {self.path} was interrupted, so its tables are not whole", todo=_RESUME)

    def _scanned(self, path: Path) -> pl.LazyFrame:
        import polars as pl

        self._require_answer()
        if not path.exists():
            raise RunDamaged(f"{path} is missing, though the audit is complete")
        return pl.scan_parquet(path)


_RESUME = "go on with it: dataguard audit ... --resume"


def open_audit(path: str | os.PathLike[str]) -> Audit:
    """Open the folder of an audit.

    Parameters
    ----------
    path
        What ``dataguard audit -o`` was given.

    Raises
    ------
    UsageError
        There is no audit.

    Examples
    --------
    >>> import tempfile
    >>> from dataguard.audit.engines.local import LocalEngine
    >>> from dataguard.audit.run import AuditRequest, run_audit
    >>> from dataguard.gate.policy import named_policy
    >>> here = Path(tempfile.mkdtemp())
    >>> _ = (here / "a.jsonl").write_text("".join(f'{{"text": "record {row}"}}' + chr(10) for row in range(5)))
    >>> request = AuditRequest(paths=(f"web={here / 'a.jsonl'}",), out=here / "audit", policy=named_policy("olmo"))
    >>> _ = run_audit(request, LocalEngine(num_workers=1))
    >>> signals = open_audit(here / "audit").signals_frame()
    >>> signals.select("shard", "row", "verdict").collect().rows()[:2]
    [('web/a.jsonl', 0, 'pass'), ('web/a.jsonl', 1, 'pass')]
    """
    folder = AuditFolder(path)
    if not folder.header.exists() and not folder.summary.exists():
        found = "a folder without audit.json" if folder.path.is_dir() else "nothing of that name"
        raise UsageError(
            f"no audit stands at {folder.path}", found=found, todo="make one with: dataguard audit PATHS... -o DIR"
        )
    return Audit(folder)
