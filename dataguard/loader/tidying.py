"""How is the record of dead attempts made small while this one delivers?

In a thread of its own, so that neither the first microbatch nor an end by a signal waits for it. A trainer that ends
without closing its loader ends the thread first: it stops at the next file, for an interpreter must not be taken down
around a thread that is at work in a library. What is not compacted then is compacted by the next attempt.
"""

from __future__ import annotations

import atexit
import os
import threading

from dataguard.errors import DataguardError
from dataguard.run.run import Run
from dataguard.run.tidy import compact_ended

__all__ = ["Tidying"]


class Tidying:
    """Compacts the attempts before one.

    Parameters
    ----------
    run, before
        What is compacted.
    background
        In a thread, from now on; else when `finish` is called.
    """

    def __init__(self, run: Run, before: int, *, background: bool) -> None:
        self.notes: tuple[str, ...] = ()
        """What could not be done."""
        self._path = run.path
        self._before = before
        self._leave = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="dataguard-compact", daemon=True)
        if background:
            self._thread.start()
            atexit.register(self._let_go)

    def finish(self) -> None:
        """Wait until it is done."""
        if self._thread.ident is None:
            self._work()
        else:
            self._thread.join()
            atexit.unregister(self._let_go)

    def _let_go(self) -> None:
        """Before the interpreter ends: stop at the next file, and wait for that."""
        self._leave.set()
        if os.getpid() == self._pid:  # a fork has no such thread
            self._thread.join()

    def _work(self) -> None:
        try:
            self.notes = compact_ended(Run.open(self._path), self._before, leave=self._leave.is_set)
        except DataguardError as error:
            # What goes wrong there must not end this attempt.
            self.notes = (f"earlier attempts could not be compacted: {str(error).splitlines()[0]}",)
