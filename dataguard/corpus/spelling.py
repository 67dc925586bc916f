"""What did somebody mean by ``PATH`` or ``NAME=PATH``?

A source is given as a folder, a file, a pattern (``*``, ``?``, ``[...]``, ``**``) or a URL that fsspec opens, with or
without a name. The answer is a name, a root, and what of the root is meant: everything, one path, or a pattern.

A source without a name is called by its folder or file stem (of a linked folder: by the folder itself, so that a
link to it gives the same manifest), made unique: web, web-2. One name given several times is one source with several
paths; its root is the deepest folder that holds them all.
"""

# Names of any bytes: os.path keeps them as they are.
# ruff: noqa: PTH100, PTH111, PTH112, PTH119, PTH120

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dataguard.corpus.hub import find_dataset, is_hub
from dataguard.corpus.storage import RemoteRoot, canonical, is_url, native, open_root, readable
from dataguard.errors import EnvironmentFailed, UsageError

__all__ = ["Pattern", "Pick", "SourceSpec", "understand"]

_MAGIC = re.compile(r"[*?\[]")
_NAME = re.compile(r"[^/=\s\x00-\x1f\x7f](?:[^/=\x00-\x1f\x7f]*[^/=\s\x00-\x1f\x7f])?")
_SUFFIX = re.compile(
    r"\.(gz|gzip|zst|zstd|json|jsonl|ndjson|parquet|pq|npy|bin|idx|raw|tokens|tar|tgz|txt)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """What of a root is meant."""

    spelled: str
    """As it was given, for messages."""
    path: str = ""
    """One file, relative to the root; empty for none."""
    pattern: str = ""
    """Relative to the root; empty for none."""
    under: str = ""
    """A folder relative to the root, all of which is meant; empty for the whole root."""
    files: tuple[str, ...] = ()
    """Files relative to the root, which are all that is meant; empty where another field says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """One source as it was asked for."""

    name: str
    root: str
    """Absolute folder or URL that the shards' paths are relative to."""
    picks: tuple[Pick, ...]
    is_named: bool = True
    """Whether the name was given, and not made from the path."""


def understand(sources: Sequence[str]) -> tuple[SourceSpec, ...]:
    """Every source that was asked for, in byte order of the names.

    Raises
    ------
    UsageError
        Where nothing was given, a path does not exist, or two sources cannot be told apart.
    """
    if not sources:
        raise UsageError("no source was given", allowed="PATH or NAME=PATH: a folder, file, pattern or URL")
    asked = [_one(text) for text in sources]
    named: dict[str, list[tuple[str, Pick]]] = {}
    for name, root, pick in asked:
        if name:
            named.setdefault(name, []).append((root, pick))
    specs = [_joined(name, parts) for name, parts in named.items()]
    taken, seen = set(named), dict[tuple[object, ...], str]()
    for name, root, pick in asked:
        if name:
            continue
        key = (root if is_url(root) else os.path.realpath(native(root)), pick.path, pick.pattern, pick.files)
        if key in seen:
            raise UsageError(
                f"{pick.spelled} is the same as {seen[key]}",
                todo=f"give it once, or give both a name: a={seen[key]} b={pick.spelled}",
            )
        seen[key] = pick.spelled
        unique = _unique(_called(root, pick), taken)
        taken.add(unique)
        specs.append(SourceSpec(name=unique, root=root, picks=(pick,), is_named=False))
    return tuple(sorted(specs, key=lambda spec: spec.name.encode()))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern over relative paths: ``*`` and ``?`` stay within one part, ``**`` stands for any number of parts.

    A pattern that matches a folder means all that is in it.

    >>> pattern = Pattern("**/part-*.jsonl")
    >>> pattern.matches("part-1.jsonl"), pattern.matches("a/b/part-1.jsonl"), pattern.matches("a/other.jsonl")
    (True, True, False)
    >>> Pattern("cc-*").matches("cc-2023/a.jsonl"), Pattern("a/*.jsonl").may_hold("b"), Pattern("a/*").may_hold("a")
    (True, False, True)
    """

    text: str

    def __post_init__(self) -> None:
        try:
            _compiled(self.text)
        except re.error as error:
            raise UsageError(f"pattern {self.text!r} cannot be", found=str(error)) from error

    def matches(self, path: str) -> bool:
        """Whether a relative path, or a folder above it, is matched."""
        return _compiled(self.text).match(path + "/") is not None

    def may_hold(self, folder: str) -> bool:
        """Whether anything in a folder (a relative path) can be matched; only then is it entered."""
        if self.matches(folder):
            return True
        parts = self.text.split("/")
        names = folder.split("/")
        until = parts.index("**") if "**" in parts else len(parts)
        if len(names) >= len(parts) and until == len(parts):
            return False
        return all(re.fullmatch(_part(part), name) for part, name in zip(parts[:until], names, strict=False))


@lru_cache(maxsize=64)
def _compiled(text: str) -> re.Pattern[str]:
    pieces = [r"(?:[^/]+/)*" if part == "**" else _part(part) + "/" for part in text.split("/")]
    return re.compile("".join(pieces), re.DOTALL)


def _part(part: str) -> str:
    """One part of a pattern as a regular expression."""
    out, at = [], 0
    while at < len(part):
        char = part[at]
        at += 1
        close = part.find("]", at + 1 if part[at : at + 1] not in {"!", "^"} else at + 2) if char == "[" else -1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif close > 0:
            inner = re.sub(r"([\\\[&~|])", r"\\\1", part[at:close])
            out.append(f"[^/{inner[1:]}]" if inner[0] in "!^" else f"(?!/)[{inner}]")
            at = close + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _one(text: str) -> tuple[str, str, Pick]:
    """(name or '', root, pick) of one argument."""
    name, where = _split_name(text)
    if is_url(where) and not where.startswith("file://"):
        return (name, *_remote(where))
    return (name, *_local(where.removeprefix("file://")))


def _split_name(text: str) -> tuple[str, str]:
    head, sign, tail = text.partition("=")
    head = canonical(head)
    if not sign or "/" in head or is_url(head) or os.path.lexists(text):
        return "", text
    if not tail:
        raise UsageError(f"source {head!r} has no path", allowed="NAME=PATH")
    if not _NAME.fullmatch(head) or head in {".", ".."}:
        raise UsageError(
            f"source name {head!r} cannot be", allowed="no '/', '=', control characters, or blanks around it"
        )
    return head, tail


def _local(where: str) -> tuple[str, Pick]:
    if not where:
        raise UsageError("an empty path was given", allowed="a folder, file, pattern or URL")
    full = os.path.abspath(os.path.expanduser(where))
    spelled = readable(canonical(where))
    if os.path.isdir(full):
        return _utf8(full), Pick(spelled=spelled)
    if os.path.lexists(full):
        return _utf8(os.path.dirname(full)), Pick(spelled=spelled, path=canonical(os.path.basename(full)))
    if _MAGIC.search(where):
        parts = full.split("/")
        plain = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        root = "/".join(parts[:plain]) or "/"
        if not os.path.isdir(root):
            raise UsageError(f"pattern {spelled} matches nothing", found=f"no folder {readable(canonical(root))}")
        return _utf8(root), Pick(spelled=spelled, pattern=Pattern(canonical("/".join(parts[plain:]))).text)
    parent = Path(full).parent
    near = sorted(readable(canonical(entry.name)) for entry in parent.iterdir())[:6] if parent.is_dir() else []
    raise UsageError(
        f"no such file or folder: {spelled}",
        found=f"in {parent}: {', '.join(near) or 'nothing'}" if parent.is_dir() else f"no folder {parent}",
        todo="check the path as it was typed; a source is named as NAME=PATH",
    )


def _utf8(folder: str) -> str:
    """A root, which the manifest remembers as text."""
    root = canonical(folder)
    if readable(root) != root:
        raise UsageError(f"the path {readable(root)} is not valid UTF-8", todo="reach it through a link that is")
    return root


def _remote(where: str) -> tuple[str, Pick]:
    spelled = where
    if is_hub(where):
        dataset = find_dataset(where)
        if dataset.files:
            return dataset.root, Pick(spelled=spelled, files=dataset.files)
        where = f"{dataset.root}/{dataset.path}"
    scheme, sign, rest = where.rpartition("://")
    parts = rest.split("/")
    plain = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), None)
    if plain is not None:
        return scheme + sign + "/".join(parts[:plain]), Pick(spelled=spelled, pattern="/".join(parts[plain:]))
    root = open_root(where)
    assert isinstance(root, RemoteRoot)
    try:
        is_file = root.is_file()
    except OSError as error:
        raise EnvironmentFailed(f"{spelled} cannot be looked at", found=error.strerror or str(error)) from error
    if is_file:
        return scheme + sign + "/".join(parts[:-1]), Pick(spelled=spelled, path=parts[-1])
    return where.rstrip("/") if rest else where, Pick(spelled=spelled)


def _joined(name: str, parts: list[tuple[str, Pick]]) -> SourceSpec:
    """One source of several paths: its root is the deepest folder above all of them."""
    roots = [root for root, _ in parts]
    if len(set(roots)) == 1:
        return SourceSpec(name=name, root=roots[0], picks=tuple(pick for _, pick in parts))
    if any(is_url(root) for root in roots):
        shared = roots[0]
        while not all(root == shared or root.startswith(shared + "/") for root in roots):
            shared = shared.rpartition("/")[0]
        if not is_url(shared) or shared.endswith((":/", ":")):
            shared = ""
    else:
        shared = os.path.commonpath(roots)
    if shared in {"", "/"}:
        raise UsageError(
            f"the paths of source {name!r} have no folder in common",
            found=", ".join(pick.spelled for _, pick in parts),
            todo="make them two sources, or put links to them into one folder",
        )
    picks = []
    for root, pick in parts:
        below = root.removeprefix(shared).strip("/")
        front = f"{below}/" if below else ""
        picks.append(
            Pick(
                spelled=pick.spelled,
                path=front + pick.path if pick.path else "",
                pattern=front + pick.pattern if pick.pattern else "",
                under="" if pick.path or pick.pattern or pick.files else below,
                files=tuple(front + file for file in pick.files),
            )
        )
    return SourceSpec(name=name, root=shared, picks=tuple(picks))


def _called(root: str, pick: Pick) -> str:
    if pick.path:
        stem = pick.path
        while (shorter := _SUFFIX.sub("", stem)) and shorter != stem:
            stem = shorter
    else:
        where = root.partition("@")[0] if is_hub(root) else root
        stem = (where if is_url(where) else canonical(os.path.realpath(native(where)))).rstrip("/").rpartition("/")[2]
    clean = re.sub(r"[/=\x00-\x1f\x7f\ud800-\udfff]+", "-", stem).strip()
    return clean or "root"


def _unique(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
