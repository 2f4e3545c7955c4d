"""Penstock: a durable, replayable log and per-message delivery over the same topics."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("penstock")
