"""When does a stream load the compiler? Never for a walk, once for a large permutation."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
from dataguard.plan.plan import Plan
from tests.bench.synthetic import manifest_of

stream = Plan(manifest_of(1_000, 100), seed=17, global_batch=64).stream(bulk=True)
stream.samples(np.arange(1_000))
assert "numba" not in sys.modules
small = stream.samples(np.arange(64)).row
stream.samples(np.arange(70_000))
assert "numba" in sys.modules
assert np.array_equal(stream.samples(np.arange(64)).row, small)
"""


def test_a_walk_does_without_it() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
