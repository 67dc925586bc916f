"""How does a package offer names without importing the modules that hold them?

A package gives the table of its names and takes the two functions that Python asks of a module (PEP 562). The module of
a name is imported when the name is first used, and the name then stands in the package as if it had been imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["offered"]


def offered(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package
        Its ``__name__``.
    homes
        Name that it offers -> the module below it that holds the name.

    Examples
    --------
    >>> get, names = offered("dataguard.core", {"Address": "address"})
    >>> get("Address")(step=1, rank=0, microbatch=0).step, "Address" in names()
    (1, True)
    >>> get("Corpse")
    Traceback (most recent call last):
    AttributeError: module 'dataguard.core' has no attribute 'Corpse'
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home}"), name)
        vars(import_module(package))[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return get, names
