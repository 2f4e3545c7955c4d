"""Consumer groups of both protocols, as librdkafka lives in them."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.kafka_clients import (
    consumer_config,
    new_admin,
    new_topic,
    open_consumer,
    publish,
    read,
    unique,
    wait_until,
)
from tests.kafka_members import Member, Publisher, gap_max_s
from tests.processes import NodeProcess

QUICK = (
    "--group-initial-rebalance-delay-ms", "100",
    "--group-session-timeout-min-ms", "1000",
    "--consumer-session-timeout-ms", "6000",
    "--consumer-heartbeat-interval-ms", "300",
)  # fmt: skip
CLASSIC: dict[str, object] = {
    "group_protocol": "classic",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 300,
}
INCREMENTAL: dict[str, object] = {"group_protocol": "consumer"}
RANGE = {**CLASSIC, "partition_assignment_strategy": "range"}
COOPERATIVE = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}

every_protocol = pytest.mark.parametrize(
    "settings", [RANGE, COOPERATIVE, INCREMENTAL], ids=["range", "cooperative", "incremental"]
)
both_protocols = pytest.mark.parametrize(
    "settings", [CLASSIC, INCREMENTAL], ids=["classic", "incremental"]
)

# What an incremental group promises about partitions, beyond what the machine does to everyone.
STAYING_PAUSE_MAX_S = 0.75
MOVING_PAUSE_MAX_S = 10.0
PUBLISH_INTERVAL_S = 0.02


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that notices silent members soon."""
    with NodeProcess(tmp_path_factory.mktemp("node"), *QUICK) as running:
        yield running


def publish_everywhere(node: NodeProcess, topic: str, partitions: int, count: int) -> None:
    """Publish `count` messages to each partition."""
    for partition in range(partitions):
        publish(node, topic, [b"%d" % n for n in range(count)], partition=partition)


def is_shared_out(members: list[Member], partitions: int) -> bool:
    """Whether every partition has one owner and no member has two more than another."""
    owned = [sorted(member.partitions) for member in members]
    sizes = [len(each) for each in owned]
    is_complete = sorted(chain.from_iterable(owned)) == list(range(partitions))
    return is_complete and max(sizes) - min(sizes) <= 1


def committed(node: NodeProcess, group: str, topic: str, partitions: int) -> list[int]:
    """Return the committed position of every partition."""
    with open_consumer(node, group) as consumer:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [place.offset for place in consumer.committed(places, timeout=120)]


@every_protocol
def test_members_share_all_partitions_evenly_and_each_message_is_read_once(
    node: NodeProcess, settings: dict[str, object]
) -> None:
    topic, group = new_topic(node, 5), unique("group")
    with ExitStack() as stack:
        members = [stack.enter_context(Member(node, group, [topic], **settings)) for _ in range(3)]
        wait_until(lambda: is_shared_out(members, 5), "three members share five partitions")

        publish_everywhere(node, topic, 5, 20)

        wait_until(lambda: sum(len(member.readings) for member in members) >= 100, "all is read")
        places = [(r.partition, r.offset) for member in members for r in member.readings]
        assert len(set(places)) == len(places) == 100
    assert committed(node, group, topic, 5) == [20] * 5


@every_protocol
def test_a_member_that_leaves_is_replaced_at_once_by_those_who_stay(
    node: NodeProcess, settings: dict[str, object]
) -> None:
    topic, group = new_topic(node, 4), unique("group")
    with Member(node, group, [topic], **settings) as stayer:
        with Member(node, group, [topic], **settings) as leaver:
            wait_until(lambda: is_shared_out([stayer, leaver], 4), "two members share")
            publish_everywhere(node, topic, 4, 10)
            wait_until(lambda: len(stayer.readings) + len(leaver.readings) >= 40, "all is read")

        wait_until(lambda: stayer.partitions == {0, 1, 2, 3}, "the other one has everything")
        publish_everywhere(node, topic, 4, 10)
        wait_until(lambda: len(stayer.readings) + len(leaver.readings) >= 80, "all is read")

        places = [(r.partition, r.offset) for r in stayer.readings + leaver.readings]
        assert len(set(places)) == len(places)


@both_protocols
def test_partitions_of_a_member_that_dies_go_to_the_others(
    node: NodeProcess, settings: dict[str, object]
) -> None:
    topic, group = new_topic(node, 4), unique("group")
    config = consumer_config(node, group, **settings)
    mortal = subprocess.Popen([sys.executable, "-c", MORTAL, repr(config), topic])
    try:
        with Member(node, group, [topic], **settings) as survivor:
            wait_until(lambda: len(survivor.partitions) == 2, "each has a half")
            mortal.send_signal(signal.SIGKILL)
            mortal.wait(120)

            wait_until(lambda: len(survivor.partitions) == 4, "the survivor has everything")
    finally:
        mortal.kill()


