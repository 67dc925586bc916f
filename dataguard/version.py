"""The one place the version stands."""

__version__ = "0.1.0.dev0"
