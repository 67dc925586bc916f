"""dataguard: the flight recorder and the gate for training data."""

from dataguard.version import __version__

__all__ = ["__version__"]
