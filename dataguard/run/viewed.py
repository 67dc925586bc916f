"""How does one look at a run from Python: in one line, in a notebook, and as frames?

The side of a `Run` that is for people. Frames are made by `dataguard.replay.frames`, which stands above this room and
needs polars; both are imported when they are asked for, so that no loader and no worker ever loads polars.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dataguard.core.notebook import guarded

if TYPE_CHECKING:
    from dataguard.run.events import RunCreated
    from dataguard.run.layout import Layout

__all__ = ["RunViews"]

_FRAMES = "dataguard.replay.frames"


class RunViews:
    """What shows a run; `Run` is one, and has what is declared here."""

    document: RunCreated
    layout: Layout

    def __repr__(self) -> str:
        of = f", stream {self.document.stream.name!r}" if self.document.stream else ""
        return f"<Run {str(self.layout.root)!r} {self.document.run[:16]}{of}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it; a damaged run shows that it is damaged."""
        from dataguard.run.run import Run
        from dataguard.run.shown import run_html

        assert isinstance(self, Run), "nothing else has these"
        run = self
        return guarded(repr(run), lambda: run_html(run))

    def index_frame(
        self,
        *,
        attempt: int | None = None,
        live: bool = True,
        steps: tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
        damage: list[str] | None = None,
    ) -> Any:
        """What was handed over as a `polars.DataFrame`, a row a slot; see `dataguard.replay.frames.index_frame`."""
        made = import_module(_FRAMES).index_frame
        return made(self, attempt=attempt, live=live, steps=steps, columns=columns, damage=damage)

    def telemetry_frame(
        self,
        *,
        attempt: int | None = None,
        live: bool = True,
        steps: tuple[int, int] | None = None,
        names: Collection[str] | None = None,
        samples: bool = False,
        damage: list[str] | None = None,
    ) -> Any:
        """What was logged as a `polars.DataFrame`, a row a step and rank, a column a name.

        See `dataguard.replay.frames.telemetry_frame`.
        """
        made = import_module(_FRAMES).telemetry_frame
        return made(self, attempt=attempt, live=live, steps=steps, names=names, samples=samples, damage=damage)
