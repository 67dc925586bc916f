"""Which run is this, what was decided so far, and what does each of its attempts deliver?

A run is a folder. It exists once its first event stands (`Run.create` writes manifests and plan before that), and
everything it says about itself is derived from the journal and the immutable copies beside it:

1. the first event gives identity: root, plan, skip mode, fill, first label;
2. every AttemptBegun event, with its plan document and the fold of the events before it, gives an `AttemptPlan`, whose
   digest must be the one that was written when it began;
3. attempts form a tree, and a leaf's lineage gives `Steps`, `Stream` and the withheld rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataguard.core.manifest import Manifest
from dataguard.errors import NotInRun, RunDamaged, UsageError
from dataguard.plan.attempts import AttemptPlan, AttemptTree
from dataguard.plan.document import PlanDocument
from dataguard.plan.steps import Steps, label_of_step, step_of_label
from dataguard.run.attempts import Rebuilt, begun_events, rebuild
from dataguard.run.creating import create_run, require_same_list, require_same_plan
from dataguard.run.data import RunData
from dataguard.run.events import AttemptBegun, RunCreated, StreamIdentity
from dataguard.run.journal import Entry, Head, Journal, JournalRead
from dataguard.run.layout import Layout
from dataguard.run.manifests import KeptManifests, KeptPlans
from dataguard.run.pending import Pending, fold
from dataguard.run.policies import GateChoice
from dataguard.run.probe import probe
from dataguard.run.progress import Progress
from dataguard.run.streams import NamedStream, named_stream, stream_names
from dataguard.run.viewed import RunViews
from dataguard.run.withhold import Target, read_kept_list

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.gate.policy import Policy
    from dataguard.plan.plan import HasManifest, Plan
    from dataguard.plan.stream import Stream
    from dataguard.plan.withheld import WithheldSet
    from dataguard.score.profile import Profile

__all__ = ["Run"]


class Run(RunData, RunViews):
    """A run directory, opened. Make one with `Run.create` or `Run.open`.

    Opening reads event files alone. What other processes may change (attempts, skips, quarantines) is read from the
    journal when it is asked for; what cannot change (plans, manifests, lists) then, and once.
    """

    def __init__(self, layout: Layout, journal: Journal, created: RunCreated) -> None:
        self.layout = layout
        self.journal = journal
        self.document = created
        """The first event."""
        self.gate = GateChoice()
        """Of policy, profile and vocabulary size what was given here, for attempts begun here."""
        self.progress: dict[int, Progress] = {}
        """How far each rank of this process has come, by rank; for a monitor beside the loader."""
        self._plans = KeptPlans(layout)
        self._manifests = KeptManifests(layout)
        self._lists: dict[str, list[Target]] = {}
        self._streams: dict[tuple[str, bool], Stream] = {}
        self._built: tuple[Head, Rebuilt] | None = None
        self._known: dict[str, AttemptPlan] = {}

    # -- creating and opening

    @classmethod
    def create(
        cls,
        path: str | Path,
        plan: Plan,
        *,
        roots: Mapping[str, str] | None = None,
        withhold_file: str | Path | None = None,
        manifest_files: Mapping[str, str | Path] | None = None,
        corpora: Iterable[Corpus] = (),
        spool: str | Path | None = None,
        policy: str | Path | Policy | None = None,
        profile: str | Path | Profile | None = None,
        vocab_size: int | None = None,
        by: str | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> Run:
        """Create a run, or open the one that stands there where it is of the same plan.

        Of several creators at once one wins and the others open what it made.

        Parameters
        ----------
        path, roots
            A folder: missing, empty, or left by a creation that was interrupted; where each source lies, remembered.
        withhold_file
            Shards and rows to withhold from the first attempt on (`read_withhold_file`).
        manifest_files
            Manifest files by digest, to keep byte copies of.
        corpora
            Beside the corpus the plan was made from: for a manifest without a file they say where its sources lie and
            what its scan was told.
        spool
            A local folder for hot files, where the run directory is far or slow; sealed files go to the run directory.
        policy, profile, vocab_size
            What judges samples before they are delivered (`GateChoice.read`). Attempts go by what the one they fork
            from had, the first by what the run was created with; those begun here take what is given here instead.

        Raises
        ------
        AttemptError
            A run of another plan stands there.
        UsageError
            The folder holds something that is no run.
        UnfitFileSystem
            Its file system lacks link, rename or exclusive create.
        """
        layout = Layout(Path(path))
        journal = Journal(layout, by=by, clock=clock)
        gate = GateChoice.read(policy, profile, vocab_size)
        if journal.read().head.number == 0:
            create_run(
                layout,
                journal,
                plan,
                roots=roots or {},
                withhold_file=withhold_file,
                manifest_files=manifest_files or {},
                corpora=corpora,
                spool=spool,
                gate=gate,
            )
        run = cls._read(layout, journal)
        run.gate = gate
        run.require_plan(plan)
        if withhold_file is not None:
            require_same_list(run.document.withheld, plan, withhold_file, layout.root)
        return run

    @classmethod
    def open(
        cls,
        path: str | Path,
        plan: Plan | None = None,
        *,
        roots: Mapping[str, str] | None = None,
        withhold_file: str | Path | None = None,
        manifest_files: Mapping[str, str | Path] | None = None,
        corpora: Iterable[Corpus] = (),
        spool: str | Path | None = None,
        policy: str | Path | Policy | None = None,
        profile: str | Path | Profile | None = None,
        vocab_size: int | None = None,
        by: str | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> Run:
        """Open a run; create it where none stands and a plan is given.

        Raises
        ------
        UsageError
            No run stands there and no plan is given.
        AttemptError
            The run is of another plan; both are shown.
        RunDamaged
            The run's first event cannot be read.
        UnfitFileSystem
            A plan is given, so the run is to be written, and its file system lacks what that needs.
        """
        layout = Layout(Path(path))
        journal = Journal(layout, by=by, clock=clock)
        if plan is not None:
            run = cls.create(
                path,
                plan,
                roots=roots,
                withhold_file=withhold_file,
                manifest_files=manifest_files,
                corpora=corpora,
                spool=spool,
                policy=policy,
                profile=profile,
                vocab_size=vocab_size,
                by=by,
                clock=clock,
            )
            probe(layout.tmp)
            return run
        if journal.read().head.number == 0:
            found = "a folder without a journal" if layout.root.is_dir() else "nothing of that name"
            raise UsageError(
                f"no run stands at {layout.root}",
                found="a file, and no run directory" if layout.root.is_file() else found,
                todo="create one with: dataguard rehearse MANIFEST --run RUN, or Run.create(path, plan)",
            )
        run = cls._read(layout, journal)
        run.gate = GateChoice.read(policy, profile, vocab_size)
        return run

    @staticmethod
    def exists(path: str | Path) -> bool:
        """Whether a run stands there: whether its journal has any event."""
        return Journal(Layout(Path(path))).read().head.number > 0

    @classmethod
    def _read(cls, layout: Layout, journal: Journal) -> Run:
        read = journal.read()
        first = read.entries[0] if read.entries else None
        if first is None or first.number != 1 or not isinstance(first.event, RunCreated):
            problems = "; ".join(problem.message for problem in read.problems)
            raise RunDamaged(
                f"the run at {layout.root} cannot be opened: its first event cannot be read",
                found=problems or "a first event that creates no run",
                todo="restore journal/000001.json from a copy",
            )
        spool = first.event.spool
        if spool is not None:
            layout = Layout(layout.root, spool=Path(spool) / first.event.run)
        return cls(layout, journal, first.event)

    def require_plan(self, plan: Plan) -> None:
        """AttemptError, showing both, where this run was created from another plan."""
        require_same_plan(self.plan_document(), plan.document, self.layout.root)

    # -- identity

    @property
    def path(self) -> Path:
        """The folder."""
        return self.layout.root

    @property
    def run_id(self) -> str:
        """32 hexadecimal digits, drawn when the run was created."""
        return self.document.run

    @property
    def first_label(self) -> int:
        """What the trainer calls its first step."""
        return self.document.first_label

    def label(self, step: int) -> int:
        """The trainer's label of a step."""
        return label_of_step(step, self.first_label)

    def step(self, label: int) -> int:
        """The step that the trainer calls `label`; NotInRun below the first."""
        return step_of_label(label, self.first_label)

    @property
    def plan(self) -> Plan:
        """The plan the run was created from."""
        return self.plan_from(self.plan_document())

    def plan_document(self, digest: str | None = None) -> PlanDocument:
        """A kept plan document by its digest; by default the one the run was created from."""
        return self._plans.document(self.document.plan if digest is None else digest)

    def plan_from(self, document: PlanDocument) -> Plan:
        """A plan document together with the run's own copies of its manifests."""
        return self._plans.plan(document, self.manifest)

    # -- named streams

    @property
    def stream_identity(self) -> StreamIdentity | None:
        """Which stream of which run this is; None for a run of its own."""
        return self.document.stream or None

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of its streams, in the order in which they were added."""
        return stream_names(self.read())

    def stream(
        self, name: str, corpus: HasManifest | Manifest | None = None, *, end: int | str = "once", **plan: Any
    ) -> NamedStream:
        """A named stream of this run: a fixed set, the same batches whenever it is evaluated and on any ranks.

        Added where there is none of that name yet, any number of ranks at once; without a corpus the one that stands.

        Parameters
        ----------
        name, corpus
            What it is called (letters, digits, ``.``, ``_``, ``-``), and of which corpus it is.
        end
            ``once``, one whole pass over every source, or a number of steps.
        plan
            As `stream_plan.stream_plan` takes it: seed, global_batch, form, seq_len, lanes, shuffle, weights.

        Raises
        ------
        UsageError
            There is none of that name, or one of another corpus or plan: both digests are shown.
        """
        return named_stream(self, name, corpus, end=end, **plan)

    # -- the journal

    def read(self) -> JournalRead:
        """Every event that stands now, and what is wrong with the journal."""
        return self.journal.read()

    def head(self) -> Head:
        """The newest event: what loader state and frames headers carry."""
        return self.journal.head()

    def problems(self) -> tuple[str, ...]:
        """What a reader should be warned of: a damaged journal, attempts that cannot be rebuilt."""
        read = self.read()
        return (*(problem.message for problem in read.problems), *self._rebuilt(read).left_out)

    def pending(self, read: JournalRead | None = None) -> Pending:
        """What an attempt that began now would skip and withhold."""
        return self.fold((self.read() if read is None else read).entries)

    def fold(self, entries: Sequence[Entry], lists: Mapping[str, list[Target]] | None = None) -> Pending:
        """What stands after just these events; `lists` are lists that are not kept (yet), by digest."""
        known = lists or {}
        return fold(entries, lambda digest: known[digest] if digest in known else self.read_list(digest))

    def read_list(self, digest: str) -> list[Target]:
        """Shards and rows of a kept list."""
        if digest not in self._lists:
            self._lists[digest] = read_kept_list(self.layout, digest)
        return self._lists[digest]

    # -- attempts

    def attempts(self, read: JournalRead | None = None) -> AttemptTree:
        """All attempts, as the journal (or a reading of it) tells them."""
        return self._rebuilt(self.read() if read is None else read).tree

    def newest_leaf(self) -> int:
        """Number of the newest attempt; NotInRun where none has begun."""
        return self.attempts().newest

    def begun(self, attempt: int, read: JournalRead | None = None) -> AttemptBegun:
        """The event that began an attempt, with launch, hosts and roots; NotInRun where there is none."""
        begun = begun_events(self.read() if read is None else read)
        if attempt not in begun:
            shown = ", ".join(str(number) for number in sorted(begun)[-8:])
            raise NotInRun(
                f"attempt {attempt} is not in this run", found=f"attempts {shown}" if begun else "no attempts"
            )
        return begun[attempt]

    def plan_of(self, attempt: int | None = None) -> Plan:
        """The plan of an attempt (default: of the newest leaf; of the run where none has begun)."""
        if attempt is None:
            tree = self.attempts()
            return self.plan if not len(tree) else self.plan_of(tree.newest)
        return self.plan_from(self.plan_document(self.begun(attempt).plan))

    def stream_of(self, attempt: int | None = None, *, bulk: bool = False) -> Stream:
        """The stream of an attempt; `bulk` lets large permutations use numba."""
        plan = self.plan_of(attempt)
        key = (plan.digest, bulk)
        if key not in self._streams:
            self._streams[key] = plan.stream(bulk=bulk)
        return self._streams[key]

    def steps_of(self, leaf: int | None = None, read: JournalRead | None = None) -> Steps:
        """The steps of a leaf's lineage (default: of the newest leaf)."""
        return Steps(
            self.attempts(read).lineage(leaf),
            lanes=self.plan_document().root.lanes,
            skip_mode=self.document.skip_mode,
            first_label=self.first_label,
        )

    def withheld_of(self, attempt: int | None = None) -> WithheldSet:
        """The withheld rows of an attempt, over the shards of its stream numbered through."""
        from dataguard.plan.withheld import WithheldSet

        number = self.newest_leaf() if attempt is None else attempt
        return WithheldSet.of(self.attempts().attempt(number).withheld, self.stream_of(number).manifest_set)

    def _rebuilt(self, read: JournalRead) -> Rebuilt:
        if self._built is None or self._built[0] != read.head or read.problems:
            # Nothing amends a stream, and folding what stands before each of a thousand evaluations takes its time.
            fold_before = _nothing_pending if self.stream_identity else self.fold
            self._built = (read.head, rebuild(read, self.document, self.plan_document, fold_before, self._known))
        return self._built[1]


def _nothing_pending(_entries: Sequence[Entry]) -> Pending:
    return Pending()
