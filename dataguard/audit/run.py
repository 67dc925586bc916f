"""How does an audit go, from what was typed to its answer?

1. The manifest: the one that was named, or one of the paths, built into the audit's folder.
2. The header: what is asked for. Whoever goes on with an audit asks for the same.
3. The tasks whose parts are not there yet are done by an engine.
4. The second half (`finish`) makes the files and the answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import msgspec

from dataguard.audit.against import Against, AgainstParts, unread_parts
from dataguard.audit.documents import SUMMARY_VERSION, AuditSummary
from dataguard.audit.engines import Content, Engine
from dataguard.audit.finish import Finishing, Render, finish
from dataguard.audit.folder import AgainstAsked, AuditFolder, AuditHeader, State
from dataguard.audit.job import Job
from dataguard.audit.manifests import Scanning, Unreachable, is_manifest, kept_manifest
from dataguard.audit.mixture import parse_weights
from dataguard.audit.parts import read_part
from dataguard.audit.sample import Sample, parse_sample
from dataguard.audit.tasks import TASK_BYTES, Task, plan_tasks
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.manifest_read import ManifestFile
from dataguard.corpus.storage import canonical, is_url, readable
from dataguard.errors import DataguardError, InputError, RunDamaged, UsageError
from dataguard.gate.gate import Gate
from dataguard.gate.rules import Policy
from dataguard.score.profile import Profile, read_profile
from dataguard.score.registry import SIGNALS

__all__ = ["SEQ_LEN", "AuditRequest", "Progress", "is_manifest", "read_summary", "run_audit"]

SEQ_LEN = 2048
"""Tokens of a window, where none was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What an audit is asked for."""

    paths: tuple[str, ...]
    """One manifest, or paths to scan."""
    out: Path
    policy: Policy
    scan: ScanOptions = field(default_factory=ScanOptions)
    """For paths."""
    format_name: str = ""
    roots: Mapping[str, str] = field(default_factory=dict)
    """Where sources lie now; for a manifest."""
    profile: Path | None = None
    baseline: Path | None = None
    sample: str = "100%"
    seq_len: int = SEQ_LEN
    vocab_size: int | None = None
    weights: Mapping[str, str] = field(default_factory=dict)
    against: tuple[str, ...] = ()
    """Evaluation data that the corpus is held against: of each a manifest, or a path to scan."""
    fail_on: tuple[str, ...] = ()
    """``flag``, ``drift``, ``overlap``."""
    resume: bool = False
    num_scan_workers: int | None = None
    scan_timeout_seconds: float | None = None
    task_bytes: int = TASK_BYTES


class Progress:
    """Told how far an audit is; does nothing. Every method may be called from any thread."""

    def scanned(self, done_bytes: int, total_bytes: int) -> None:
        """Bytes of the paths that were scanned."""

    def scored(self, done_bytes: int, total_bytes: int) -> None:
        """Bytes of content that were scored."""

    def judged(self, done: int, total: int) -> None:
        """Records of the second half; `total` is 0 while it is not known."""


def run_audit(
    request: AuditRequest, engine: Engine, *, progress: Progress | None = None, render: Render | None = None
) -> AuditSummary:
    """Audit a corpus.

    Parameters
    ----------
    request
        What is asked for.
    engine
        Who scores.
    progress
        Told how far it is.
    render
        Makes the page; None for an audit without one. It is made last before the summary, and for an audit that is
        complete where it is missing.

    Raises
    ------
    UsageError
        What was asked for cannot be, or is something else than the audit in that folder is of.
    InputError
        A manifest or profile cannot be read. What is wrong with shards raises nothing: it is in the answer.
    EnvironmentFailed
        Disk full, no permission, a worker died; everything done is kept, and `resume` goes on.
    KeyboardInterrupt
        Likewise.
    """
    progress = progress or Progress()
    folder = AuditFolder(request.out)
    if request.seq_len < 1:
        raise UsageError(f"windows of {request.seq_len} tokens cannot be", allowed="at least 1")
    for what, held, option in (("overlap", request.against, "--against"), ("drift", request.baseline, "--baseline")):
        if what in request.fail_on and not held:
            raise UsageError(
                f"an audit that is held against nothing cannot fail on {what}", todo=f"give {option} as well"
            )
    if len(request.paths) > 1:
        for path in request.paths:
            if not is_url(path) and is_manifest(path):
                raise UsageError(
                    f"{path} is a manifest, which is audited alone",
                    found=f"{len(request.paths):,} paths",
                    todo="audit each manifest into a folder of its own, or name what they were built of",
                )
    share = parse_sample(request.sample)
    profile, baseline = _profile(request.profile), _profile(request.baseline)
    with folder.held():
        state = folder.state(resume=request.resume)
        is_given = len(request.paths) == 1 and is_manifest(request.paths[0])
        stands = folder.read_header()
        read, unreachable = _manifest(request, folder, progress, stands, is_given=is_given)
        try:
            against = _against(request, folder, progress, stands)
            job, header = _asked(
                request,
                read,
                share,
                is_given=is_given,
                profile=profile,
                baseline=baseline,
                unreachable=unreachable,
                against=against,
            )
        except DataguardError:
            if state == "new":
                folder.leave()  # it was never begun, so whoever mends the command finds no audit of something else
            raise
        manifest, corpus = read.manifest, job.corpus
        folder.begin(header)
        unread = [] if state == "new" else _unread(folder, state, against)
        if state == "complete" and not unread:
            summary = read_summary(folder.summary)
            if render is not None and not folder.report.exists():
                folder.publish(folder.report, render(folder, header, summary, corpus))
            folder.tidy()
            return summary
        folder.sweep()
        folder.forget(unread)
        tasks = plan_tasks(manifest, task_bytes=request.task_bytes)
        _score(folder, job, tasks, engine, progress)
        for each in against:
            _score(each.parts, each.job, each.tasks, engine, progress)
        return finish(
            Finishing(
                folder=folder,
                header=header,
                manifest_file=read,
                job=job,
                tasks=tasks,
                policy=request.policy,
                profile=profile,
                baseline=baseline,
                unreachable=tuple((path, reason) for path, reason in header.unreachable),
                against=against,
                progress=progress.judged,
                render=render,
            )
        )


def _asked(
    request: AuditRequest,
    read: ManifestFile,
    share: Fraction,
    *,
    is_given: bool,
    profile: Profile | None,
    baseline: Profile | None,
    unreachable: Unreachable,
    against: tuple[Against, ...],
) -> tuple[Job, AuditHeader]:
    """What is asked for, as a job and as a header; a DataguardError where it does not fit the manifest."""
    manifest = read.manifest
    sample = Sample.of(share, num_blocks=len(manifest.blocks))
    theirs = {source.name for each in against for source in each.manifest.sources}
    own = {source.name for source in manifest.sources}
    roots = {name: root for name, root in request.roots.items() if name in own or name not in theirs}
    corpus = Corpus.of(read, roots)
    job = Job(corpus=corpus, sample=sample, seq_len=request.seq_len, vocab_size=request.vocab_size)
    names = [source.name for source in manifest.sources]
    parse_weights(request.weights, names)
    kinds = [source.kind for source in manifest.sources]
    Gate(request.policy, source_names=names, source_kinds=kinds, vocab_size=request.vocab_size)
    return job, _header(
        request,
        job,
        is_given=is_given,
        profile=profile,
        baseline=baseline,
        manifest=manifest.digest,
        unreachable=unreachable,
        against=against,
    )


def read_summary(path: Path) -> AuditSummary:
    """The answer of an audit that is complete.

    Raises
    ------
    RunDamaged
        The file is not one, or one of a version that this dataguard does not read.
    """
    try:
        summary = msgspec.json.decode(path.read_bytes(), type=AuditSummary)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDamaged(f"{path} is no answer of an audit", found=str(error)) from error
    if summary.version != SUMMARY_VERSION:
        raise RunDamaged(f"{path} has version {summary.version}", allowed=f"version {SUMMARY_VERSION}")
    return summary


def _manifest(
    request: AuditRequest, folder: AuditFolder, progress: Progress, stands: AuditHeader | None, *, is_given: bool
) -> tuple[ManifestFile, Unreachable]:
    """The manifest of an audit, and what its scan could not look into."""
    if request.roots and not is_given:
        raise UsageError(
            "--root says where the sources of a manifest lie", todo="name paths as NAME=PATH, or build a manifest first"
        )
    before = None if stands is None else stands.unreachable
    return kept_manifest(folder, folder.manifest, request.paths, _scanning(request, progress), before=before)


def _against(
    request: AuditRequest, folder: AuditFolder, progress: Progress, stands: AuditHeader | None
) -> tuple[Against, ...]:
    """The corpora that it is held against."""
    before = stands.against or () if stands is not None else ()
    shown = [readable(canonical(asked)) for asked in request.against]
    if stands is not None and shown != [each.asked for each in before]:
        raise UsageError(
            f"the audit in {folder.path} is of something else: against",
            found=", ".join(shown) or "none",
            allowed=", ".join(each.asked for each in before) or "none",
            todo="ask for the same to go on, or name another folder with -o",
        )
    found = []
    for number, asked in enumerate(request.against):
        parts = AgainstParts(folder=folder, number=number)
        known = None if stands is None else before[number].unreachable
        read, unreachable = kept_manifest(folder, parts.manifest, [asked], _scanning(request, progress), before=known)
        names = {source.name for source in read.manifest.sources}
        job = Job(
            corpus=Corpus.of(read, {name: root for name, root in request.roots.items() if name in names}),
            sample=Sample(),
            seq_len=request.seq_len,
            digests_only=True,
        )
        tasks = plan_tasks(read.manifest, task_bytes=request.task_bytes)
        found.append(Against(asked=shown[number], job=job, tasks=tasks, parts=parts, unreachable=unreachable))
    return tuple(found)


def _scanning(request: AuditRequest, progress: Progress) -> Scanning:
    return Scanning(
        options=request.scan,
        format_name=request.format_name,
        num_workers=request.num_scan_workers,
        timeout_seconds=request.scan_timeout_seconds,
        tell=progress.scanned,
    )


def _header(
    request: AuditRequest,
    job: Job,
    *,
    is_given: bool,
    profile: Profile | None,
    baseline: Profile | None,
    manifest: str,
    unreachable: Unreachable,
    against: tuple[Against, ...],
) -> AuditHeader:
    names = [name for kind in job.kinds for name in job.signals(kind)]
    names += ["length_outlier"] if "text" in job.kinds else []
    return AuditHeader(
        asked=() if is_given else tuple(readable(canonical(path)) for path in request.paths),
        scan={name: getattr(request.scan, name) for name in _SCAN},
        format_name=request.format_name,
        unreachable=unreachable,
        manifest=manifest,
        policy=request.policy.name,
        policy_digest=request.policy.digest,
        policy_text=request.policy.text,
        profile=profile.digest if profile is not None else None,
        baseline=baseline.digest if baseline is not None else None,
        sample=job.sample.fraction,
        seq_len=request.seq_len,
        vocab_size=request.vocab_size,
        weights=dict(sorted(request.weights.items())),
        fail_on=tuple(sorted(set(request.fail_on))),
        task_bytes=request.task_bytes,
        signals={name: spec.version for name, spec in SIGNALS.items() if name in names},
        against=tuple(
            AgainstAsked(asked=each.asked, manifest=each.manifest.digest, unreachable=each.unreachable)
            for each in against
        )
        or msgspec.UNSET,
    )


_SCAN = tuple(ScanOptions.__dataclass_fields__)


def _profile(path: Path | None) -> Profile | None:
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"profile {os.fspath(path)} cannot be read",
            found=error.strerror,
            todo="an audit writes it: AUDIT/profile.json",
        ) from error
    return read_profile(content)


def _unread(folder: AuditFolder, state: State, against: Sequence[Against]) -> list[Path]:
    """The parts of blocks that could not be read, and that whoever goes on reads again: they may have been mended."""
    if state == "complete":
        summary = read_summary(folder.summary)
        overlap = summary.overlap or None
        if not summary.account.unreadable and not (overlap and any(each.unreadable for each in overlap.evaluation)):
            return []
    parts = [folder.part(number) for number in sorted(folder.parts_done())]
    unread = [path for path in parts if any(problem.may_be_mended for problem in read_part(path).document.problems)]
    return [*unread, *(path for each in against for path in unread_parts(each))]


def _score(
    folder: AuditFolder | AgainstParts, job: Job, tasks: Sequence[Task], engine: Engine, progress: Progress
) -> None:
    """Do the tasks that are left."""
    done = folder.parts_done()
    left = [task for task in tasks if task.number not in done]
    total = sum(task.content_bytes for task in tasks)
    count = _Count(total - sum(task.content_bytes for task in left), total, progress.scored)

    def keep(task: Task, content: Content) -> None:
        folder.publish(folder.part(task.number), content)
        count.add(task.content_bytes)

    count.add(0)
    if left:
        engine.run(job, left, keep)


class _Count:
    """Bytes done, counted by all threads together."""

    def __init__(self, done: int, total: int, tell: Callable[[int, int], None]) -> None:
        self._done, self._total, self._tell = done, total, tell
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Count more, and tell."""
        with self._lock:
            self._done += number
            self._tell(self._done, self._total)
