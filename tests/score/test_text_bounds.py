"""No text kernel reads or writes outside an array: with every index checked, and between pages nobody may touch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import TOP
from tests.support.processes import environment

CHECKED = "tests/score/test_text_kernels.py"

BETWEEN_PAGES = """
import ctypes, mmap
import numpy as np
from dataguard.score.registry import select
from dataguard.score.text import score_buffers

names = [spec.name for spec in select(None, "text")]
page = mmap.PAGESIZE
area = mmap.mmap(-1, 3 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(area))
whole = np.frombuffer(area, dtype=np.uint8)[page : 2 * page]
protect = ctypes.CDLL(None, use_errno=True).mprotect
for guard in (start, start + 2 * page):
    assert protect(ctypes.c_void_p(guard), ctypes.c_size_t(page), ctypes.c_int(0)) == 0
for piece in (b"word and words ", b"x", "h\\u00e9\\u6f22 ".encode(), b"\\n", b"<a>1... ", b"\\xf0\\x9f"):
    for length in [*range(140), 184, 248, 256, 257, 320, 1000, page]:
        text = np.frombuffer((piece * page)[:length], dtype=np.uint8)
        for place in (0, page - length):
            whole[:] = 0x78
            whole[place : place + length] = text
            values = whole if place else whole[:length]
            there = score_buffers(values, np.array([place, place + length]), names)
            at_end = score_buffers(whole[place:], np.array([0, length]), names)
            here = score_buffers(text, np.array([0, length]), names)
            assert all(there[name].tobytes() == here[name].tobytes() == at_end[name].tobytes() for name in names)
BREACH
print("inside")
"""
BREACH = "ctypes.string_at(start + 3 * page - 1, 1)"


def test_every_index_of_the_text_kernels_is_inside(tmp_path: Path) -> None:
    # A cache of its own: numba keeps checked and unchecked code under one key.
    env = environment(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CHECKED]
    done = subprocess.run(words, cwd=TOP, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    for kernel in ("measure", "classify", "follow_runs", "cut_lines", "number_words", "find_repeats"):
        assert list(tmp_path.rglob(f"text_*.{kernel}-*.nbc")), f"{kernel} was compiled anew"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect is called the way Linux has it")
def test_loads_of_whole_words_stay_inside_too() -> None:
    """What the kernels load eight or 64 bytes at a time, no check of indices sees; the processor does."""
    for breach, code, told in (("", 0, "inside\n"), (BREACH, -11, "")):
        words = [sys.executable, "-c", BETWEEN_PAGES.replace("BREACH", breach)]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout) == (code, told), done.stderr[-2000:]