MORTAL = """
import ast, sys
from confluent_kafka import Consumer
consumer = Consumer(ast.literal_eval(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
"""


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_committed_offsets_outlive_the_node(fresh_node: NodeProcess, end: str) -> None:
    topic = new_topic(fresh_node)
    publish(fresh_node, topic, [b"%d" % n for n in range(20)])
    groups = {
        unique("group"): CLASSIC | {"session_timeout_ms": 6_000},
        unique("group"): INCREMENTAL,
    }
    for group, settings in groups.items():
        with open_consumer(fresh_node, group, enable_auto_commit=False, **settings) as consumer:
            consumer.subscribe([topic])
            read(consumer, 8)
            consumer.commit(offsets=[TopicPartition(topic, 0, 8, "a note")], asynchronous=False)

    getattr(fresh_node, end)()
    fresh_node.start()

    for group, settings in groups.items():
        with open_consumer(fresh_node, group, **settings) as consumer:
            (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=120)
            assert (found.offset, found.metadata) == (8, "a note")
            consumer.subscribe([topic])
            assert read(consumer, 1)[0].value() == b"8"


@both_protocols
def test_members_go_on_after_the_node_crashes(
    fresh_node: NodeProcess, settings: dict[str, object]
) -> None:
    topic, group = new_topic(fresh_node, 2), unique("group")
    patient = settings if settings is INCREMENTAL else settings | {"session_timeout_ms": 6_000}
    with Member(fresh_node, group, [topic], reconnect_backoff_max_ms=500, **patient) as member:
        publish_everywhere(fresh_node, topic, 2, 10)
        wait_until(lambda: len(member.readings) == 20, "all is read")

        fresh_node.kill()
        fresh_node.start()
        publish_everywhere(fresh_node, topic, 2, 10)

        wait_until(lambda: len({(r.partition, r.offset) for r in member.readings}) == 40, "all")


