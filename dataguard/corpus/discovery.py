"""Which shards does a source hold, in which order, and of which format is each?

1. `spelling.understand` says what was asked for: sources with a root each.
2. The root is walked. The order is the byte order of relative paths, whatever the file system's listing order, the
   locale or the spelling of the root; the shards of a dataset that says itself in which order they are
   (saved_datasets.py) take that order in the places that they have.
3. Hidden, temporary and marker files are ignored (ignoring.py); a file reached by two spellings counts once; what
   cannot be a shard (a broken link, a fifo, a name that is no UTF-8, ...) is told.
4. The first bytes of each remaining file decide its format, and files that make one shard are put together
   (companions.py). A file of unknown kind is ignored where it was found in a folder, and refused where it was named on
   the command line.

5. A source is of one kind. Where text and tokens lie below one root, a source that was not given a name becomes two,
   the tokens under the name with ``-tokens`` behind it.

Nothing disappears without a count: every file met is a shard or an `IgnoredFile` with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from dataguard.core.manifest import SourceKind
from dataguard.corpus.companions import Pair, pairs_among
from dataguard.corpus.formats.protocol import Declared, ScanOptions
from dataguard.corpus.ignoring import why_ignored
from dataguard.corpus.indexes import read_indexes
from dataguard.corpus.recognition import all_formats, format_named, recognise
from dataguard.corpus.saved_datasets import arrange
from dataguard.corpus.shard_file import ByteCounter, StoredShard
from dataguard.corpus.spelling import Pattern, Pick, SourceSpec, understand
from dataguard.corpus.storage import Compression, Entry, Root, open_root, readable
from dataguard.errors import InputError, UsageError

__all__ = ["Discovery", "FoundShard", "FoundSource", "IgnoredFile", "discover"]

_HEAD_THREADS = 8
_HOW_TO_FORCE = (
    "give --format NAME or --dtype where the content does not tell, as with plain text or ids without header"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFile:
    """A file that was met and is no shard."""

    source: str
    path: str
    """Relative to the source's root; a name that is no UTF-8 with its bytes as ``\\xNN``."""
    reason: str
    is_serious: bool = False
    """Whether data may be hidden behind it (an unreadable folder, a broken link): the corpus may be incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundShard:
    """A shard before it was scanned."""

    path: str
    """Relative to the source's root."""
    size_bytes: int
    format: str
    """Empty where the file could not be read at all."""
    compression: Compression
    trouble: str = ""
    """Why it could not be read; empty where it could."""
    declared: Declared | None = None
    """What an index says of it (indexes.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """A source and its shards, in the order that they have in the manifest."""

    name: str
    root: str
    kind: SourceKind
    shards: tuple[FoundShard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """All that was found."""

    sources: tuple[FoundSource, ...]
    """In byte order of names."""
    ignored: tuple[IgnoredFile, ...]
    """In byte order of source and path."""


def discover(
    sources: Sequence[str],
    *,
    options: ScanOptions | None = None,
    format_name: str = "",
    leave_out: Callable[[Root, str], bool] | None = None,
    counter: ByteCounter | None = None,
) -> Discovery:
    """Find the shards of every source.

    Parameters
    ----------
    sources
        ``PATH`` or ``NAME=PATH``: folders, files, patterns, URLs.
    options
        Of the scan; some of them say what a file is.
    format_name
        The only format that is wanted, for files that their content does not tell or tells wrongly; empty for any.
    leave_out
        Says of (root, relative path) whether it is this command's own output.
    counter
        Counts the bytes read to recognise formats.

    Raises
    ------
    UsageError
        A path that does not exist, a pattern or folder that holds no shard, a named file of unknown kind (or not of
        the format that is wanted), a named source that mixes text and tokens, a format that there is not.
    """
    known = [entry.name for entry in all_formats()]
    if format_name and format_name not in known:
        raise UsageError(f"no format is called {format_name!r}", allowed=", ".join(known))
    options = options or ScanOptions()
    if format_name == "raw" and not options.dtype:
        raise UsageError("ids without a header do not say of which type they are", todo="give it: --dtype uint16")
    wanted = _Wanted(options=options, format_name=format_name)
    counter = counter or ByteCounter()
    found, ignored = list[FoundSource](), list[IgnoredFile]()
    specs = understand(sources)
    taken = {spec.name for spec in specs}
    for spec in specs:
        source, others = _discover_source(spec, wanted, leave_out or (lambda _root, _path: False), counter)
        found.extend(_by_kind(source, spec, taken))
        ignored.extend(others)
    found.sort(key=lambda source: source.name.encode())
    return Discovery(sources=tuple(found), ignored=tuple(ignored))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What files are looked at for."""

    options: ScanOptions
    format_name: str
    """The only format that is wanted, empty for any."""


