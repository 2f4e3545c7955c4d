"""What the door must be told about the service that it stands for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqsOptions:
    """Account and region appear in the addresses of queues."""

    account: str
    region: str
    purge_interval_ms: int
