"""Position <-> sample, step <-> batch <-> position, attempts, skips and withheld rows, and the `Plan` that holds them.

In come manifests and small integers; out go values. Nothing here reads a file, a clock or the environment, and nothing
walks the stream: every question about one step or one position costs the same wherever it lies.

- `plan.document`: what is written down of a plan; `plan.plan`: the plan as one value, with its manifests.
- `plan.stream` (over lanes, mixture, generations, order, tables, stages, inverse): which sample stands at a position.
- `plan.attempts`, `plan.cutting`, `plan.steps`, `plan.skips`: which positions a step holds, along which attempts.
- `plan.withheld`, `plan.slots`: what a slot holds when its row may not be trained on.
- `plan.state`: what a trainer keeps to go on.

Public names are imported when they are first used: whoever reads the journal alone does not pay for the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.plan.attempts import AttemptPlan as AttemptPlan
    from dataguard.plan.attempts import AttemptTree as AttemptTree
    from dataguard.plan.attempts import Skip as Skip
    from dataguard.plan.document import PlanDocument as PlanDocument
    from dataguard.plan.plan import Plan as Plan
    from dataguard.plan.slots import PlannedSlots as PlannedSlots
    from dataguard.plan.slots import SlotStatus as SlotStatus
    from dataguard.plan.slots import plan_slots as plan_slots
    from dataguard.plan.state import LoaderState as LoaderState
    from dataguard.plan.steps import Steps as Steps
    from dataguard.plan.stream import Stream as Stream
    from dataguard.plan.withheld import Withheld as Withheld
    from dataguard.plan.withheld import WithheldSet as WithheldSet

__all__ = [
    "AttemptPlan",
    "AttemptTree",
    "LoaderState",
    "Plan",
    "PlanDocument",
    "PlannedSlots",
    "Skip",
    "SlotStatus",
    "Steps",
    "Stream",
    "Withheld",
    "WithheldSet",
    "plan_slots",
]

_HOMES = {
    "AttemptPlan": "attempts",
    "AttemptTree": "attempts",
    "LoaderState": "state",
    "Plan": "plan",
    "PlanDocument": "document",
    "PlannedSlots": "slots",
    "Skip": "attempts",
    "SlotStatus": "slots",
    "Steps": "steps",
    "Stream": "stream",
    "Withheld": "withheld",
    "WithheldSet": "withheld",
    "plan_slots": "slots",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
