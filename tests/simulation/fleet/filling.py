"""How replicas are filled in a history: all at once, or in many small steps.

The logs of a fleet are so small that one append fills a replica. Half of the histories show what
becomes of a replica that has only a part of its log, and goes by the memberships that it finds in
there: appends and parts of snapshots are small and paced, records are larger, logs of state give up
their beginnings, and users leave time for all that between two requests.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from penstock.cluster import cluster as cluster_module
from penstock.cluster import replica_set as replica_set_module
from penstock.cluster.learner_pace import LearnerPace
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.snapshot_exchange import SnapshotExchange
from penstock.log import LogSettings
from penstock.raft import RaftSettings

_SHARE = 0.5
_LARGE = 1 << 20
_STEPS = {"_go_on_with": "learner was held", "snapshot_fetched": "snapshot was copied"}


@dataclass(frozen=True, kw_only=True)
class Filling:
    """The limits of a history; without any of them, replicas are filled at once."""

    append_bytes_max: int = _LARGE
    appends_in_flight_max: int = 64
    transfer_bytes_per_s: int = 100 * _LARGE
    chunk_bytes: int = _LARGE
    state_segment_bytes: int = 16 * _LARGE
    padding_bytes: int = 0
    """How much longer the records are."""
    leisure: float = 1.0
    """How much longer users take between two requests."""
    is_slow: bool = False
    """Whether operators and faults go for replicas that are being filled."""

    @contextmanager
    def in_force(self, counts: Counter[str]) -> Iterator[None]:
        """Let all nodes that start keep to it, and count the steps."""
        raft = partial(
            RaftSettings,
            append_bytes_max=self.append_bytes_max,
            inflight_messages_max=self.appends_in_flight_max,
        )
        exchange = partial(SnapshotExchange, chunk_bytes=self.chunk_bytes)
        state = LogSettings(segment_bytes=self.state_segment_bytes, retention_ms=0)
        with ExitStack() as stack:
            for module, name, value in (
                (replica_set_module, "RaftSettings", raft),
                (replica_set_module, "_STATE_LOG_SETTINGS", state),
                (cluster_module, "SnapshotExchange", exchange),
                (LearnerPace, "_go_on_with", _counted(counts, LearnerPace._go_on_with)),
                (
                    ReplicatedLog,
                    "snapshot_fetched",
                    _counted(counts, ReplicatedLog.snapshot_fetched),
                ),
            ):
                stack.enter_context(patch.object(module, name, value))
            yield


def _counted(counts: Counter[str], deed: Callable[..., Any]) -> Callable[..., Any]:
    name = _STEPS[deed.__name__]

    def counted(*args: Any) -> Any:
        counts[name] += 1
        return deed(*args)

    return counted


AT_ONCE = Filling()


def draw_filling(seed: int) -> Filling:
    """Draw how replicas are filled, by chance of its own: all else is drawn as if it were not."""
    random = Random(f"filling {seed}")
    if random.random() >= _SHARE:
        return AT_ONCE
    return Filling(
        append_bytes_max=200 + int(1_300 * random.random() ** 2),
        appends_in_flight_max=random.choice((1, 4, 64)),
        transfer_bytes_per_s=4_000 + int(20_000 * random.random() ** 2),
        chunk_bytes=100 + int(1_500 * random.random()),
        state_segment_bytes=random.choice((1_500, 4_000, 16 * _LARGE)),
        padding_bytes=int(400 * random.random()),
        leisure=1.5 + 2 * random.random(),
        is_slow=True,
    )
