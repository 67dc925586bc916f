"""What does ``dataguard init`` write, and what is to be typed next?

Two files, never over one that stands: ``policy.toml``, which `policy init` writes, and a training script for the
framework that was asked for or found. With paths their manifest is built as well. Scripts are made of the templates
under ``templates/init``, and run as they are.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from dataguard.cli.frameworks import FRAMEWORKS, Found, find_framework, installed
from dataguard.cli.policy import write_policy
from dataguard.errors import UsageError, WriteFailed

__all__ = ["MANIFEST", "POLICY", "SCRIPT", "InitAnswer", "Kind", "script_text", "start"]

SCRIPT = "train_with_dataguard.py"
POLICY = "policy.toml"
MANIFEST = "M.parquet"

Kind = Literal["text", "tokens"]

_NEEDS = {
    "torch": ("torch",),
    "hf": ("torch", "transformers", "accelerate"),
    "lightning": ("torch", "lightning"),
    "accelerate": ("torch", "accelerate"),
    "none": (),
}


class InitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dataguard init`` found and wrote."""

    folder: str
    framework: Literal["torch", "hf", "lightning", "accelerate", "none"]
    why: str
    """Why it is this one."""
    installed: dict[str, str]
    """Packages of frameworks that are installed here -> version; ``?`` where one does not say."""
    lacking: tuple[str, ...]
    """Packages that the script imports and that are not installed here."""
    manifest: str | None
    """The manifest that the script reads; null where it has to be built yet."""
    kind: Kind
    """Of the records of the manifest; ``text`` where there is none yet."""
    script: str
    policy: str
    policy_digest: str
    wrote: tuple[str, ...]
    """All files that were written, in order."""
    next: tuple[str, ...]
    """Commands to type next, in order."""
    remarks: tuple[str, ...]


def start(
    folder: Path,
    *,
    framework: str | None,
    manifest: str | None,
    paths: Sequence[str],
    build: Callable[[Sequence[str], Path], Sequence[str]],
) -> InitAnswer:
    """Write policy and script (and manifest) into a folder, and say what is next.

    Parameters
    ----------
    folder
        Made where it is missing.
    framework
        One of `FRAMEWORKS`; None for the one that is found.
    manifest, paths
        The manifest to train on, or paths of which one is built, or neither.
    build
        Builds a manifest of paths, and gives what is to be said of it.

    Raises
    ------
    UsageError
        A file that would be written stands already, or manifest and paths were both given.
    WriteFailed
        The folder cannot be written.
    """
    if manifest is not None and paths:
        raise UsageError("a manifest and paths cannot both be given", todo="give --manifest M, or the paths alone")
    targets = {"script": folder / SCRIPT, "policy": folder / POLICY}
    if paths:
        targets["manifest"] = folder / MANIFEST
    standing = [str(path) for path in targets.values() if path.exists() or path.is_symlink()]
    if standing:
        verb = "stands" if len(standing) == 1 else "stand"
        raise UsageError(
            f"{' and '.join(standing)} {verb} already, and nothing is overwritten",
            todo="name another folder, or move what stands out of the way",
        )
    found = find_framework(folder)
    if framework is not None:
        assert framework in FRAMEWORKS, framework
        package = found.package if framework == found.framework else _package_of(framework)
        found = Found(framework=framework, why="it was asked for", package=package)
    kind = _kind_of(manifest) if manifest is not None else "text"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(f"the folder {folder} cannot be made: {error.strerror}") from error
    remarks: list[str] = []
    if paths:
        remarks += build(paths, targets["manifest"])
        manifest = str(targets["manifest"])
        kind = _kind_of(manifest)
    elif manifest is None and (folder / MANIFEST).exists():
        manifest = str(folder / MANIFEST)
        kind = _kind_of(manifest)
        remarks.append(f"{manifest} stands there, so it is what the script reads")
    text = script_text(found, kind=kind, manifest=manifest, folder=folder)
    policy = write_policy(targets["policy"], "default")
    _write(targets["script"], text)
    there = installed()
    needed = [found.package or name if name == "lightning" else name for name in _NEEDS[found.framework]]
    wrote = [str(targets[what]) for what in ("manifest", "policy", "script") if what in targets]
    return InitAnswer(
        folder=str(folder),
        framework=found.framework,  # type: ignore[arg-type]
        why=found.why,
        installed=there,
        lacking=tuple(name for name in needed if name not in there),
        manifest=manifest,
        kind=kind,
        script=str(targets["script"]),
        policy=policy.path,
        policy_digest=policy.digest,
        wrote=tuple(wrote),
        next=_next(folder, manifest),
        remarks=tuple(remarks),
    )


