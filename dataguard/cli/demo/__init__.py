"""What does the whole story look like on this machine? ``dataguard demo``.

`command` parses and answers; `trained` and `rehearsed` tell the two stories on a `Stage`, which runs each command as a
process; `poisoned` and `damaged` write their corpora from what `texts` finds. ``files/train.py`` is no module of this
package but a script that is copied for people to read and to run: it alone imports torch.
"""

from __future__ import annotations

from dataguard.cli.demo.answers import DemoAnswer
from dataguard.cli.demo.command import demo

__all__ = ["DemoAnswer", "demo"]
