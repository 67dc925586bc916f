"""The suite without pytest: ``python -m tests.incidents [--seed N] [--only NAME ...] [--keep FOLDER]``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path

import torch

from tests.incidents.incident import play
from tests.incidents.plants import MODULES, incident_named
from tests.incidents.stage import warm_start
from tests.incidents.table import row_of, rows_as_text
from tests.torch.forking import forked_ranks


def main() -> int:
    """Play them all and print the table; 1 where one is not right."""
    parser = argparse.ArgumentParser(prog="python -m tests.incidents", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=MODULES, nargs="+", default=list(MODULES))
    parser.add_argument("--keep", type=Path, help="keep corpora, runs and checkpoints there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="incidents-")) if arguments.keep is None else arguments.keep
    rows, num_wrong = [], 0
    with ExitStack() as kept:
        if arguments.keep is None:
            kept.callback(shutil.rmtree, folder)
        ranks = kept.enter_context(forked_ranks())
        warm = warm_start(folder, arguments.seed)
        for name in arguments.only:
            home = folder / f"{name}-{arguments.seed}"
            home.mkdir()
            try:
                outcome = play(incident_named(name), home, warm, arguments.seed, ranks)
            except Exception:  # noqa: BLE001 - the others are played all the same
                traceback.print_exc()
                rows.append((name, "-", "-", "-", "no: it could not be played", "-"))
                num_wrong += 1
                continue
            rows.append(row_of(outcome))
            num_wrong += not outcome.right
            print(f"{name}: {'right' if outcome.right else outcome.wrong}", file=sys.stderr, flush=True)
    print("\n".join(rows_as_text(rows)))
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
