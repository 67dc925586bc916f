"""What does an audit answer, as a document? ``summary.json``, which is also what ``audit --json`` prints.

The account balances or says that it does not: ``records = scored + rejected + unreadable``, for the whole, for every
source and for every shard. Whatever could grow with the corpus (shards, samples, copies) is a Parquet file beside it;
here stand totals, sources, and the worst few.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.audit.overlap_documents import Overlap

__all__ = [
    "SUMMARY_VERSION",
    "AccountOf",
    "AuditSummary",
    "DamagedShard",
    "Drift",
    "DriftedSignal",
    "DriftedSource",
    "DuplicateGroup",
    "Duplicates",
    "DuplicatesOf",
    "Example",
    "Mixture",
    "MixtureOf",
    "RuleAccount",
    "RuleInShard",
    "RuleOfSource",
    "ShardsFound",
    "SourceAccount",
    "Totals",
    "WorstRecord",
    "WorstShard",
]

SUMMARY_VERSION = 1


class AccountOf(msgspec.Struct, frozen=True, kw_only=True):
    """``records = scored + rejected + unreadable``. Records of token shards are their windows."""

    records: int
    scored: int
    rejected: int
    """By the manifest, each with a reason code."""
    unreadable: int
    """The manifest has them, and they could not be read as it has them."""


class Totals(AccountOf, frozen=True, kw_only=True):
    """The account of the whole."""

    balanced: bool
    """Whether it adds up, here and in every source; what does not add up is in `AuditSummary.reasons`."""
    not_sampled: int
    """Records of the corpus that are not in the sample; none without ``--sample``."""
    content_bytes: int
    """Of what was scored: bytes of text, and of token ids as they are stored."""
    tokens: int
    """Of what was scored, in token shards."""
    ignored_lines: int
    """Blank lines and the like, which are no records."""
    rejected_by_code: dict[str, int]
    """By reason, in the whole corpus; ``manifest show --rejected`` names every one, with its line."""


class SourceAccount(AccountOf, frozen=True, kw_only=True):
    """One source."""

    source: str
    kind: str
    """``text`` or ``tokens``."""
    num_shards: int
    content_bytes: int
    tokens: int
    blank: int
    """Scored records without a word (windows without a token), which are no copies of each other."""
    verdicts: dict[str, int]
    """``pass``, ``flag``, ``mask``, ``substitute``, ``halt`` -> scored records."""
    withheld: int
    """Of them, those in ``withhold.parquet``."""


class DamagedShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that is not what it should be."""

    shard: str
    reason: str
    """``code: detail``, several of them behind each other."""
    codes: tuple[str, ...]
    effect: str
    """``flagged`` (its good records were scored), ``excluded`` (nothing was), or ``unreadable`` (it was well when the
    manifest was built)."""


class ShardsFound(msgspec.Struct, frozen=True, kw_only=True):
    """The shards."""

    total: int
    damaged: tuple[DamagedShard, ...]
    unreachable: tuple[DamagedShard, ...]
    """Paths that could not be looked into: folders without permission, broken links. Only where paths were scanned."""
    ignored_files: dict[str, int]
    """Files that were met and are no shards, counted by reason; ``manifest build --list-ignored`` names them."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A record on which a rule fired, one of the furthest beyond its bound."""

    shard: str
    row: int
    digest: str
    values: dict[str, int | float]
    """The signals of the rule."""


