"""What is ``report.html`` of an audit made of?

Of the audit's own files alone (``audit.json``, ``summary.json``, ``profile.json``, ``shards.parquet``, ``signals/``),
and of the records it names, which are read from the corpus once more; where the data is not reachable the page says so
at that record. The same audit over the same data gives the same page, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from dataguard.audit.documents import AuditSummary
from dataguard.audit.folder import AuditFolder, AuditHeader
from dataguard.audit.run import read_summary
from dataguard.corpus.corpus import Corpus
from dataguard.errors import InputError, RunDamaged, UsageError
from dataguard.gate.policy import read_policy
from dataguard.report.audit.charts import charts_of, outliers_in
from dataguard.report.audit.records import read_records
from dataguard.report.audit.view import places_of, rules_of_shards, view_of
from dataguard.report.html import page
from dataguard.run.layout import Layout
from dataguard.score.profile import read_profile

__all__ = ["audit_page", "page_of_folder"]


def audit_page(folder: AuditFolder, header: AuditHeader, summary: AuditSummary, corpus: Corpus) -> bytes:
    """The page of an audit whose other files are written, UTF-8.

    Parameters
    ----------
    folder
        Where they are.
    header, summary
        What was asked, and the answer (which may not be on disk yet).
    corpus
        That was audited, with the roots where its sources lie now.

    Raises
    ------
    RunDamaged
        A file of the audit is missing or damaged.
    """
    policy = read_policy(header.policy_text, name=header.policy)
    contents = read_records(corpus, places_of(summary), seq_len=summary.seq_len)
    try:
        profile = read_profile(folder.profile.read_bytes())
        outliers = outliers_in(folder.signals)
        rules_in = rules_of_shards(folder.shards, [shard.shard for shard in summary.worst_shards])
    except (OSError, ValueError, InputError) as error:
        raise RunDamaged(
            f"the audit in {folder.path} is not whole", found=str(error), todo="audit again into a new folder"
        ) from error
    view = view_of(summary, policy, header.asked, contents, rules_in)
    charts = charts_of(summary, policy, profile, outliers)
    has_charts = bool(charts["signals"])
    facts = {"view": view, "summary": summary, "has_charts": has_charts}
    return page("audit", facts, data=charts, charts=has_charts)


def page_of_folder(path: str | os.PathLike[str], roots: Mapping[str, str] | None = None) -> tuple[bytes, AuditSummary]:
    """The page of an audit that is complete, and its answer.

    Parameters
    ----------
    path
        The audit's folder.
    roots
        Where sources lie now, by name; those left out lie where they lay.

    Raises
    ------
    UsageError
        It is no folder of an audit.
    InputError
        The audit is not complete, or not whole.
    """
    folder = AuditFolder(path)
    if not folder.path.is_dir():
        raise UsageError(
            f"there is no folder {folder.path}",
            allowed="a run directory, or the folder of an audit",
            todo="make one with: dataguard audit PATHS -o DIR, or dataguard rehearse MANIFEST --run RUN",
        )
    header = folder.read_header()
    if header is None and Layout(folder.path).journal.is_dir():
        raise UsageError(
            f"{folder.path} is a run directory, and no folder of an audit",
            todo="in Python: dataguard.report.run.gathering.facts_of_run; dataguard report takes both",
        )
    if header is None:
        raise UsageError(
            f"{folder.path} is neither a run directory nor the folder of an audit",
            todo="make one with: dataguard audit PATHS -o DIR, or dataguard rehearse MANIFEST --run RUN",
        )
    if not folder.summary.is_file():
        raise InputError(
            f"the audit in {folder.path} is not complete, so there is nothing to report yet",
            todo="go on with it: the same dataguard audit with --resume",
        )
    summary = read_summary(folder.summary)
    return audit_page(folder, header, summary, Corpus.open(folder.manifest, roots)), summary
