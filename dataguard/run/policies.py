"""Which policy, reference profile and vocabulary size judge the samples of an attempt, and where are they kept?

What is asked for is a `GateChoice`: of each, another one, or what was in force before. What is in force is a
`KeptChoice`: digests, and the size. An attempt takes what its parent had, the first one what the run was created with,
and whatever is asked for instead; the event that begins it names the digests, and copies of the files stand before it,
``policy/<digest>.toml`` and ``profile/<digest>.json``. They count in the attempt's digest: inline verdicts are a
function of the sample and these three, never of the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dataguard.errors import PolicyError, RunDamaged, UsageError
from dataguard.run.atomic import publish_new
from dataguard.run.events import AttemptBegun, RunCreated
from dataguard.run.layout import Layout

if TYPE_CHECKING:
    from dataguard.core.signals import SignalKind
    from dataguard.gate.policy import Policy
    from dataguard.plan.document import Fill
    from dataguard.plan.plan import Plan
    from dataguard.run.run import Run
    from dataguard.score.profile import Profile

__all__ = [
    "NO_POLICY",
    "GateChoice",
    "KeptChoice",
    "check_fit",
    "fill_of",
    "keep_choice",
    "kept_policy",
    "kept_profile",
    "policy_of",
    "sources_known",
]

NO_POLICY = "none"
"""What stands for an attempt that judges nothing, where a policy is asked for by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChoice:
    """What is in force, by digest.

    >>> KeptChoice(policy="ab" * 32).policy == "ab" * 32
    True
    """

    policy: str | None = None
    name: str | None = None
    """What the policy is called."""
    profile: str | None = None
    vocab_size: int | None = None

    @classmethod
    def of(cls, event: RunCreated | AttemptBegun) -> KeptChoice:
        """As an event says."""
        return cls(
            policy=event.policy or None,
            name=event.policy_name or None,
            profile=event.profile or None,
            vocab_size=event.vocab_size or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChoice:
    """What is asked for; None goes by what is in force."""

    policy: Policy | None = None
    no_policy: bool = False
    """Judge nothing, whatever was in force."""
    profile: Profile | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        if self.vocab_size is not None and self.vocab_size < 1:
            raise UsageError(f"a vocabulary of {self.vocab_size} ids cannot be", allowed="at least 1")
        if self.no_policy and (self.policy, self.profile, self.vocab_size) != (None, None, None):
            raise UsageError("without a policy nothing uses a profile or a vocabulary size", todo="leave them out")

    @classmethod
    def read(
        cls,
        policy: str | Path | Policy | None = None,
        profile: str | Path | Profile | None = None,
        vocab_size: int | None = None,
    ) -> GateChoice:
        """The choice as people give it: a policy by name or file, ``none`` for no policy, a profile by file.

        Raises
        ------
        PolicyError
            The file is no policy; every problem is told.
        UsageError
            There is no such policy or file, or the vocabulary's size cannot be.
        InputError
            The profile cannot be read.
        """
        if policy == NO_POLICY:
            return cls(no_policy=True, profile=_profile(profile), vocab_size=vocab_size)
        if isinstance(policy, str | Path):
            from dataguard.gate.policy import load_policy

            policy = load_policy(str(policy))
        return cls(policy=policy, profile=_profile(profile), vocab_size=vocab_size)

    def over(self, other: GateChoice) -> GateChoice:
        """What is asked for here, and of the other what is left open here."""
        if self.no_policy or self == GateChoice():
            return self if self.no_policy else other
        return GateChoice(
            policy=self.policy or other.policy,
            no_policy=other.no_policy and self.policy is None,
            profile=self.profile or other.profile,
            vocab_size=self.vocab_size or other.vocab_size,
        )

    def differences(self, kept: KeptChoice) -> list[tuple[str, object, object]]:
        """(name, asked, in force) of what is asked for and is in force in another way, or in the same."""
        facts: list[tuple[str, object, object]] = []
        if self.no_policy:
            facts.append(("policy", None, kept.policy))
        if self.policy is not None:
            facts.append(("policy", self.policy.digest, kept.policy))
        if self.profile is not None:
            facts.append(("profile", self.profile.digest, kept.profile))
        if self.vocab_size is not None:
            facts.append(("vocabulary size", self.vocab_size, kept.vocab_size))
        return facts


def _profile(given: str | Path | Profile | None) -> Profile | None:
    if not isinstance(given, str | Path):
        return given
    from dataguard.score.profile import read_profile

    try:
        content = Path(given).read_bytes()
    except OSError as error:
        raise UsageError(f"the profile {given} cannot be read", found=error.strerror) from error
    return read_profile(content)


def keep_choice(layout: Layout, asked: GateChoice, before: KeptChoice) -> KeptChoice:
    """What is in force once `asked` is taken over what was before; copies of policy and profile are written first.

    Raises
    ------
    UsageError
        A profile or a vocabulary size is asked for, and no policy is in force.
    """
    if asked.no_policy:
        return KeptChoice()
    kept = KeptChoice(
        policy=before.policy if asked.policy is None else asked.policy.digest,
        name=before.name if asked.policy is None else asked.policy.name,
        profile=before.profile if asked.profile is None else asked.profile.digest,
        vocab_size=before.vocab_size if asked.vocab_size is None else asked.vocab_size,
    )
    if kept.policy is None and kept != KeptChoice():
        raise UsageError(
            "a profile and a vocabulary size are of use to a policy, and none is given",
            todo="give a policy, e.g. --policy default",
        )
    if asked.policy is not None and not layout.policy(asked.policy.digest).exists():
        publish_new(layout.policy(asked.policy.digest), asked.policy.text.encode(), tmp=layout.tmp)
    if asked.profile is not None and not layout.profile(asked.profile.digest).exists():
        from dataguard.score.profile import encode_profile

        publish_new(layout.profile(asked.profile.digest), encode_profile(asked.profile), tmp=layout.tmp)
    return kept


def sources_known(plan: Plan) -> list[str]:
    """All sources of a plan's manifests: a policy may speak of those that the plan leaves out."""
    names = {source.name for manifest in plan.manifests.values() for source in manifest.sources}
    return sorted(names, key=str.encode)


def check_fit(policy: Policy | None, plan: Plan) -> None:
    """PolicyError where a policy speaks of sources that no manifest of a plan has: such a rule would never fire."""
    if policy is None:
        return
    from dataguard.gate.fitting import fit_problems
    from dataguard.gate.problem import policy_error

    document = plan.document
    names = sorted({name for mixture in document.mixtures for name in mixture.weights}, key=str.encode)
    kinds: list[SignalKind] = ["text" if document.root.form == "document" else "tokens"] * len(names)
    problems = fit_problems(policy, names, kinds, known_sources=sources_known(plan))
    if problems:
        raise policy_error(policy.name, problems)


def kept_policy(layout: Layout, digest: str, *, name: str | None = None) -> Policy:
    """The run's copy of a policy, called `name` unless it says itself; RunDamaged where it is missing or another."""
    path = layout.policy(digest)
    try:
        policy = _read(_content(path).decode(), name or digest[:16])
    except (PolicyError, UnicodeDecodeError) as error:
        raise RunDamaged(f"the run's copy of policy {digest[:16]} cannot be read", found=str(error)) from error
    if policy.digest != digest:
        raise RunDamaged(f"{path} holds another policy than its name says", found=policy.digest, allowed=digest)
    return policy


@lru_cache(maxsize=8)
def _read(text: str, name: str) -> Policy:
    """A text is read once, however many steps are rebuilt; the file is read again each time, for it may have gone."""
    from dataguard.gate.policy import read_policy

    return read_policy(text, name=name)


def kept_profile(layout: Layout, digest: str) -> Profile:
    """The run's copy of a reference profile; RunDamaged where it is missing or another."""
    from dataguard.errors import InputError
    from dataguard.score.profile import read_profile

    path = layout.profile(digest)
    try:
        profile = read_profile(_content(path))
    except (InputError, UsageError) as error:
        raise RunDamaged(f"the run's copy of profile {digest[:16]} cannot be read", found=str(error)) from error
    if profile.digest != digest:
        raise RunDamaged(f"{path} holds another profile than its name says", found=profile.digest, allowed=digest)
    return profile


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read", found=error.strerror) from error


def policy_of(run: Run, attempt: int) -> Policy | None:
    """The policy of an attempt, by which rule bits have names; None where it has none."""
    kept = KeptChoice.of(run.begun(attempt))
    return None if kept.policy is None else kept_policy(run.layout, kept.policy, name=kept.name)


def fill_of(run: Run, attempt: int) -> Fill:
    """What a slot of an attempt holds whose row is quarantined or cannot be read: as its policy says, else its plan."""
    policy = policy_of(run, attempt)
    return (None if policy is None else policy.fill) or run.plan_of(attempt).document.fill
