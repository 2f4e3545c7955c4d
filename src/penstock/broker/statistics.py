"""What a node counts.

Counting is adding to plain numbers; Prometheus metrics are made from them when somebody asks, so
that the plain path pays nothing for being measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.cluster import Cluster, DiskSpace


@dataclass(slots=True)
class Statistics:
    """Counters since the node started."""

    batches_in: int = 0
    records_in: int = 0
    bytes_in: int = 0
    released: int = 0
    fetches: int = 0
    bytes_out: int = 0
    connections: int = 0
    connections_refused: int = 0
    frames_malformed: int = 0
    # By door and operation, and by door and error.
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    errors: dict[tuple[str, str], int] = field(default_factory=dict)

    def count_released(self, messages: int) -> None:
        """Count scheduled messages that have come into the log."""
        self.released += messages

    def count_request(self, door: str, operation: str) -> None:
        """Count one request of a door."""
        self.requests[door, operation] = self.requests.get((door, operation), 0) + 1

    def count_error(self, door: str, error: str) -> None:
        """Count one error that a door has answered."""
        self.errors[door, error] = self.errors.get((door, error), 0) + 1


class NodeCollector(Collector):
    """Turns counters and the state of the logs into metrics."""

    def __init__(self, statistics: Statistics, cluster: Cluster, space: DiskSpace) -> None:
        self._statistics = statistics
        self._cluster = cluster
        self._space = space

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the node."""
        yield from self._counters()
        yield from self._by_door()
        yield from self._gauges()
        yield from self._partitions()
        yield from self._deliveries()
        yield from self._queue_groups()

    def _counters(self) -> Iterator[Metric]:
        counts = self._statistics
        for name, meaning, value in (
            ("batches_in", "Record batches accepted", counts.batches_in),
            ("records_in", "Records accepted", counts.records_in),
            ("bytes_in", "Bytes of record batches accepted", counts.bytes_in),
            ("scheduled_released", "Scheduled messages that have come", counts.released),
            ("fetches", "Fetches answered", counts.fetches),
            ("bytes_out", "Bytes of record batches sent to readers", counts.bytes_out),
            ("connections_refused", "Connections above the limit", counts.connections_refused),
            ("frames_malformed", "Frames that made no sense", counts.frames_malformed),
        ):
            yield CounterMetricFamily(f"penstock_{name}", meaning, value=value)

    def _by_door(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "penstock_requests", "Requests by door and operation", labels=("door", "operation")
        )
        for labels, count in self._statistics.requests.items():
            requests.add_metric(labels, count)
        yield requests
        errors = CounterMetricFamily(
            "penstock_errors", "Errors answered by door and kind", labels=("door", "error")
        )
        for labels, count in self._statistics.errors.items():
            errors.add_metric(labels, count)
        yield errors

    def _gauges(self) -> Iterator[Metric]:
        failed = len(self._cluster.failures) + sum(
            log.failure is not None for log in self._cluster.logs()
        )
        for name, meaning, value in (
            ("connections", "Open connections of Kafka clients", self._statistics.connections),
            ("topics", "Topics", len(self._cluster.metadata.topics)),
            ("partitions", "Partitions open on this node", len(self._cluster.partitions)),
            ("partitions_failed", "Logs that this node cannot serve", failed),
            ("disk_free_bytes", "Bytes of disk that are free", self._space.free_bytes),
            ("disk_is_low", "1 when publishes are refused", int(self._space.is_low)),
        ):
            yield GaugeMetricFamily(f"penstock_{name}", meaning, value=value)

    def _partitions(self) -> Iterator[Metric]:
        labels = ("topic", "partition")
        start = GaugeMetricFamily(
            "penstock_partition_start_offset", "First offset that can be read", labels=labels
        )
        end = GaugeMetricFamily(
            "penstock_partition_high_watermark",
            "Offset after the last committed record",
            labels=labels,
        )
        size = GaugeMetricFamily(
            "penstock_partition_size_bytes", "Bytes of a partition on disk", labels=labels
        )
        scheduled = GaugeMetricFamily(
            "penstock_partition_scheduled",
            "Messages that wait for their time, in partitions that this node leads",
            labels=labels,
        )
        for partition in self._cluster.partitions:
            place = (partition.place.topic, str(partition.place.partition))
            start.add_metric(place, partition.start_offset)
            end.add_metric(place, partition.high_watermark)
            size.add_metric(place, partition.log.log.size_bytes)
            if partition.log.is_serving:
                scheduled.add_metric(place, partition.stage.count)
        yield from (start, end, size, scheduled)

    def _deliveries(self) -> Iterator[Metric]:
        counts = self._cluster.replicas.delivery.counts
        for name, meaning, value in (
            ("messages_received", "Messages handed to consumers of queue groups", counts.received),
            ("messages_acked", "Messages that consumers have acknowledged", counts.acked),
            ("messages_nacked", "Messages that consumers gave back", counts.nacked),
            ("messages_expired", "Messages whose lease ended without an answer", counts.expired),
            ("messages_rejected", "Messages that consumers rejected", counts.rejected),
            ("messages_dead_lettered", "Messages moved to dead letters", counts.dead_lettered),
        ):
            yield CounterMetricFamily(f"penstock_{name}", meaning, value=value)

    def _queue_groups(self) -> Iterator[Metric]:
        """Groups in the partitions that this node leads; the sum over all nodes is the whole."""
        in_flight: dict[tuple[str, str], int] = {}
        unsettled: dict[tuple[str, str], int] = {}
        for partition in self._cluster.partitions:
            if not partition.log.is_serving:
                continue
            named = self._cluster.metadata.topic(partition.place.topic).groups
            for group, ledger in partition.queue.groups.items():
                if group in named:
                    labels = (partition.place.topic, group)
                    in_flight[labels] = in_flight.get(labels, 0) + ledger.in_flight
                    left = ledger.unsettled(partition.high_watermark)
                    unsettled[labels] = unsettled.get(labels, 0) + left
        for name, meaning, values in (
            ("in_flight", "Messages that are out with consumers", in_flight),
            ("unsettled", "Messages that the group is not done with", unsettled),
        ):
            metric = GaugeMetricFamily(
                f"penstock_queue_group_{name}", meaning, labels=("topic", "group")
            )
            for labels, value in values.items():
                metric.add_metric(labels, value)
            yield metric
