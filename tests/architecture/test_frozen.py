"""What others build on is frozen: names and how they are called, signals, words of closed lists, file names."""

from __future__ import annotations

import pytest

from examples.docs.public import PUBLIC_MODULES
from tests.architecture.frozen import FOLDER, LISTS


@pytest.mark.parametrize("file", LISTS)
def test_it_is_as_it_was(file: str) -> None:
    frozen, found = (FOLDER / file).read_text().splitlines(), list(LISTS[file]())
    told = [f"+ {line}" for line in found if line not in set(frozen)]
    told += [f"- {line}" for line in frozen if line not in set(found)]
    assert not told, "\n".join([f"CONTRIBUTING.md says how to thaw {file}; it differs:", *told])
    assert found == frozen, f"the order of {file} differs"


def test_no_list_is_left_over() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(LISTS)


def test_public_modules_stand_in_order() -> None:
    assert list(PUBLIC_MODULES) == sorted(set(PUBLIC_MODULES))
