"""How is a transform found by its name, and torch left alone where nobody needs it?

A function of somebody's own is imported when it is named on the command line, and never because a record names it. What
comes with dataguard is found by the name that the attempt recorded, where torch is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from dataguard.errors import UsageError

if TYPE_CHECKING:
    from dataguard.replay.rebuild import Rebuilder
    from dataguard.replay.replay import Remake, Remaking

__all__ = ["remaking_of"]

_OURS = "dataguard.torch.transforms:"


def remaking_of(transform: str | None, collate: str | None) -> Remaking:
    """What makes tensors again, of functions given as ``MODULE:NAME``.

    Raises
    ------
    UsageError
        They cannot be imported, or torch is not installed.
    """
    if transform is not None or collate is not None:
        if find_spec("torch") is None:
            raise UsageError(
                "tensors cannot be made again without torch", todo="pip install 'dataguard[torch]', into this Python"
            )
        from dataguard.torch.replaying import imported, remaking

        return remaking(
            None if transform is None else imported(transform), None if collate is None else imported(collate)
        )

    def ours(rebuilder: Rebuilder) -> Remake | None:
        assert rebuilder.transform is not None, "the attempt delivered tensors"
        if not rebuilder.transform.name.startswith(_OURS) or find_spec("torch") is None:
            return None
        from dataguard.torch.replaying import remaking

        return remaking()(rebuilder)

    return ours
