"""Where do the token kernels keep what they need beside their input, so that no row allocates anything?

Each thread has its own, made at its first call and grown to the longest row it met; a thread's rows reuse it, and a
forked process has its parent's copy. What one very long row made large is given back after it.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from dataguard.score.kernels import tokens

__all__ = ["LARGEST_KEPT_ROW", "LARGEST_ROW", "TokenScratch", "ids_buffer", "token_scratch"]

LARGEST_ROW = 2**31 - 1
"""Tokens a row may have: dense ids and their counts are 32-bit."""
LARGEST_KEPT_ROW = 1 << 20
"""Room for longer rows is given back after the call."""

_LAST_STAMP = 2**31
"""Stamps have 32 bits; a call of 2^20 rows uses less than the other half of them."""


class TokenScratch:
    """Tables and arrays for rows of up to `num_tokens` tokens: 3 MB, and at most 65 bytes a token.

    Pages that no row touches take no memory: the tables come zeroed from the system.
    """

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        num_slots = 16
        while num_slots * 2 < num_tokens * 3:
            num_slots *= 2
        self.direct: NDArray[np.uint64] = np.zeros(tokens.DIRECT_IDS, dtype=np.uint64)
        self.table: NDArray[np.uint64] = np.zeros((num_slots, 2), dtype=np.uint64)
        self.stamps: NDArray[np.uint64] = np.zeros(1, dtype=np.uint64)
        self.dense: NDArray[np.uint32] = np.empty(num_tokens, dtype=np.uint32)
        self.classes: NDArray[np.uint64] = np.empty(num_tokens, dtype=np.uint64)
        self.counts: NDArray[np.int32] = np.empty(num_tokens, dtype=np.int32)
        self.marks: NDArray[np.uint8] = np.zeros(num_tokens, dtype=np.uint8)
        self.tallies: NDArray[np.int64] = np.zeros(tokens.NUM_SMALL_COUNTS, dtype=np.int64)
        self.logs: NDArray[np.float64] = np.empty(tokens.NUM_SMALL_COUNTS, dtype=np.float64)
        tokens.fill_small_logs(self.logs)

    def begin(self) -> None:
        """Before each call: start the stamps anew where they could run out during it."""
        if self.stamps[0] >= _LAST_STAMP:
            self.direct[:] = 0
            self.table[:] = 0
            self.stamps[0] = 0


_mine = threading.local()


def token_scratch(num_tokens: int) -> TokenScratch:
    """Scratch of this thread, large enough for rows of `num_tokens`, ready for a call."""
    scratch: TokenScratch | None = getattr(_mine, "tokens", None)
    if scratch is None or scratch.num_tokens < num_tokens:
        is_kept = num_tokens <= LARGEST_KEPT_ROW
        scratch = TokenScratch(1 << max(11, (num_tokens - 1).bit_length()) if is_kept else num_tokens)
        _mine.tokens = scratch if is_kept else None
    scratch.begin()
    return scratch


def ids_buffer(num_tokens: int) -> NDArray[np.int64]:
    """Room of this thread for `num_tokens` ids; what it holds is anything."""
    buffer: NDArray[np.int64] | None = getattr(_mine, "ids", None)
    if buffer is None or len(buffer) < num_tokens:
        buffer = np.empty(num_tokens, dtype=np.int64)
        _mine.ids = buffer if num_tokens <= LARGEST_KEPT_ROW else None
    return buffer[:num_tokens]
