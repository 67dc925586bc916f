"""How do other tools write tar archives? Builders for the tests."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping

__all__ = ["archive", "webdataset"]


def archive(members: Iterable[tuple[str, bytes]], *, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """Regular files in this order, with an end mark and the usual padding."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=kind) as file:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return sink.getvalue()


def webdataset(records: Mapping[str, Mapping[str, bytes]], *, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """Records of members: key -> ending -> content."""
    return archive(
        ((f"{key}.{ending}", content) for key, members in records.items() for ending, content in members.items()),
        kind=kind,
    )
