"""What the tests of this room share: the story of PLAN.md, with both fills and in both modes; nobody changes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dataguard.corpus.problems import Retry
from dataguard.run.run import Run
from tests.support.story import Story, tell_story


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="session")
def substituted(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("substituted"), fill="substitute")


@pytest.fixture(scope="session")
def holes(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("holes"), skip_mode="hole", first_label=1)


@pytest.fixture
def copy(story: Story, tmp_path: Path) -> Callable[[], Story]:
    """The story's folder once more, for a test that damages it."""

    def copied() -> Story:
        folder = tmp_path / "copy"
        shutil.copytree(story.folder, folder)
        roots = {name: str(folder / name) for name in ("web", "code")}
        run = Run.open(folder / "run")
        assert run.roots() != roots, "the run remembers the first folder, so roots must be given"
        return Story(folder=folder, corpus=story.corpus, run=run, log=story.log)

    return copied


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that fails is not asked again: nobody waits in a test."""
    monkeypatch.setattr("dataguard.corpus.reader.Retry", lambda: Retry(attempts=1, pause_seconds=0.0))


def roots_of(story: Story) -> dict[str, str]:
    """Where the shards of a copied story lie."""
    return {name: str(story.folder / name) for name in ("web", "code")}
