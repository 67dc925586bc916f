"""Make the goldens of journal events that came with triage. Run once, never again.

python -m tests.golden.make_triage_events FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from dataguard.run.events import encode_event, kind_of
from tests.run.test_events import NOTES, file_of

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir()
    for event in NOTES:
        (folder / f"{kind_of(event)}.json").write_bytes(encode_event(file_of(event)))