def _discover_source(
    spec: SourceSpec, wanted: _Wanted, leave_out: Callable[[Root, str], bool], counter: ByteCounter
) -> tuple[FoundSource, list[IgnoredFile]]:
    root, format_name = open_root(spec.root), wanted.format_name
    entries, ignored, named = _collect(spec, root, leave_out)
    if not entries and not any(item.is_serious for item in ignored):
        raise _nothing(spec, ignored)

    def look(entry: Entry) -> FoundShard | None:
        return _look(spec, root, entry, wanted, counter)

    with ThreadPoolExecutor(max_workers=_HEAD_THREADS, thread_name_prefix="dataguard-discover") as pool:
        looked = list(pool.map(look, entries))
    formats = {entry.path: shard.format if shard else "" for entry, shard in zip(entries, looked, strict=True)}
    indexed = read_indexes(root, formats, named=named)
    formats = {path: kind for path, kind in formats.items() if path not in indexed.ignored}
    ignored += [IgnoredFile(source=spec.name, path=path, reason=why) for path, why in indexed.ignored.items()]
    pairs = pairs_among(root, formats, format_name)
    by_path = {path: pair for pair in pairs for path in pair.paths}
    shards = []
    for entry, shard in zip(entries, looked, strict=True):
        pair = by_path.get(entry.path)
        if entry.path in indexed.ignored:
            continue
        if entry.path in indexed.troubled:
            shards.append(_troubled(entry.path, indexed.troubled[entry.path], entry.size_bytes))
        elif pair is not None:
            if entry.path == pair.path or pair.path not in formats:  # in the place of the file that names it
                shards.append(_of_pair(pair))
        elif shard is not None:
            shards.append(replace(shard, declared=indexed.declared.get(entry.path)))
        elif entry.path in named:
            raise UsageError(
                f"{named[entry.path]} is {'not of format ' + format_name if format_name else 'of unknown kind'}",
                allowed=_readable_kinds(),
                todo=None if format_name else _HOW_TO_FORCE,
            )
        else:
            reason = f"not of format {format_name}" if format_name else "unknown kind"
            ignored.append(IgnoredFile(source=spec.name, path=entry.path, reason=reason))
    for path, why in sorted(indexed.troubled.items()):
        if path not in formats:  # listed, and not there: where it would stand
            place = next((i for i, shard in enumerate(shards) if shard.path.encode() > path.encode()), len(shards))
            shards.insert(place, _troubled(path, why, 0))
    ignored.sort(key=lambda item: item.path.encode())
    if not shards:
        raise _nothing(spec, ignored)
    return (
        FoundSource(name=spec.name, root=root.url, kind="text", shards=tuple(shards)),
        ignored,
    )


def _troubled(path: str, why: str, size_bytes: int) -> FoundShard:
    return FoundShard(path=path, size_bytes=size_bytes, format="", compression="none", trouble=why)


def _of_pair(pair: Pair) -> FoundShard:
    return FoundShard(path=pair.path, size_bytes=pair.size_bytes, format=pair.format, compression="none")


def _collect(
    spec: SourceSpec, root: Root, leave_out: Callable[[Root, str], bool]
) -> tuple[list[Entry], list[IgnoredFile], dict[str, str]]:
    """(possible shards in order, ignored files, path -> spelling of those named on the command line)."""
    ignored: list[IgnoredFile] = []
    named = {pick.path: pick.spelled for pick in spec.picks if pick.path}
    kept: dict[str, Entry] = {}
    everything: dict[str, set[str]] = {}
    for path, spelled in list(named.items()):
        kept[path] = _named_entry(root, path, spelled)
    for pick in spec.picks:
        if pick.path:
            continue
        met = list(_met(root, pick))
        beside: dict[str, set[str]] = {}
        for entry in met:
            folder, _, name = entry.path.rpartition("/")
            beside.setdefault(folder, set()).add(name)
            everything.setdefault(folder, set()).add(name)
        for entry in met:
            if entry.path in kept:
                continue
            if pick.files and not entry.trouble:  # named one by one, by the dataset itself
                kept[entry.path], named[entry.path] = entry, f"{entry.path} of {pick.spelled}"
                continue
            path = readable(entry.path)
            reason, serious = entry.trouble, entry.is_serious
            if not reason and path != entry.path:
                reason, serious = "its name is not valid UTF-8", True
            usual = why_ignored(path, frozenset(beside[entry.path.rpartition("/")[0]]))
            if usual and not (usual == "hidden" and "/." in f"/{pick.pattern}"):
                reason, serious = usual, False
            if not reason and leave_out(root, entry.path):
                reason = "output of this command"
            if reason:
                ignored.append(IgnoredFile(source=spec.name, path=path, reason=reason, is_serious=serious))
            else:
                kept[entry.path] = entry
        ignored += [
            IgnoredFile(
                source=spec.name, path=path, reason=f"a data file of {pick.spelled}, not there", is_serious=True
            )
            for path in pick.files
            if path not in kept
        ]
    ordered = sorted(kept.values(), key=lambda entry: entry.path.encode())
    arranged = arrange(root, _once(spec, ordered, ignored), met=everything, named=named)
    ignored += [
        IgnoredFile(source=spec.name, path=item.path, reason=item.reason, is_serious=item.is_serious)
        for item in arranged.told
    ]
    return list(arranged.entries), list(dict.fromkeys(ignored)), named


