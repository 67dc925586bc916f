"""The warm start that all incidents share, and how one is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.incidents.incident import Outcome, play
from tests.incidents.plants import MODULES, incident_named
from tests.incidents.stage import warm_start
from tests.incidents.table import ROW, row_of

_SEED = 1


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained once, whichever process comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if base.name.startswith("popen-") else base
    with _one_thread():
        return warm_start(folder / "incidents", _SEED)


@pytest.fixture
def played(
    request: pytest.FixtureRequest, tmp_path: Path, warm: Path, record_property: Callable[[str, object], None]
) -> Iterator[Callable[[str], Outcome]]:
    """Plays an incident by name; its row goes into the table."""

    def by_name(name: str) -> Outcome:
        incident = incident_named(name)
        ranks = request.getfixturevalue("ranks") if incident.settings(_SEED).world_size > 1 else None
        with _one_thread():
            outcome = play(incident, tmp_path, warm, _SEED, ranks)
        record_property(ROW, [MODULES.index(name), *row_of(outcome)])
        return outcome

    yield by_name
    for path in tmp_path.glob("checkpoints/*.pt"):  # 12 MB each
        path.unlink()


class _one_thread:  # noqa: N801 - used as a function
    """Torch on one thread: two processes share two cores, and sums come in one order."""

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)
