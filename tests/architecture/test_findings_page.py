"""Does the page of findings say what the table in the code says?"""

from __future__ import annotations

from tests.architecture.findings import page
from tests.architecture.tree import TOP


def test_the_page_is_the_table() -> None:
    assert (TOP / "FINDINGS.md").read_text(encoding="utf-8") == page(), (
        "make it anew: python -m tests.architecture.findings > FINDINGS.md"
    )