def _met(root: Root, pick: Pick) -> Iterator[Entry]:
    """What of the root a pick means."""
    if pick.pattern:
        pattern = Pattern(pick.pattern)
        for entry in root.walk(pattern.may_hold):
            # an unreadable folder is told where it may hold what was asked for
            if pattern.matches(entry.path) or (entry.is_serious and (not entry.path or pattern.may_hold(entry.path))):
                yield entry
    elif pick.files:
        wanted = frozenset(pick.files)
        yield from (entry for entry in root.walk() if entry.path in wanted)
    elif pick.under:
        front = pick.under + "/"
        inside = root.walk(lambda path: path.startswith(front) or front.startswith(path + "/"))
        yield from (entry for entry in inside if entry.path.startswith(front))
    else:
        yield from root.walk()


def _named_entry(root: Root, path: str, spelled: str) -> Entry:
    if readable(path) != path:
        raise UsageError(f"the name of {readable(path)} is not valid UTF-8", todo="rename the file")
    local = root.local_path(path)
    if local is None:
        return Entry(path=path, size_bytes=root.size_bytes(path), identity=path)
    import os
    import stat
    from pathlib import Path

    try:
        status = Path(local).stat()
    except OSError as error:
        raise UsageError(f"{spelled} cannot be opened", found=error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{spelled} is no regular file", allowed="a file, folder, pattern or URL")
    link = Path(local).is_symlink()
    return Entry(path=path, size_bytes=status.st_size, identity=os.path.realpath(local), is_link=link)


def _once(spec: SourceSpec, entries: list[Entry], ignored: list[IgnoredFile]) -> list[Entry]:
    """Keep one spelling of every file: the one that is no link, else the first in byte order."""
    best: dict[str, Entry] = {}
    for entry in entries:
        other = best.get(entry.identity or entry.path)
        if other is None or (other.is_link and not entry.is_link):
            best[entry.identity or entry.path] = entry
    kept = []
    for entry in entries:
        chosen = best[entry.identity or entry.path]
        if chosen is entry:
            kept.append(entry)
        else:
            ignored.append(IgnoredFile(source=spec.name, path=entry.path, reason=f"the same file as {chosen.path}"))
    return kept


def _look(spec: SourceSpec, root: Root, entry: Entry, wanted: _Wanted, counter: ByteCounter) -> FoundShard | None:
    shard = StoredShard(
        root,
        name=f"{spec.name}/{entry.path}",
        path=entry.path,
        size_bytes=entry.size_bytes,
        compression="none",
        counter=counter,
    )
    try:
        seen = recognise(shard, wanted.format_name, wanted.options)
    except OSError as error:
        trouble = error.strerror or str(error)
        return FoundShard(path=entry.path, size_bytes=entry.size_bytes, format="", compression="none", trouble=trouble)
    if seen is None:
        return None
    return FoundShard(path=entry.path, size_bytes=entry.size_bytes, format=seen.format, compression=seen.compression)


def _kind_of(shard: FoundShard) -> SourceKind:
    return format_named(shard.format).kind if shard.format else "text"


def _by_kind(source: FoundSource, spec: SourceSpec, taken: set[str]) -> list[FoundSource]:
    """The source, or where it holds text and tokens one for each, for a source is of one kind.

    A name that was given means one source, so what is called by it may not be two.
    """
    examples: dict[SourceKind, str] = {}
    for shard in source.shards:
        examples.setdefault(_kind_of(shard), shard.path)
    if len(examples) < 2:
        return [replace(source, kind=next(iter(examples), "text"))]
    if spec.is_named:
        raise UsageError(
            f"source {spec.name!r} mixes text and tokens",
            found=", ".join(f"{path} holds {kind}" for kind, path in sorted(examples.items())),
            todo=f"leave out the name, and it becomes two sources: {spec.name} and {spec.name}-tokens",
        )
    name = f"{spec.name}-tokens"
    while name in taken:
        name += "-2"
    taken.add(name)
    return [
        replace(source, name=source.name if kind == "text" else name, kind=kind, shards=tuple(
            shard for shard in source.shards if _kind_of(shard) == kind
        ))
        for kind in sorted(examples)
    ]  # fmt: skip


def _nothing(spec: SourceSpec, ignored: Sequence[IgnoredFile]) -> UsageError | InputError:
    spelled = ", ".join(pick.spelled for pick in spec.picks)
    what = "matches nothing that could be a shard" if any(p.pattern for p in spec.picks) else "holds no shard"
    if any(pick.pattern for pick in spec.picks) and not ignored:
        what = "matches nothing"
    counts: dict[str, int] = {}
    for item in ignored:
        counts[item.reason] = counts.get(item.reason, 0) + 1
    seen = ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.items()))
    kind = InputError if any(item.is_serious for item in ignored) else UsageError
    return kind(
        f"{spelled} {what}",
        found=f"only ignored files: {seen}" if seen else "no files",
        allowed=_readable_kinds(),
        todo=_HOW_TO_FORCE if counts.get("unknown kind") else None,
    )


def _readable_kinds() -> str:
    return f"{', '.join(entry.name for entry in all_formats())}; plain or compressed by gzip or zstd"