def script_text(found: Found, *, kind: Kind, manifest: str | None, folder: Path) -> str:
    """The training script, as it is written.

    >>> text = script_text(Found(framework="torch", why=""), kind="text", manifest=None, folder=Path())
    >>> "GuardedLoader(run" in text, "{{" in text
    (True, False)
    """
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Python is made here, and no HTML; `literal` quotes what is given
        loader=jinja2.PackageLoader("dataguard.cli", "templates/init"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = _literal
    where, how = _manifest_of(manifest, folder)
    return environment.get_template(f"{found.framework}.py.j2").render(
        framework=found.framework,
        lightning=found.package or "lightning",
        script=SCRIPT,
        module=SCRIPT.removesuffix(".py"),
        kind=kind,
        manifest=where,
        manifest_is=how,
    )


def _package_of(framework: str) -> str:
    if framework != "lightning":
        return ""
    there = installed()
    return "pytorch_lightning" if "lightning" not in there and "pytorch_lightning" in there else "lightning"


def _kind_of(manifest: str) -> Kind:
    """Whether a manifest is of text or of tokens."""
    from dataguard.corpus.manifest_read import read_manifest

    kinds = {source.kind for source in read_manifest(manifest).manifest.sources}
    if kinds == {"text", "tokens"}:
        raise UsageError(
            f"{manifest} has sources of text and sources of tokens, and a plan is of one kind",
            todo="build a manifest of one kind",
        )
    return "tokens" if kinds == {"tokens"} else "text"


def _manifest_of(manifest: str | None, folder: Path) -> tuple[str | None, str]:
    """How a script names its manifest: beside itself, by a whole path, or by a URL."""
    from dataguard.corpus.storage import is_url

    if manifest is None:
        return None, "missing"
    if is_url(manifest):
        return manifest, "url"
    path = Path(manifest).absolute()
    return (path.name, "beside") if path.parent.resolve() == folder.resolve() else (str(path), "path")


def _literal(text: str) -> str:
    r"""A text as Python writes it, with double quotes where nothing has to be escaped.

    >>> print(_literal("a"), _literal('"\n'))
    "a" '"\n'
    """
    written = repr(text)
    return f'"{text}"' if written == f"'{text}'" and '"' not in text else written


def _write(path: Path, text: str) -> None:
    try:
        with path.open("xb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise WriteFailed(f"{path} cannot be written: {error.strerror}") from error


def _next(folder: Path, manifest: str | None) -> tuple[str, ...]:
    def typed(*words: str | Path) -> str:
        return shlex.join(map(str, words))

    run = folder / "runs" / "first"
    commands = []
    if manifest is None:
        commands.append(f"dataguard manifest build NAME=PATH ... -o {typed(folder / MANIFEST)}")
    given = [] if manifest is None else ["--manifest", manifest]
    commands.append(typed("dataguard", "policy", "check", folder / POLICY, *given))
    commands.append(typed("python", folder / SCRIPT, "--steps", "200"))
    commands.append(typed("dataguard", "inspect", run, "--step", "7"))
    commands.append(typed("dataguard", "triage", run))
    return tuple(commands)
