"""A command as a person sees it: with standard output and standard error on a terminal, in this process."""

from __future__ import annotations

import os
import pty
import sys
import threading
import tty
from collections.abc import Sequence

import pytest

from dataguard.cli.main import main


def on_terminal(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes]:
    """Exit code, and every byte that reached the terminal."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                return
            if not part:
                return
            seen.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(slave, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            code = main(list(words))
    finally:
        reader.join(60)
        os.close(master)
    return code, b"".join(seen)
