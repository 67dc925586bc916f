"""The schemas of ``schemas/`` say what the code reads and writes, no more and no less."""

from __future__ import annotations

import json

import pytest

from dataguard.cli.schema import DOCUMENTS, schema_bytes, schema_of
from tests.architecture.tree import TOP

FOLDER = TOP / "schemas"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_schema_file_equals_the_code(name: str) -> None:
    stored = (FOLDER / f"{name}.json").read_bytes()
    assert stored == schema_bytes(name), "refresh it with: dataguard schema --write schemas"


def test_no_schema_is_left_over() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(DOCUMENTS)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_reference_resolves(name: str) -> None:
    schema = schema_of(name)
    text = json.dumps(schema)
    assert text.count('"$ref"') > 0 or "properties" in schema
    for part in text.split('"$ref": "')[1:]:
        reference = part.partition('"')[0]
        assert reference.startswith("#/$defs/")
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_documents_on_disk_have_a_schema() -> None:
    assert {"plan", "manifest", "journal-event", "loader-state", "frames-header"} <= set(DOCUMENTS)
