"""Make the goldens of journal events that came with training. Run once, never again.

python -m tests.golden.make_training_events FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from dataguard.run.events import encode_event
from tests.run.test_events import OF_TRAINING, file_of

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir()
    for name, event in OF_TRAINING.items():
        (folder / f"{name}.json").write_bytes(encode_event(file_of(event)))
