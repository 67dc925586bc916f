"""``dataguard schema``: the schema of a document, the list of them, and the files."""

from __future__ import annotations

import json

import pytest

from dataguard.cli.main import main
from dataguard.cli.schema import DOCUMENTS, schema_bytes


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_schema_is_printed_as_its_file_holds_it(name, capsys) -> None:
    assert main(["schema", name]) == 0
    told = capsys.readouterr()
    assert told.out.encode() == schema_bytes(name)
    assert told.err == ""
    assert json.loads(told.out)["title"] == f"dataguard {name}"


def test_without_a_name_the_names_are_listed(capsys) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.split() == sorted(DOCUMENTS)
    assert main(["schema", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == sorted(DOCUMENTS)


def test_an_unknown_document_is_met_with_the_known_ones(capsys) -> None:
    assert main(["schema", "plam"]) == 2
    told = capsys.readouterr().err
    assert "did you mean plan?" in told


def test_all_schemas_are_written_into_a_folder(tmp_path, capsys) -> None:
    folder = tmp_path / "new" / "schemas"
    assert main(["schema", "--write", str(folder)]) == 0
    assert sorted(path.stem for path in folder.iterdir()) == sorted(DOCUMENTS)
    assert all(path.read_bytes() == schema_bytes(path.stem) for path in folder.iterdir())
    assert main(["schema", "plan", "--write", str(folder)]) == 2
    capsys.readouterr()
