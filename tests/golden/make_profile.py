"""Make the golden of the reference profile.

Run once for each version of the format, never again: what it made is committed, and reading it is law.

    python -m tests.golden.make_profile FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dataguard.score.profile import Profile, ProfileBuilder, encode_profile


def signals(number: int) -> dict[str, Any]:
    """Signals of records by plain arithmetic, which no library and no platform does otherwise."""
    place = np.arange(500 * number)
    return {
        "length_bytes": place * place % 100_003,
        "byte_entropy": (place * 7 % 65) / 8,
        "dup_line_fraction": np.where(place % 3 == 0, (place % 64) / 64, 0.0),
        "token_entropy": (place % 33) / 2,
    }


def profile() -> Profile:
    """Two sources, the second of a name that is not ASCII."""
    builder = ProfileBuilder()
    for number, name in enumerate(["web", "k\u00f6ln"]):
        builder.add(name, signals(1 + number))
    return builder.profile()


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / "profile-v1"
    folder.mkdir()
    (folder / "profile.json").write_bytes(encode_profile(profile()))