class Stream:
    """A topic that is published to without a break while members of one group come and go."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.partitions = 6
        self.topic = new_topic(node, self.partitions)
        self.group = unique("group")
        self.publisher = Publisher(
            node, self.topic, partitions=self.partitions, interval_s=PUBLISH_INTERVAL_S
        )
        self.bystander = Member(node, unique("alone"), [self.topic], **INCREMENTAL)

    def member(self) -> Member:
        """Return one more member, with the defaults of its protocol."""
        return Member(self._node, self.group, [self.topic], **INCREMENTAL)

    def finish(self, members: list[Member]) -> None:
        """Stop, wait until all is read, and check that nothing was lost or read twice."""
        published = self.publisher.stop() * self.partitions
        wait_until(lambda: sum(len(m.readings) for m in members) >= published, "all is read")
        places = [(r.partition, r.offset) for member in members for r in member.readings]
        assert len(places) == len(set(places)) == published

    def check_staying(self, member: Member, partitions: set[int]) -> None:
        """Check that a member read partitions without a pause of its own."""
        for partition in partitions:
            pause_s = _pause_s(member, partition)
            assert pause_s < self.usual_pause_s(partition) + STAYING_PAUSE_MAX_S

    def usual_pause_s(self, partition: int) -> float:
        """Return the longest pause of those whom no change of the group concerns."""
        return max(self.publisher.gap_max_s, _pause_s(self.bystander, partition))

    def moving_pause_s(self, partition: int, *, before: Member, after: Member) -> float:
        """Return how long nobody read a partition that moved from one member to another."""
        last_s = max(r.read_s for r in before.readings if r.partition == partition)
        times_s = [r.read_s for r in after.readings if r.partition == partition]
        return min(read_s for read_s in times_s if read_s > last_s) - last_s


def _pause_s(member: Member, partition: int) -> float:
    """Return the longest time between two messages of a partition."""
    return gap_max_s([r.read_s for r in member.readings if r.partition == partition])


def test_a_member_that_joins_pauses_only_the_partitions_that_move(
    fresh_node: NodeProcess, record_property: Callable[[str, object], None]
) -> None:
    stream = Stream(fresh_node)
    everything = set(range(stream.partitions))
    with stream.publisher, stream.bystander, stream.member() as first:
        wait_until(lambda: {r.partition for r in first.readings} == everything, "all are read")
        with stream.member() as second:
            wait_until(lambda: is_shared_out([first, second], stream.partitions), "two halves")
            moved = second.partitions
            wait_until(lambda: {r.partition for r in second.readings} == moved, "moved are read")
            stream.finish([first, second])

            assert sorted(partition for _, partition in first.revoked) == sorted(moved)
            stream.check_staying(first, everything - moved)
            for partition in moved:
                pause_s = stream.moving_pause_s(partition, before=first, after=second)
                record_property(f"pause of partition {partition}", round(pause_s, 3))
                assert pause_s < stream.usual_pause_s(partition) + MOVING_PAUSE_MAX_S
    ends = [len(stream.publisher.rounds_s)] * stream.partitions
    assert committed(fresh_node, stream.group, stream.topic, stream.partitions) == ends


def test_a_member_that_leaves_pauses_only_its_own_partitions(
    fresh_node: NodeProcess, record_property: Callable[[str, object], None]
) -> None:
    stream = Stream(fresh_node)
    everything = set(range(stream.partitions))
    with stream.publisher, stream.bystander, stream.member() as stayer:
        wait_until(lambda: {r.partition for r in stayer.readings} == everything, "all are read")
        with stream.member() as leaver:
            wait_until(lambda: is_shared_out([stayer, leaver], stream.partitions), "two halves")
            kept, moved = stayer.partitions, leaver.partitions
            wait_until(lambda: {r.partition for r in leaver.readings} == moved, "moved are read")

        wait_until(lambda: stayer.partitions == everything, "the stayer has all")
        stream.finish([stayer, leaver])

        assert {partition for _, partition in stayer.revoked} == moved
        stream.check_staying(stayer, kept)
        for partition in moved:
            pause_s = stream.moving_pause_s(partition, before=leaver, after=stayer)
            record_property(f"pause of partition {partition}", round(pause_s, 3))
            assert pause_s < stream.usual_pause_s(partition) + MOVING_PAUSE_MAX_S


@both_protocols
def test_a_static_member_that_returns_finds_its_partitions_and_disturbs_nobody(
    node: NodeProcess, settings: dict[str, object]
) -> None:
    topic, group = new_topic(node, 4), unique("group")
    patient = settings if settings is INCREMENTAL else settings | {"session_timeout_ms": 20_000}
    with Member(node, group, [topic], group_instance_id="other", **patient) as other:
        with Member(node, group, [topic], group_instance_id="restarted", **patient) as before:
            wait_until(lambda: is_shared_out([other, before], 4), "both have a half")
            kept, assignments = before.partitions, other.assignments
        revoked = list(other.revoked)

        with Member(node, group, [topic], group_instance_id="restarted", **patient) as after:
            wait_until(lambda: after.partitions, "the member is back")
            publish_everywhere(node, topic, 4, 5)
            wait_until(lambda: len(after.readings) == len(other.readings) == 10, "both read")

            assert after.partitions == kept
            assert (other.revoked, other.assignments) == (revoked, assignments)


@both_protocols
def test_topics_that_match_a_pattern_are_read_as_they_appear(
    node: NodeProcess, settings: dict[str, object]
) -> None:
    prefix = unique("family")
    group = unique("group")
    quick = {"topic_metadata_refresh_interval_ms": 500}
    with Member(node, group, [f"^{prefix}.*"], **quick, **settings) as member:
        for name in (f"{prefix}-a", f"{prefix}-b"):
            publish(node, name, [b"x"])
            wait_until(lambda name=name: (name, 0) in member.owned, f"{name} is read")

        wait_until(lambda: len(member.readings) == 2, "all is read")


@both_protocols
def test_partitions_that_are_added_are_read(node: NodeProcess, settings: dict[str, object]) -> None:
    topic, group = new_topic(node, 1), unique("group")
    quick = {"topic_metadata_refresh_interval_ms": 500}
    with Member(node, group, [topic], **quick, **settings) as member:
        wait_until(lambda: member.partitions == {0}, "the only partition")
        admin = new_admin(node)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(120)
        wait_until(lambda: member.partitions == {0, 1, 2}, "all partitions")

        publish_everywhere(node, topic, 3, 5)
        wait_until(lambda: len(member.readings) == 15, "all is read")


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(node: NodeProcess) -> None:
    topic, group = new_topic(node), unique("group")
    publish(node, topic, [b"%d" % n for n in range(30)])
    for settings, expected in ((CLASSIC, b"0"), (INCREMENTAL, b"10"), (CLASSIC, b"20")):
        with open_consumer(node, group, enable_auto_commit=False, **settings) as consumer:
            consumer.subscribe([topic])
            messages = read(consumer, 10)
            assert messages[0].value() == expected
            consumer.commit(messages[-1], asynchronous=False)


def test_a_consumer_outside_of_any_group_commits_and_finds_its_position(node: NodeProcess) -> None:
    topic, group = new_topic(node), unique("group")
    publish(node, topic, [b"%d" % n for n in range(10)])
    with open_consumer(node, group) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.commit(read(consumer, 4)[-1], asynchronous=False)

    with open_consumer(node, group) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert read(consumer, 1)[0].value() == b"4"
