"""Consumer groups: list, describe, move their offsets, delete."""

import builtins
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.admin import Admin
from penstock.client.descriptions import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    PartitionProgress,
)
from penstock.client.first_times import first_times_ms
from penstock.client.translation import translate
from penstock.clock import SystemClock
from penstock.errors import GroupNotFound, NotCoordinator
from penstock.ids import TopicPartition

T = TypeVar("T")

AGES_WAIT_S = 5.0
# How long to wait before a group's coordinator is looked for again.
_PAUSE_S = 0.1


class Groups:
    """Administers the consumer groups of one cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._connection = admin.connection
        self._librdkafka = admin.librdkafka
        self._clock = SystemClock()

    def list(self) -> list[GroupListing]:
        """Return all consumer groups, ordered by name."""
        future = self._librdkafka.list_consumer_groups()
        result = self._connection.wait(future, "list groups")
        for error in result.errors or []:
            raise translate(error, "list groups")
        listings = [
            GroupListing(
                name=each.group_id,
                kind="consumer",
                state=_word(each.state),
                protocol=_word(each.type),
            )
            for each in result.valid
        ]
        return sorted(listings, key=lambda each: each.name)

    def list_with_share_groups(self) -> builtins.list[GroupListing]:
        """Return consumer groups and share groups, ordered by name.

        librdkafka leaves share groups out where it lists consumer groups. An older call names all
        groups, and describes those that it does not understand as dead and of no type.
        """
        # Consumer groups come first: one that ends between both calls is no share group.
        listings = self.list()
        known = {each.name for each in listings}
        listings += [
            GroupListing(name=each.id, kind="share", state="unknown", protocol="share")
            for each in self._all_groups()
            if each.id not in known and not each.protocol_type and each.state == "Dead"
        ]
        return sorted(listings, key=lambda each: each.name)

    def describe(self, name: str) -> GroupDescription:
        """Return one group with its members and its progress in every partition it concerns."""
        described = self._describe(name)
        members = tuple(_member(each) for each in described.members)
        committed = self.committed(name)
        if not members and not committed and _word(described.state) in {"dead", "unknown"}:
            self.check_no_share_group(name, f"describe group {name}")
            raise GroupNotFound(f"describe group {name}: there is no such consumer group")
        return GroupDescription(
            name=name,
            state=_word(described.state),
            protocol=_word(described.type),
            assignor=described.partition_assignor,
            coordinator=described.coordinator.id if described.coordinator else None,
            members=members,
            progress=self._with_ages(self._progress(members, committed)),
        )

    def check_no_share_group(self, name: str, doing: str) -> None:
        """Raise for a share group: it has a position for each message, and no offsets."""
        if any(each.name == name for each in self.list_with_share_groups() if each.kind == "share"):
            path = f"/v1/topics/TOPIC/groups/{name}"
            raise GroupNotFound(
                f"{doing}: it is a share group; over HTTP, GET {path} shows it and POST"
                f" {path}/reset moves it"
            )

    def members(self, name: str) -> tuple[MemberDescription, ...]:
        """Return the members that a group has at this moment; an unknown group has none."""
        try:
            return tuple(_member(each) for each in self._describe(name).members)
        except GroupNotFound:
            return ()

    def committed(self, name: str) -> dict[TopicPartition, int]:
        """Return the committed offset of every partition that has one.

        They are asked for as consumers do it: librdkafka's call for administrators ends the process
        when another node has become the group's coordinator.
        """
        partitions = [
            KafkaPartition(topic.name, number)
            for topic in self._admin.topics()
            for number in range(topic.partitions)
        ]
        if not partitions:
            return {}
        asking = KafkaConsumer(self._connection.settings(group_id=name))
        try:
            found = self._from_coordinator(lambda: self._committed(asking, name, partitions))
        finally:
            asking.close()
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found
            if each.offset >= 0
        }

    def _committed(
        self, asking: KafkaConsumer, name: str, partitions: builtins.list[KafkaPartition]
    ) -> builtins.list[KafkaPartition]:
        doing = f"read offsets of group {name}"
        try:
            found = asking.committed(partitions, timeout=self._connection.wait_s)
        except KafkaException as error:
            raise translate(error, doing) from None
        for each in found:
            if each.error is not None:
                raise translate(each.error, doing)
        return list(found)

    def _from_coordinator(self, ask: Callable[[], T]) -> T:
        """Ask, and again while the group is on its way to another coordinator."""
        until_s = self._clock.steady_s() + self._connection.wait_s
        while True:
            try:
                return ask()
            except NotCoordinator:
                if self._clock.steady_s() > until_s:
                    raise
            time.sleep(_PAUSE_S)

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members."""
        wanted = [
            KafkaPartition(each.topic, each.partition, offset) for each, offset in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(name, wanted)]
        futures = self._librdkafka.alter_consumer_group_offsets(request)
        result = self._connection.wait(futures[name], f"reset group {name}")
        for each in result.topic_partitions or []:
            if each.error is not None:
                doing = f"reset group {name} on {each.topic} partition {each.partition}"
                raise translate(each.error, doing)

    def delete(self, name: str) -> None:
        """Delete a group without members, and its offsets."""
        futures = self._librdkafka.delete_consumer_groups([name])
        self._connection.wait(futures[name], f"delete group {name}")

    def _all_groups(self) -> builtins.list[Any]:
        with warnings.catch_warnings():
            # What librdkafka recommends instead does not tell of share groups.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                return self._librdkafka.list_groups(timeout=self._connection.wait_s)
            except KafkaException as error:
                raise translate(error, "list groups") from None

    def _describe(self, name: str) -> Any:
        def ask() -> Any:
            futures = self._librdkafka.describe_consumer_groups([name])
            return self._connection.wait(futures[name], f"describe group {name}")

        return self._from_coordinator(ask)

    def _progress(
        self, members: tuple[MemberDescription, ...], committed: Mapping[TopicPartition, int]
    ) -> tuple[PartitionProgress, ...]:
        owners = {each: member.member_id for member in members for each in member.partitions}
        concerned = sorted(owners.keys() | committed.keys())
        # Offsets may outlive their topic, so only what still exists is asked for its end.
        existing = {listing.name for listing in self._admin.topics()}
        ends = self._admin.offset_ranges(each for each in concerned if each.topic in existing)
        return tuple(
            PartitionProgress(
                topic=each.topic,
                partition=each.partition,
                committed=committed.get(each),
                end=ends[each].end if each in ends else None,
                member_id=owners.get(each),
            )
            for each in concerned
        )

    def _with_ages(self, progress: Sequence[PartitionProgress]) -> tuple[PartitionProgress, ...]:
        """Add how old the first record of each partition is that was not committed yet."""
        places = [TopicPartition(each.topic, each.partition) for each in progress]
        behind = {
            place: each.committed
            for place, each in zip(places, progress, strict=True)
            if each.committed is not None and each.lag
        }
        wait_s = min(AGES_WAIT_S, self._connection.wait_s)
        times_ms = first_times_ms(self._connection, behind, wait_s=wait_s, clock=self._clock)
        now_ms = self._clock.now_ms()
        ages_s = {
            # Between the offset and the end there may be nothing but marks of transactions.
            place: 0.0 if time_ms is None else max(0, now_ms - time_ms) / 1000
            for place, time_ms in times_ms.items()
        }
        return tuple(
            replace(each, lag_s=0.0 if each.lag == 0 else ages_s.get(place))
            for place, each in zip(places, progress, strict=True)
        )


def _member(described: Any) -> MemberDescription:
    return MemberDescription(
        member_id=described.member_id,
        client_id=described.client_id,
        host=described.host,
        instance_id=described.group_instance_id,
        partitions=tuple(
            sorted(
                TopicPartition(each.topic, each.partition)
                for each in described.assignment.topic_partitions
            )
        ),
    )


def _word(state: Any) -> str:
    """Turn an enumeration's `PREPARING_REBALANCING` into `preparing rebalancing`."""
    return str(state.name).lower().replace("_", " ")
