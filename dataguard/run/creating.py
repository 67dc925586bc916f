"""How is a run created, and may it be created here, and from this plan?

1. The folder must be free: missing, empty, or left by a creation that was interrupted. A run is never made among other
   people's files.
2. The file system must have what a run needs (`probe`).
3. Copies of manifests, plan and withheld rows are written, then the first event. Only with that does the run exist; of
   several creators one event wins.
4. Where a run stands already, it must have been created from the same plan and the same list of withheld rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dataguard.errors import AttemptError, UsageError
from dataguard.plan.document import PlanDocument
from dataguard.run.events import Event, RunCreated, StreamIdentity
from dataguard.run.journal import Journal, JournalRead
from dataguard.run.layout import Layout
from dataguard.run.manifests import keep_manifest, keep_plan
from dataguard.run.policies import GateChoice, KeptChoice, check_fit, keep_choice
from dataguard.run.probe import probe
from dataguard.run.roots import checked_roots
from dataguard.run.withhold import Target, keep_list, list_digest, read_withhold_file, resolve_targets

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.plan.plan import Plan

__all__ = [
    "create_run",
    "manifests_of",
    "require_free",
    "require_same_list",
    "require_same_plan",
    "withheld_targets",
]

_OWN_NAMES = frozenset(
    (
        *("journal", "manifest", "plan", "policy", "profile", "withheld", "hot", "index", "notable", "exceptions"),
        *("seals", "halts", "store", "streams", "telemetry", "tmp"),
    )
)


def create_run(
    layout: Layout,
    journal: Journal,
    plan: Plan,
    *,
    roots: Mapping[str, str],
    withhold_file: str | Path | None,
    manifest_files: Mapping[str, str | Path],
    corpora: Iterable[Corpus],
    spool: str | Path | None,
    gate: GateChoice,
    stream: StreamIdentity | None = None,
) -> bool:
    """Create a run as `Run.create` says; False where somebody else's first event stands by now."""
    from dataguard.corpus.corpus import Corpus

    require_free(layout.root)
    probe(layout.tmp)
    own = [plan.corpus] if isinstance(plan.corpus, Corpus) else []
    known = {corpus.manifest.digest: corpus for corpus in (*own, *corpora)}
    for digest in manifests_of(plan.document):
        keep_manifest(layout, plan.manifests[digest], file=manifest_files.get(digest), corpus=known.get(digest))
    check_fit(gate.policy, plan)
    kept = keep_choice(layout, gate, KeptChoice())
    created = RunCreated(
        run=uuid.uuid4().hex,
        plan=keep_plan(layout, plan.document),
        root=plan.document.root.digest,
        manifests=manifests_of(plan.document),
        skip_mode=plan.document.skip_mode,
        fill=plan.document.fill,
        first_label=plan.document.first_label,
        withheld=None if withhold_file is None else keep_list(layout, withheld_targets(plan, withhold_file)),
        policy=kept.policy,
        policy_name=kept.name or msgspec.UNSET,
        profile=kept.profile,
        vocab_size=kept.vocab_size or msgspec.UNSET,
        spool=None if spool is None else str(Path(spool).absolute()),
        roots=checked_roots(roots, (source.name for each in plan.manifests.values() for source in each.sources)),
        stream=stream or msgspec.UNSET,
    )

    def first(read: JournalRead) -> Event:
        if read.head.number:
            raise _SomebodyElseError
        return created

    try:
        journal.append(first)
    except _SomebodyElseError:
        return False
    return True


class _SomebodyElseError(Exception):
    """Another creator's first event stands already; never seen outside."""


def require_free(folder: Path) -> None:
    """UsageError where something else lies there: a run is never made among other people's files."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"no run can be created at {folder}: it is a file", todo="name a folder")
    strange = sorted(path.name for path in folder.iterdir() if path.name not in _OWN_NAMES) if folder.is_dir() else []
    if strange:
        raise UsageError(
            f"no run can be created at {folder}: it is no run and not empty",
            found=", ".join(strange[:5]) + (", ..." if len(strange) > 5 else ""),
            todo="name a folder that is missing or empty",
        )


def require_same_plan(ours: PlanDocument, theirs: PlanDocument, where: Path) -> None:
    """AttemptError, showing both, where a run was created from another plan (`ours` is the run's)."""
    if theirs.digest == ours.digest:
        return
    ours_shown, theirs_shown = _differences(ours, theirs)
    raise AttemptError(
        f"the run at {where} was created from another plan",
        found=f"the plan given has {theirs_shown}",
        allowed=f"the run has {ours_shown}",
        todo="leave the plan out to go on with the run's own (an attempt may amend global batch and mixture), "
        "or name another folder",
    )


def require_same_list(ours: str | None, plan: Plan, withhold_file: str | Path, where: Path) -> None:
    """AttemptError where a run (of list `ours`) withholds another list since its creation than the file asks for."""
    digest = list_digest(withheld_targets(plan, withhold_file))
    if digest != ours:
        raise AttemptError(
            f"the run at {where} exists and withholds another list since its creation",
            found=f"{withhold_file} is list {digest[:16]}",
            allowed=f"list {ours[:16]}" if ours else "no list",
            todo="withhold it from the next attempt on: dataguard quarantine RUN --withhold FILE --reason TEXT",
        )


def manifests_of(document: PlanDocument) -> tuple[str, ...]:
    """Digests of the manifests that a plan names, in the order of first mention."""
    return tuple(dict.fromkeys(mixture.manifest for mixture in document.mixtures))


def withheld_targets(plan: Plan, withhold_file: str | Path) -> list[Target]:
    """What a file asks to withhold, in the names of a plan's manifests."""
    seq_len = plan.document.root.seq_len
    return resolve_targets(
        read_withhold_file(withhold_file, seq_len=seq_len, may_be_empty=True), plan.manifests.values(), seq_len=seq_len
    )


def _differences(ours: PlanDocument, theirs: PlanDocument) -> tuple[str, str]:
    """What differs between two plans, as a list of ``name value`` for either side."""
    pairs = [(name, getattr(ours.root, name), getattr(theirs.root, name)) for name in ours.root.__struct_fields__]
    pairs += [
        ("global batch", _sizes(ours), _sizes(theirs)),
        ("weights", _mixtures(ours), _mixtures(theirs)),
        *((name, getattr(ours, name), getattr(theirs, name)) for name in ("fill", "skip_mode", "first_label")),
    ]
    different = [(name, a, b) for name, a, b in pairs if a != b] or [("digest", ours.digest, theirs.digest)]
    return (
        ", ".join(f"{name} {a}" for name, a, _ in different),
        ", ".join(f"{name} {b}" for name, _, b in different),
    )


def _from(start: int) -> str:
    return f" from position {start:,}" if start else ""


def _sizes(document: PlanDocument) -> str:
    return ", ".join(f"{entry.size:,}{_from(entry.start)}" for entry in document.batch_sizes)


def _mixtures(document: PlanDocument) -> str:
    return "; ".join(
        ", ".join(f"{name}={weight}" for name, weight in sorted(entry.weights.items())) + _from(entry.start)
        for entry in document.mixtures
    )
