"""Does a document obey the schema that stands in ``schemas/``? Asked with a validator that is not ours."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from tests.architecture.tree import TOP


def validate(document: Any, name: str) -> None:
    """Raise jsonschema.ValidationError where a document (parsed) is none of that name."""
    schema = json.loads((TOP / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