class RuleOfSource(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in one source. Shares are of what it was evaluated on."""

    source: str
    evaluated: int
    fired: int
    skipped: int
    share_of_records: float
    share_of_bytes: float
    share_of_tokens: float | None


class RuleInShard(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in one shard."""

    shard: str
    evaluated: int
    fired: int
    share_of_records: float


class RuleAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule did. ``evaluated + skipped`` is the number of scored records (of shards, for a rule over them)."""

    rule: str
    signal: str
    """The signals of its conditions."""
    action: str
    evaluated: int
    fired: int
    skipped: int
    skipped_why: dict[str, int]
    scope: str
    """``sample``, ``batch`` (an audit has no batches, and skips it) or ``shard``."""
    text: str
    """Its conditions in words."""
    share_of_records: float
    """Of what it was evaluated on."""
    share_of_bytes: float
    share_of_tokens: float | None
    """Null for rules over text."""
    max_fraction: float
    """Share of records on which it may fire."""
    failed: bool
    """Whether it fired beyond that, and counts for the verdict."""
    by_source: tuple[RuleOfSource, ...]
    worst_shards: tuple[RuleInShard, ...]
    examples: tuple[Example, ...]


class WorstShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard with many records that are not a plain pass."""

    shard: str
    scored: int
    rejected: int
    unreadable: int
    withheld: int
    verdicts: dict[str, int]
    proposed: tuple[str, ...]
    """Shard rules that propose to withhold it as a whole."""


class WorstRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record with a grave verdict and many rules that fired."""

    shard: str
    row: int
    digest: str
    verdict: str
    rules: tuple[str, ...]
    """All rules that fired."""
    signals: dict[str, int | float]


class DuplicatesOf(msgspec.Struct, frozen=True, kw_only=True):
    """Copies in one source: records that stand, byte for byte, before them in the corpus."""

    source: str
    records: int
    """Scored and not blank."""
    blank: int
    copies: int
    within_shards: int
    """Of the copies, those whose last equal record before them is in the same shard."""
    across_shards: int
    across_sources: int
    """Of these, those where it is in another source."""
    share_of_records: float
    share_of_bytes: float


class DuplicateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal records."""

    digest: str
    records: int
    content_bytes: int
    """Of one of them."""
    shard: str
    """Where the first of them stands."""
    row: int


class Duplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Exact duplicates; ``duplicates.parquet`` has every copy."""

    records: int
    blank: int
    copies: int
    share_of_records: float
    share_of_bytes: float
    by_source: tuple[DuplicatesOf, ...]
    largest: tuple[DuplicateGroup, ...]


class MixtureOf(msgspec.Struct, frozen=True, kw_only=True):
    """One source in the mixture."""

    source: str
    weight: float | None
    """Share that was asked for; null where no weights were given."""
    share_of_records: float
    share_of_bytes: float
    share_of_tokens: float | None
    """Of the tokens of token shards; null for text, whose tokens nobody has counted."""
    share_of_bytes_kept: float
    """After what is in ``withhold.parquet`` is left out."""
    epochs_by_bytes: float | None
    """How often its bytes are seen while all bytes of the corpus are seen once on average: weight / share_of_bytes."""


class Mixture(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for against what is there. Of a sample, what is in it."""

    sources: tuple[MixtureOf, ...]
    remarks: tuple[str, ...]


class DriftedSource(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a source there is, then and now."""

    source: str
    records_then: int
    records_now: int
    share_then: float
    share_now: float
    change: float
    """Of its share of all records, relative: -0.4 is 40 % less."""
    state: Literal["same", "moved", "drifted", "new", "gone"]


class DriftedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """How a signal of a source moved."""

    source: str
    signal: str
    psi: float
    """Population stability index over the deciles of the baseline."""
    median_then: float
    median_now: float
    state: Literal["same", "moved", "drifted"]


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of an audit against that of an earlier one."""

    baseline: str
    """Digest of the earlier profile."""
    num_compared: int
    """Signals of sources that both profiles hold."""
    moved_psi: float
    """From here on a signal is called moved ..."""
    drifted_psi: float
    """... and from here on drifted."""
    moved_change: float
    drifted_change: float
    """Likewise of the change of a source's share, whatever its sign, and of the records that it lost."""
    drifted: bool
    sources: tuple[DriftedSource, ...]
    signals: tuple[DriftedSignal, ...]
    """Those that are not the same, the furthest first."""


class AuditSummary(msgspec.Struct, frozen=True, kw_only=True):
    """``summary.json``."""

    verdict: Literal["pass", "fail", "nothing"]
    """``pass`` where all is well; ``nothing`` where no rule was evaluated on any record."""
    account: Totals
    shards: ShardsFound
    rules: tuple[RuleAccount, ...]
    exit_code: int
    """0 pass; 1 a rule fired beyond its allowance (or the drift, where asked for); 3 damaged input, or nothing."""
    reasons: tuple[str, ...]
    """Why it is no pass."""
    version: int = SUMMARY_VERSION
    policy: str
    policy_digest: str
    remarks: tuple[str, ...]
    """What whoever reads this should know: what drifted, rules that were skipped everywhere, the policy's warning."""
    profile: str
    """Digest of the reference profile that outliers were judged by."""
    profile_given: bool
    """Whether it was given; otherwise it is this audit's own, ``profile.json``."""
    manifest: str
    """Digest of the manifest."""
    sample: str
    """Share of the corpus that was looked at, as a fraction; ``1`` for all of it."""
    seq_len: int
    """Tokens of a window, which is the record of a token shard: its rows here and in ``withhold.parquet``."""
    vocab_size: int | None
    signals: dict[str, int]
    """Signals that were computed -> version of their definition."""
    num_withheld: int
    """Rows of ``withhold.parquet``."""
    num_withheld_shards: int
    """Of them, those that name a whole shard."""
    sources: tuple[SourceAccount, ...]
    worst_shards: tuple[WorstShard, ...]
    worst_records: tuple[WorstRecord, ...]
    duplicates: Duplicates
    mixture: Mixture
    drift: Drift | None
    overlap: Overlap | msgspec.UnsetType = msgspec.UNSET
    """What it has in common with evaluation data; left out where it was not held against any."""

    def __repr__(self) -> str:
        from dataguard.audit.shown import summary_text

        return summary_text(self)

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from dataguard.audit.shown import summary_html
        from dataguard.core.notebook import guarded

        return guarded(repr(self), lambda: summary_html(self))
