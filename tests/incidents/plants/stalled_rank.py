"""One rank stops before a step and says nothing; the other waits for it until it gives up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dataguard import Run
from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, Played, clean
from tests.incidents.stage import Fault, Settings, Stage
from tests.incidents.training import Training

_STEP, _RANK = 60, 1
_LINES = {
    Verdict.HARDWARE: "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus.",
    Verdict.APPLICATION: "kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000010, intr 00000000. "
    "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2d_10000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ",
}


class _Stall(Fault):
    def before_step(self, training: Training, step: int) -> None:
        if step == _STEP and training.rank == _RANK:
            time.sleep(600)


def _answers(stage: Stage, settings: Settings, run: Run) -> tuple[Any, Mapping[str, Any]]:
    """An engineer looks ten minutes later; then with what the machine's kernel says, of one kind and of another."""
    from dataguard.triage.evidence import read_machine_logs
    from dataguard.triage.triage import triage

    now = time.time() + 600
    others = {}
    for verdict, line in _LINES.items():
        path = stage.folder / f"node-{_RANK}.dmesg"
        at = datetime.fromtimestamp(time.time() - 5, UTC).isoformat(timespec="seconds")
        path.write_text(f"{at} node-{_RANK} {line}\n")
        logs = read_machine_logs([f"node-{_RANK}={path}"])
        others[verdict] = triage(run, machine_logs=logs, now_seconds=now, note=False)
    return triage(run, now_seconds=now), others


def _place(played: Played) -> tuple[str, bool]:
    event = played.answer.event
    found = {verdict: answer.diagnosis.verdict for verdict, answer in played.more.items()}
    told = f"rank {None if event is None else event.rank}"
    told += "".join(f"; {line.value} line: {verdict.value}" for line, verdict in found.items())
    is_rank = event is not None and event.rank == _RANK
    return told, is_rank and all(line == verdict for line, verdict in found.items())


INCIDENT = Incident(
    name="stalled_rank",
    segments=lambda generator: [clean(generator, 80)],
    settings=lambda seed: Settings(num_steps=80, world_size=2, watch_every=0, timeout_seconds=10.0, fault=_Stall()),
    classes=frozenset({EventClass.STALL}),
    verdicts=frozenset({Verdict.INCONCLUSIVE}),
    place=_place,
    answers=_answers,
    first_to_fail=0,
)
