"""How is the `Loader` under a `GuardedLoader` opened: once for a run, anew for each evaluation of a named stream?

What fails here is announced to the other ranks, so that none of them waits for this one. Processes that share a rank
agree on each microbatch for one walk alone, so each loader has a `Replica` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataguard.core.address import Geometry
from dataguard.loader.loader import Loader
from dataguard.run.run import Run
from dataguard.torch.making import Recipe
from dataguard.torch.ranks.place import Place, place_of
from dataguard.torch.ranks.replicas import Replica, ReplicaMode
from dataguard.torch.reading import Readings
from dataguard.torch.transform import identity_of
from dataguard.torch.transforms import settings_of

__all__ = ["Opening"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """All that a loader is opened with."""

    run: Run
    geometry: Geometry
    place: Place
    readings: Readings
    replica: ReplicaMode
    pin_memory: bool
    settings: Mapping[str, Any]
    """Further ones of `Loader`."""

    @classmethod
    def of(
        cls,
        run: Run,
        recipe: Recipe,
        readings: Readings,
        *,
        geometry: Geometry,
        place: Mapping[str, Any],
        replica: ReplicaMode,
        pin_memory: bool,
        version: str | None,
        settings: Mapping[str, Any],
    ) -> Opening:
        """Find out which rank this process is, and what makes its tensors; `place` is what `place_of` is told."""
        timeout_seconds = settings.get("join_timeout_seconds", 120.0)
        here = place_of(geometry, timeout_seconds=timeout_seconds, **place)
        with here.announcing():
            identity = identity_of(
                recipe.transform,
                version=version,
                collate=recipe.collate,
                settings={
                    "labels": ",".join(recipe.label_names),
                    "ignore index": recipe.ignore_index,
                    **settings_of(recipe.transform),
                },
            )
        return cls(
            run=run,
            geometry=geometry,
            place=here,
            readings=readings,
            replica=replica,
            pin_memory=pin_memory,
            settings={**settings, "transform": identity},
        )

    def open(self, **settings: Any) -> tuple[Replica | None, Loader]:
        """A loader, and what this process shares its rank by; `settings` come before those that are held here."""
        with self.place.announcing():
            replica = self.place.replica(self.replica, pin_memory=self.pin_memory)
            loader = Loader(
                self.run,
                geometry=self.geometry,
                rank=self.place.rank,
                reading=self.readings if replica is None else replica.reading(self.readings),
                peers=self.place.peers,
                **{**self.settings, **settings},
            )
        return replica, loader
