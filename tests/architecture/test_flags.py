"""The set of command-line flags is frozen: it cannot grow, or lose one, by accident."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.flags import lines

FROZEN = Path(__file__).with_name("flags.txt")


def test_flags_are_the_frozen_ones() -> None:
    frozen, found = set(FROZEN.read_text().splitlines()), set(lines())
    told = [f"+ {line}" for line in sorted(found - frozen)] + [f"- {line}" for line in sorted(frozen - found)]
    assert not told, "\n".join(["CONTRIBUTING.md says how to thaw the list; it differs:", *told])


def test_every_command_answers_a_script_and_helps() -> None:
    """Whatever answers takes --json; whatever amends a run takes --dry-run and wants a reason or an event."""
    found = set(lines())
    for command in ("plan", "rehearse", "log", "inspect", "replay", "where", "seen", "verify", "seal", "compact"):
        assert f"dataguard {command} --json" in found
    for command in ("manifest build", "manifest show", "manifest verify", "schema"):
        assert f"dataguard {command} --json" in found
    for command in ("skip", "quarantine", "release", "revoke"):
        assert {f"dataguard {command} --json", f"dataguard {command} --dry-run"} <= found
    assert {"dataguard skip --reason", "dataguard quarantine --reason"} <= found
