"""How does a policy come about: from a text, or by the name of one that ships with dataguard?

`read_policy` raises with every problem of a text at once; `check_policy` returns them. Policies that ship lie under
``policies/``; a change of one is a new digest, and a test holds the digests.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from dataguard.errors import PolicyError, UsageError
from dataguard.gate.checking import make_policy
from dataguard.gate.document import read_draft, suggestion
from dataguard.gate.problem import Problem, in_order, policy_error
from dataguard.gate.rules import BatchRule, Policy, Rule, ShardRule

__all__ = [
    "POLICY_NAMES",
    "BatchRule",
    "Policy",
    "Rule",
    "ShardRule",
    "check_policy",
    "load_policy",
    "named_policy",
    "policy_copy",
    "policy_text",
    "read_policy",
    "read_policy_text",
    "stem_of",
]

POLICY_NAMES = ("default", "gopher", "olmo", "seed-batch")
"""The policies that ship with dataguard."""


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 64


def read_policy(text: str, *, name: str) -> Policy:
    r"""The policy that a text is.

    Parameters
    ----------
    text
        A policy.toml.
    name
        What the policy is called where the text gives it no name; messages use it, too.

    Raises
    ------
    PolicyError
        It cannot be one; every problem is told, with its line.

    Examples
    --------
    >>> text = '[[rules]]\nname = "low"\nsignal = "byte_entropy"\nbelow = 2\naction = "flag"'
    >>> policy = read_policy(text, name="p")
    >>> policy.name, policy.rules[0].text, policy.signals("text")
    ('p', 'byte_entropy below 2', ('byte_entropy',))
    """
    policy, problems = check_policy(text, name=name)
    if policy is None:
        raise policy_error(name, problems)
    return policy


def check_policy(text: str, *, name: str) -> tuple[Policy | None, tuple[Problem, ...]]:
    """The policy that a text is, or None and everything that is wrong with it, in the order of its lines."""
    draft = read_draft(text)
    policy = make_policy(draft, text, name=name) if draft.lines or not draft.problems else None
    return policy, in_order(draft.problems)


def policy_text(name: str) -> str:
    """The toml of a policy that ships, with its comments.

    Raises
    ------
    UsageError
        None has this name.
    """
    if name not in POLICY_NAMES:
        raise UsageError(
            f"there is no policy called {name!r}", allowed=", ".join(POLICY_NAMES), todo=suggestion(name, POLICY_NAMES)
        )
    return files("dataguard.gate").joinpath("policies", f"{name}.toml").read_bytes().decode()


def policy_copy(based_on: str, *, name: str) -> Policy:
    """A copy of a policy that ships, under another name: something to edit.

    Raises
    ------
    UsageError
        None is called `based_on`, or `name` is no name of a policy.
    """
    text = policy_text(based_on)
    policy, problems = check_policy(text.replace(f'name = "{based_on}"', f'name = "{name}"', 1), name=name)
    if policy is None:
        raise UsageError(
            f"{name!r} is no name of a policy", found=problems[0].told(), todo="give the file another name"
        )
    return policy


@cache
def named_policy(name: str) -> Policy:
    """A policy that ships with dataguard; UsageError where none has this name.

    >>> named_policy("olmo").rules[0].text
    'token_periodic_repeats at least 32'
    """
    return read_policy(policy_text(name), name=name)


def load_policy(name_or_path: str) -> Policy:
    """A policy by name, or from a file: what ``--policy`` takes.

    A name of one that ships means that one; a file called so is meant by ``./default``.

    Raises
    ------
    PolicyError
        The file is no policy; every problem is told, with its line.
    UsageError
        It is neither a name nor a file that can be read.
    """
    if name_or_path in POLICY_NAMES:
        return named_policy(name_or_path)
    return read_policy(read_policy_text(name_or_path), name=stem_of(name_or_path))


def read_policy_text(path: str) -> str:
    """The text of a policy file: the one place of this room that opens a file, for whoever gives a path."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - this room knows no paths but this one
            content = file.read()
    except (OSError, ValueError) as error:  # ValueError: no path has a NUL in it
        raise UsageError(
            f"there is no policy {path!r}: {getattr(error, 'strerror', None) or error}",
            allowed=f"{', '.join(POLICY_NAMES)}, or a file",
            todo=suggestion(path, POLICY_NAMES) or "write one with: dataguard policy init -o policy.toml",
        ) from error
    try:
        return content.decode("utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"policy {path} is no text in UTF-8", found=f"line {line}, byte {error.start:,}") from error


def stem_of(path: str) -> str:
    """What a policy is called after its file: a name that a policy could give itself, whatever the file is called.

    >>> stem_of("runs/strict.toml"), stem_of("runs/very strict (2).toml")
    ('strict', 'very_strict_2')
    """
    stem = path.rpartition("/")[2].removesuffix(".toml")
    return _NOT_IN_NAMES.sub("_", stem).strip("_.-")[:_LONGEST_NAME] or "policy"
