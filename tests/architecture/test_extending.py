"""A format, a signal and a rule of a detector: is each added by one file and one registration?

It is done in a copy of the package, as CONTRIBUTING.md tells it, and then used as its users would.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import PACKAGE, TOP

ADDED = Path(__file__).with_name("extending")

FORMAT = (
    "corpus/formats",
    "stanzas.py",
    "homes.py",
    '    "text": "text:PlainText",\n',
    '    "stanzas": "stanzas:Stanzas",\n',
)
TEXT_SIGNAL = (
    "score",
    "vowels.py",
    "registry.py",
    '    _text("mean_word_chars", "characters", "characters of words / words"),\n',
    """    SignalSpec(
        name="vowel_fraction",
        kind="text",
        unit="fraction",
        low=0,
        high=1,
        definition="vowels / bytes",
        scorer="vowels:vowel_fraction",
    ),
""",
)
TOKEN_SIGNAL = (
    "score",
    "ends.py",
    "registry.py",
    '    _token("fertility", "ratio", "tokens / bytes of the text they came from", needs=("text_bytes",)),\n',
    """    SignalSpec(
        name="last_token",
        kind="tokens",
        unit="tokens",
        low=-inf,
        high=inf,
        whole=True,
        definition="the last id",
        scorer="ends:last_token",
    ),
""",
)
RULE = ("triage/detect", "doubling.py", "profiles.py", '    "lightning": lightning,\n', '    "doubling": doubling,\n')


def add(package: Path, folder: str, file: str, table: str, after: str, entry: str) -> None:
    """One file, and one entry in one table."""
    shutil.copy(ADDED / file, package / folder / file)
    path = package / folder / table
    text = path.read_text()
    assert text.count(after) == 1
    path.write_text(text.replace(after, after + entry))


def test_each_is_one_file_and_one_registration(tmp_path) -> None:
    package = tmp_path / "dataguard"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc"))
    for each in (FORMAT, TEXT_SIGNAL, TOKEN_SIGNAL, RULE):
        add(package, *each)
    profiles = package / "triage" / "detect" / "profiles.py"
    imports = "from dataguard.errors import UsageError\n"
    profiles.write_text(
        profiles.read_text().replace(imports, f"{imports}from dataguard.triage.detect.doubling import doubling\n")
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ADDED / "used.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "DATAGUARD_CACHE_DIR": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"events": [[7, 8]]}


def test_contributing_tells_of_what_is_added_here() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text()
    for folder, file, table, _, _ in (FORMAT, TEXT_SIGNAL, TOKEN_SIGNAL, RULE):
        assert f"`tests/architecture/extending/{file}`" in text
        assert f"`dataguard/{folder}/{table}`" in text
