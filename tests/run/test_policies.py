"""The run's copies of policies: parsed once, and held against their digest each time."""

from __future__ import annotations

import pytest

from dataguard.errors import RunDamaged
from dataguard.gate.policy import named_policy
from dataguard.run.layout import Layout
from dataguard.run.policies import GateChoice, KeptChoice, keep_choice, kept_policy


@pytest.fixture
def layout(tmp_path) -> Layout:
    made = Layout(tmp_path)
    made.tmp.mkdir(parents=True)
    return made


def test_a_policy_is_parsed_once_and_is_called_as_it_is_asked_for(layout) -> None:
    kept = keep_choice(layout, GateChoice(policy=named_policy("default")), KeptChoice())
    first = kept_policy(layout, kept.policy, name="default")
    assert kept_policy(layout, kept.policy, name="default") is first
    assert first == named_policy("default")


def test_a_copy_that_changes_after_it_was_read_is_damaged(layout) -> None:
    kept = keep_choice(layout, GateChoice(policy=named_policy("default")), KeptChoice())
    kept_policy(layout, kept.policy)
    path = layout.policy(kept.policy)
    path.chmod(0o600)
    path.write_text(path.read_text() + "\n# more")
    with pytest.raises(RunDamaged, match="another policy"):
        kept_policy(layout, kept.policy)
    path.unlink()
    with pytest.raises(RunDamaged, match="cannot be read"):
        kept_policy(layout, kept.policy)
