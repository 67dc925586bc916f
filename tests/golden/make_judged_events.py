"""Make the goldens of journal events as a run with a policy writes them. Run once, never again.

python -m tests.golden.make_judged_events FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from dataguard.run.events import encode_event, kind_of
from tests.run.test_events import JUDGED, file_of

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir()
    for event in JUDGED:
        (folder / f"{kind_of(event)}.json").write_bytes(encode_event(file_of(event)))
