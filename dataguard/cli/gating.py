"""Which options say what judges samples before they are delivered?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dataguard.cli import completing
from dataguard.cli.options import PATH, POLICY_NAMES
from dataguard.errors import UsageError

if TYPE_CHECKING:
    from dataguard.run.policies import GateChoice

__all__ = ["gate_choice", "gate_options", "gate_settings"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def gate_options(command: Decorated) -> Decorated:
    """``policy: str | None``, ``profile: Path | None`` and ``vocab_size: int | None``."""
    for decorate in (
        click.option(
            "--vocab-size", type=click.IntRange(min=1), help="Token ids lie below it; without it, rules are skipped."
        ),
        click.option("--profile", type=PATH, help="What outliers are judged by: profile.json of an audit."),
        click.option(
            "--policy",
            metavar="NAME|FILE",
            shell_complete=completing.names_or_files("none", *POLICY_NAMES),
            help="What judges samples before they are delivered; none judges nothing.  [default: as it was, else none]",
        ),
    ):
        command = decorate(command)
    return command


def gate_choice(
    policy: str | None, profile: Path | None, vocab_size: int | None, *, fill: str | None = None
) -> GateChoice:
    """What the options ask for; policy and profile are read.

    Raises
    ------
    UsageError
        The plan is to fill withheld slots in one way, and the policy says another.
    """
    from dataguard.run.policies import GateChoice

    choice = GateChoice.read(policy, profile, vocab_size)
    if choice.policy is not None and fill is not None and choice.policy.fill not in {None, fill}:
        raise UsageError(
            f"--fill {fill} and policy {choice.policy.name} disagree",
            found=f"fill = {choice.policy.fill!r} in the policy, which counts where it says so",
            todo="leave --fill out, or fill out of the policy",
        )
    return choice


def gate_settings(choice: GateChoice) -> dict[str, Any]:
    """A choice as `Run.create` and `Loader` take it, without what was not given."""
    from dataguard.run.policies import NO_POLICY

    settings = {
        "policy": NO_POLICY if choice.no_policy else choice.policy,
        "profile": choice.profile,
        "vocab_size": choice.vocab_size,
    }
    return {name: value for name, value in settings.items() if value is not None}
