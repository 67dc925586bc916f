"""Is this the file that it was, as far as what is remembered of it goes?

What is kept in memory of a shard (a footer, a table of places) is kept under its identity: of a local file its place,
inode, size and time of change, of anything else the very `ShardFile` that read it. An identity spares reading things
again; whether content is right is told by digests alone.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Hashable

from dataguard.corpus.formats.protocol import ShardFile

__all__ = ["identity_of"]


def identity_of(shard: ShardFile) -> Hashable:
    """Equal for two looks at a shard that nobody has written to between them."""
    if shard.local_path is not None:
        with contextlib.suppress(OSError):
            found = os.stat(shard.local_path)  # noqa: PTH116 - asked for every block
            return shard.local_path, found.st_ino, found.st_size, found.st_mtime_ns
    return weakref.ref(shard)
