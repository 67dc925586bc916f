"""No kernel reads or writes outside an array: the tests of the kernels once more, with every index checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import TOP
from tests.support.processes import environment

CHECKED = "tests/score/test_token_kernels.py"


def test_every_index_of_the_token_kernels_is_inside(tmp_path: Path) -> None:
    # A cache of its own: numba keeps checked and unchecked code under one key.
    env = environment(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CHECKED]
    done = subprocess.run(words, cwd=TOP, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert list(tmp_path.rglob("tokens.score_rows*.nbc")), "the kernels were compiled anew"


def test_the_check_would_see_it(tmp_path: Path) -> None:
    code = (
        "import numpy as np\n"
        "from dataguard.score.kernels import tokens\n"
        "from dataguard.score.scratch import TokenScratch\n"
        "s = TokenScratch(2)\n"
        "s.counts = s.counts[:1]\n"
        "tokens.count_ngrams(np.arange(2), np.array([0, 2]), 1, s.direct, s.table, s.stamps, s.dense, s.classes,"
        " s.counts, np.zeros(1, dtype=np.int64))\n"
    )
    env = environment(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
