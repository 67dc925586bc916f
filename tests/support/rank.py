"""One rank of a launch, as a process of its own. Run as ``python -m tests.support.rank WORDS`` it prints one JSON line.

The words are a JSON object: run, world_size, microbatch_size, rank and what else `Loader` takes; with stream, the one
of that name is evaluated. The line holds what was handed over (step, microbatch, SHA-256 of the slots), the attempt,
the state at the end, or the error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from functools import partial
from typing import Any

from dataguard.core.address import Geometry
from dataguard.errors import DataguardError
from dataguard.loader.loader import Loader
from dataguard.run.run import Run
from tests.support.runs import slots_of


def main(words: dict[str, Any]) -> dict[str, Any]:
    """Walk one rank to its end."""
    run = Run.open(words.pop("run"))
    stream = words.pop("stream", None)
    geometry = Geometry(world_size=words.pop("world_size"), microbatch_size=words.pop("microbatch_size"))
    state = words.pop("state", None)
    delivered: list[tuple[int, int, str]] = []
    slots: list[str | None] = []
    try:
        make = partial(Loader, run) if stream is None else run.stream(stream).loader
        with make(geometry=geometry, **words) as loader:
            if state is not None:
                loader.load(state)
            for microbatch in loader:
                held = slots_of(microbatch)
                slots += [slot.decode() if isinstance(slot, bytes) else None for slot in held]
                digest = hashlib.sha256(repr(held).encode()).hexdigest()
                delivered.append((microbatch.step, microbatch.address.microbatch, digest))
            state = loader.state() if stream is None else None
    except DataguardError as error:
        return {"delivered": delivered, "slots": slots, "kind": type(error).__name__, "error": str(error)}
    assert loader.attempt is not None
    return {
        "delivered": delivered,
        "slots": slots,
        "attempt": loader.attempt.number,
        "state": None if state is None else state.to_dict(),
        "pid": os.getpid(),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
