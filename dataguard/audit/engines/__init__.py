"""Who does the tasks of an audit? One seam, and an engine a file.

An engine is given the tasks that are left, in order, and sees to it that each part is kept. It decides nothing: parts
are the same whoever makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO, Protocol

from dataguard.audit.job import Job
from dataguard.audit.tasks import Task

__all__ = ["Content", "Engine", "Keep"]

Content = bytes | Callable[[BinaryIO], None]
"""A part, or what writes it to an open file."""

Keep = Callable[[Task, Content], None]
"""Gives a part its name, whole or not at all; may be called from any thread. EnvironmentFailed where it cannot."""


class Engine(Protocol):
    """Does tasks."""

    def run(self, job: Job, tasks: Sequence[Task], keep: Keep) -> None:
        """Do all of them, and keep each part once.

        Parameters
        ----------
        job
            What is scored; can be pickled.
        tasks
            Those that are left, in the order of their numbers.
        keep
            See `Keep`.

        Raises
        ------
        EnvironmentFailed
            A worker died, or a part could not be kept. Parts that were kept stay.
        KeyboardInterrupt
            Likewise.
        """
        ...
