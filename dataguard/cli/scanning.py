"""Which options say how shards are scanned? The limits that a manifest keeps and reading keeps to, and isolation.

A limit has one place for its default, `ScanOptions`; its option here shows it and hands on what was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dataguard.cli.options import PositiveNumber
from dataguard.errors import UsageError

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "isolation_options", "limit_options", "timeout_of"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_TIMEOUT_SECONDS = 600.0
_LIMITS = (
    ("max_record_bytes", "Reject a longer record.", "1 GiB"),
    ("max_depth", "Reject a record whose arrays and objects nest deeper.", "512"),
    ("max_expansion", "Exclude a shard that decodes to more than this many times its size ...", "1000"),
    ("free_expansion_bytes", "... and to more than this many bytes.", "512 MiB"),
    ("max_window_bytes", "Exclude a zstd shard that needs a larger window.", "128 MiB"),
    ("max_members", "Exclude an archive with more members.", "1048576"),
)


def limit_options(command: Decorated) -> Decorated:
    """``--max-...``: what may not be larger, each None where it was left out."""
    for name, text, default in reversed(_LIMITS):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, name, type=click.IntRange(min=1), help=f"{text}  [default: {default}]")(command)
    return command


def isolation_options(command: Decorated) -> Decorated:
    """``--isolate`` and ``--scan-timeout-seconds``."""
    limit = click.option(
        "--scan-timeout-seconds",
        type=PositiveNumber(),
        help=f"With --isolate: how long the scan of one shard may take.  [default: {DEFAULT_TIMEOUT_SECONDS:g}]",
    )
    isolate = click.option(
        "--isolate",
        is_flag=True,
        help="Scan in processes of their own: a reader that hangs or dies costs its shard and no other.",
    )
    return isolate(limit(command))


def timeout_of(*, isolate: bool, scan_timeout_seconds: float | None) -> float | None:
    """How long the scan of one shard may take, None where shards are not isolated.

    >>> timeout_of(isolate=True, scan_timeout_seconds=None), timeout_of(isolate=False, scan_timeout_seconds=None)
    (600.0, None)
    """
    if scan_timeout_seconds is not None and not isolate:
        raise UsageError(
            "--scan-timeout-seconds needs --isolate", todo="a reader can be given up only in a process apart"
        )
    return (scan_timeout_seconds or DEFAULT_TIMEOUT_SECONDS) if isolate else None
