"""Of which format and compression is this file?

1. The compression is told by the first bytes. Where they tell none and the name ends in ``.gz`` or ``.zst``, the file
   is what its name says only if no format knows its plain content: it will then be found damaged, and told.
2. Up to 64 KiB are decoded, and every format says how surely they are its own. The surest wins; by content before by
   name, ties by the name of the format.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataguard.corpus.formats.homes import HOMES, every_format, made
from dataguard.corpus.formats.protocol import Format, ScanOptions
from dataguard.corpus.formats.raw import is_raw_name
from dataguard.corpus.formats.streams import decode_head, detect_compression
from dataguard.corpus.shard_file import StoredShard
from dataguard.corpus.storage import Compression
from dataguard.errors import ManifestDamaged

__all__ = ["Recognised", "all_formats", "format_named", "recognise"]

_HEAD_BYTES = 1 << 16
_DEFAULTS = ScanOptions()
_BY_CONTENT, _BY_SIGN = 2, 3  # as `Format.recognise` counts
_ENDINGS: tuple[tuple[str, Compression], ...] = (
    (".gz", "gzip"),
    (".gzip", "gzip"),
    (".zst", "zstd"),
    (".zstd", "zstd"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What a file is."""

    format: str
    compression: Compression


def all_formats() -> tuple[Format, ...]:
    """Every format there is, in order of their names."""
    return every_format()


def format_named(name: str) -> Format:
    """The format of that name; ManifestDamaged where this version has none. The other formats are not imported."""
    if name in HOMES:
        return made(name)
    raise ManifestDamaged(
        f"no format is called {name!r}",
        found=", ".join(entry.name for entry in all_formats()),
        todo="read the manifest with the version of dataguard that wrote it, or a newer one",
    )


def recognise(shard: StoredShard, format_name: str = "", options: ScanOptions = _DEFAULTS) -> Recognised | None:
    """The format and compression of a file, None where it is of unknown kind.

    Parameters
    ----------
    shard
        What to look at; of its compression nothing need be known.
    format_name
        The only format that is wanted: None where the file is not of it. A format without a sign of its own takes
        whatever has no other format's sign.
    options
        Of the scan. Where a type of ids is given, a file that no format knows and that is called as such files are
        holds ids and nothing else.

    Raises
    ------
    OSError
        Where its first bytes cannot be read.
    """
    with shard.open() as file:
        head = file.read(_HEAD_BYTES)
    found = _recognised(head, shard.path, format_name)
    if found is not None and found.format != "raw":
        choose = None if format_name else getattr(format_named(found.format), "variant", None)
        if choose is None:
            return found
        shard.compression = found.compression
        return Recognised(format=choose(shard, options), compression=found.compression)
    is_raw = options.dtype and (format_name == "raw" or (not format_name and is_raw_name(shard.path)))
    return Recognised(format="raw", compression=_compression_of_ids(head, shard.path)) if is_raw else None


def _compression_of_ids(head: bytes, path: str) -> Compression:
    """As the name says, or as the content does; ids may begin as a compressed stream does and be none."""
    said = _said(path)
    if said != "none":
        return said
    inside = detect_compression(head)
    return inside if inside != "none" and decode_head(head, 1) else "none"


def _said(path: str) -> Compression:
    return next((kind for ending, kind in _ENDINGS if path.lower().endswith(ending)), "none")


def _recognised(head: bytes, path: str, format_name: str) -> Recognised | None:
    inside = detect_compression(head)
    if inside != "none":
        found = _best(decode_head(head, _HEAD_BYTES), _plain_name(path), format_name)
        return Recognised(format=found[1], compression=inside) if found else None
    plain = _best(head, path, format_name)
    said = _said(path)
    if said == "none" or (plain and plain[0] >= _BY_CONTENT):
        return Recognised(format=plain[1], compression="none") if plain else None
    by_name = _best(b"", _plain_name(path), format_name)
    return Recognised(format=by_name[1], compression=said) if by_name else None


def _plain_name(path: str) -> str:
    for ending, _ in _ENDINGS:
        if path.lower().endswith(ending):
            return path[: -len(ending)]
    return path


def _best(head: bytes, path: str, format_name: str) -> tuple[int, str] | None:
    """How sure, and the name of the format; None where nothing that is wanted fits."""
    from dataguard.corpus.formats.registry import WITHOUT_SIGN

    sure = {entry.name: entry.recognise(head, path) for entry in all_formats()}
    if format_name in WITHOUT_SIGN and max(sure.values()) < _BY_SIGN:
        return 1, format_name
    wanted = {name: value for name, value in sure.items() if value > 0 and format_name in ("", name)}
    if not wanted:
        return None
    best = max(wanted, key=lambda name: wanted[name])  # the first of the best in order of names
    return wanted[best], best
