"""Penstock: a durable, replicated and replayable log that any Kafka client can use."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("penstock")
