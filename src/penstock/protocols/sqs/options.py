"""What the door must be told about the service that it stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SqsOptions:
    """Account and region appear in the addresses of queues."""

    account: str
    region: str
    purge_interval_ms: int
    batch_bytes_max: int
    """The largest record batch of topics that are not told theirs."""
    access_keys: Mapping[str, str] = field(default_factory=dict)
    """Secrets by access key; without any, signatures are not looked at."""
