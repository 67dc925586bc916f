"""Make the goldens of the batch store: one file of each form, and a rank's settings and ledger.

Run once for each version of the format, never again: what it made is committed, and reading it is law.

    python -m tests.golden.make_store FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np

from dataguard.core.address import Address
from dataguard.core.microbatch import Microbatch, assemble
from dataguard.loader.keeping import kept_samples
from dataguard.run.layout import Layout
from dataguard.run.store_ledger import LetGo
from tests.run.storing import contents, kept, open_store

TEXTS = (b"a record", None, b"", "ein Satz, ünter anderen".encode())


def microbatch(*, windows: bool) -> Microbatch:
    """Four slots, the second of which delivers nothing, and one of which the gate masks."""
    numbers = np.arange(4)
    ids = [np.array([7, 8, 65_000]), None, np.array([0, 0, 0]), np.array([1, 2, 3])]
    return assemble(
        address=Address(step=9_000, rank=1, microbatch=1),
        attempt=1,
        batch=9_000,
        slots=range(12, 16),
        positions=numbers,
        status=numbers.astype(np.uint8),
        source=numbers,
        shard=numbers,
        row=numbers,
        delivered_shard=numbers,
        delivered_row=numbers,
        names=("web/a",) * 4,
        contents=ids if windows else TEXTS,
        seq_len=3 if windows else None,
        dtype=np.dtype(np.int32) if windows else None,
        masked={3: np.array([[1, 2]]) if windows else None},
    )


def make(folder: Path) -> None:
    """Write ``store-v1`` under a folder."""
    run, target = folder / "run", folder / "store-v1"
    target.mkdir(exist_ok=True)
    store = open_store(run, "last:3", rank=1, budget_bytes=1_000_000)
    made = (kept(9_000, 0), kept_samples(microbatch(windows=False)), kept_samples(microbatch(windows=True)))
    for step, one in zip((9_000, 9_001, 9_002), made, strict=True):
        store.offer(step, lambda one=one: one, last_of_step=True)
    store._shared.ledger.add(8_999, 1, 4_096, LetGo.QUEUE)
    store.close()
    layout = Layout(run)
    for step, one in zip((9_000, 9_001, 9_002), made, strict=True):
        shutil.copyfile(layout.store(1, step, 1), target / f"{one.form}.safetensors.zst")
    shutil.copyfile(layout.store_settings(1, 1), target / "settings.json")
    shutil.copyfile(layout.store_ledger(1, 1), target / "ledger.frames")
    expected = {
        one.form: {
            "digest": one.digest.hex(),
            "tensors": {name: [dtype, list(shape), data.hex()] for name, (dtype, shape, data) in contents(one).items()},
        }
        for one in made
    }
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    shutil.rmtree(run)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
