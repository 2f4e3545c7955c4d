"""ShareFetch and ShareAcknowledge: records with a lease each, and what became of them (KIP-932).

Acquired records may lie far apart, so they are put into batches of their own, at their offsets: a
consumer sees gaps in between as it does in a compacted log.
"""

import datetime as dt
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.share_acknowledge.v2 import request as ack_in
from kio.schema.share_acknowledge.v2 import response as ack_out
from kio.schema.share_fetch.v2 import request as fetch_in
from kio.schema.share_fetch.v2 import response as fetch_out
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64

from penstock.broker import (
    Acknowledged,
    Acknowledgement,
    Acquired,
    Broker,
    SharePartition,
    encode_batch,
)
from penstock.errors import InvalidRequest, PenstockError, TopicIdMismatch, TopicNotFound
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE, milliseconds
from penstock.protocols.kafka.errors import error_code, error_fields

_CLOSE_EPOCH = -1
_RECORDS_MAX = 10_000
_ANSWERS = frozenset(Acknowledgement)
_NO_ID = uuid.UUID(int=0)
_UNKNOWN_LEADER = fetch_out.LeaderIdAndEpoch(leader_id=i32(-1), leader_epoch=i32(-1))
_UNKNOWN_ACK_LEADER = ack_out.LeaderIdAndEpoch(leader_id=i32(-1), leader_epoch=i32(-1))


def apis() -> list[Api]:
    """Return the two APIs."""
    return [
        plain_api(78, "ShareFetch", range(1, 3), _fetch, may_wait=True),
        plain_api(79, "ShareAcknowledge", range(1, 3), _acknowledge),
    ]


class _Said:
    """The acknowledgements of a request, by partition, and what became of them."""

    def __init__(self, topics: Sequence[Any], broker: Broker) -> None:
        self.places: list[TopicPartition] = []
        self.ids: dict[str, uuid.UUID] = {}
        self.errors: dict[TopicPartition, PenstockError] = {}
        self.said: list[Acknowledged] = []
        for topic in topics:
            for partition in topic.partitions:
                self._read(topic.topic_id, partition, broker)

    def _read(self, topic_id: uuid.UUID, partition: Any, broker: Broker) -> None:
        try:
            name = broker.metadata.topic_by_public_id(topic_id).name
        except TopicNotFound as error:
            # The id stands in for the name, so that the answer can be put together.
            place = TopicPartition(f"?{topic_id}", partition.partition_index)
            self.errors[place] = TopicIdMismatch(str(error))
            self.ids[place.topic] = topic_id
            return
        place = TopicPartition(name, partition.partition_index)
        self.ids[name] = topic_id
        self.places.append(place)
        try:
            self.said += _read_batches(place, partition.acknowledgement_batches)
        except InvalidRequest as error:
            self.errors[place] = error

    async def carry_out(self, group_id: str, member_id: str, broker: Broker) -> None:
        """Carry out all of them; what fails is remembered."""
        for each in self.said:
            try:
                await broker.share.acknowledge(group_id, member_id, each)
            except PenstockError as error:
                self.errors.setdefault(each.place, error)


def _read_batches(place: TopicPartition, batches: Sequence[Any]) -> list[Acknowledged]:
    """Return what is said about a partition; when one batch makes no sense, none of it counts."""
    said: list[Acknowledged] = []
    for batch in batches:
        start, end = batch.first_offset, batch.last_offset + 1
        answers = batch.acknowledge_types
        if start >= end or (said and start < said[-1].end):
            raise InvalidRequest(f"offsets {start} to {end - 1} of {place} are out of order")
        # One answer may stand for all records of the batch.
        if len(answers) not in (1, end - start):
            raise InvalidRequest(
                f"offsets {start} to {end - 1} of {place} have {len(answers)} answers, not 1 or"
                f" {end - start}"
            )
        for answer in answers:
            if answer not in _ANSWERS:
                raise InvalidRequest(f"{answer} is no answer about a record of {place}")
        said.append(Acknowledged(place, start, end, answers))
    return said


async def _fetch(
    request: fetch_in.ShareFetchRequest, context: Context
) -> fetch_out.ShareFetchResponse:
    broker = context.broker
    group_id, member_id = request.group_id or "", request.member_id or ""
    said = _Said(request.topics, broker)
    found: list[SharePartition] = []
    error: PenstockError | None = None
    try:
        broker.share.open_session(
            group_id,
            member_id,
            request.share_session_epoch,
            added={place: said.ids[place.topic] for place in said.places},
            forgotten={
                (topic.topic_id or _NO_ID, partition)
                for topic in request.forgotten_topics_data
                for partition in topic.partitions
            },
            connection=context.connection,
        )
        await said.carry_out(group_id, member_id, broker)
        if request.share_session_epoch == _CLOSE_EPOCH:
            await broker.share.close_session(group_id, member_id)
        elif not request.is_renew_ack:
            # One that renews leases brings no limits for records and is answered at once.
            found = await broker.share.acquire(
                group_id,
                member_id,
                records_max=max(1, min(_RECORDS_MAX, request.max_records)),
                bytes_max=max(1, request.max_bytes),
                wait_ms=milliseconds(request.max_wait),
            )
    except PenstockError as failure:
        error = failure
    return _fetch_response(broker, group_id, said, found, error)


def _fetch_response(
    broker: Broker,
    group_id: str,
    said: _Said,
    found: Sequence[SharePartition],
    error: PenstockError | None,
) -> fetch_out.ShareFetchResponse:
    by_place = {each.place: each for each in found if each.acquired or each.error}
    # Members hear what became of acks only when the partition is in the answer.
    for place in (*(each.place for each in said.said), *said.errors):
        by_place.setdefault(place, SharePartition(place, said.ids[place.topic]))
    by_topic: dict[uuid.UUID, list[fetch_out.PartitionData]] = {}
    for place, partition in by_place.items():
        data = _partition(partition, said.errors.get(place), broker)
        by_topic.setdefault(partition.topic_id, []).append(data)
    return fetch_out.ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        **error_fields(error, broker),
        acquisition_lock_timeout=_lock(broker, group_id, (each.place for each in found)),
        responses=tuple(
            fetch_out.ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
        node_endpoints=(),
    )


def _lock(broker: Broker, group_id: str, places: Iterable[TopicPartition]) -> i32Timedelta:
    return i32Timedelta.parse(dt.timedelta(milliseconds=broker.share.lease_ms(group_id, places)))


def _partition(
    partition: SharePartition, ack_error: PenstockError | None, broker: Broker
) -> fetch_out.PartitionData:
    error = partition.error
    return fetch_out.PartitionData(
        partition_index=i32(partition.place.partition),
        **error_fields(error, broker),
        acknowledge_error_code=i16(error_code(ack_error, broker).value),
        acknowledge_error_message=str(ack_error) if ack_error else None,
        current_leader=_UNKNOWN_LEADER,
        records=_records(partition.acquired),
        acquired_records=_ranges(partition.acquired),
    )


def _records(acquired: Sequence[Acquired]) -> Records:
    ordered = sorted((each.record for each in acquired), key=lambda record: record.offset)
    return Records.parse(bytes(encode_batch(ordered)) if ordered else b"")


def _ranges(acquired: Sequence[Acquired]) -> tuple[fetch_out.AcquiredRecords, ...]:
    """Join consecutive records that went out equally often."""
    ranges: list[tuple[int, int, int]] = []
    for each in sorted(acquired, key=lambda each: each.record.offset):
        offset = each.record.offset
        if ranges and ranges[-1][1] == offset - 1 and ranges[-1][2] == each.attempt:
            ranges[-1] = (ranges[-1][0], offset, each.attempt)
        else:
            ranges.append((offset, offset, each.attempt))
    return tuple(
        fetch_out.AcquiredRecords(
            first_offset=i64(first), last_offset=i64(last), delivery_count=i16(min(count, 32767))
        )
        for first, last, count in ranges
    )


async def _acknowledge(
    request: ack_in.ShareAcknowledgeRequest, context: Context
) -> ack_out.ShareAcknowledgeResponse:
    broker = context.broker
    group_id, member_id = request.group_id or "", request.member_id or ""
    said = _Said(request.topics, broker)
    error: PenstockError | None = None
    try:
        broker.share.open_session(
            group_id,
            member_id,
            request.share_session_epoch,
            added={},
            forgotten=(),
            connection=context.connection,
        )
        await said.carry_out(group_id, member_id, broker)
        if request.share_session_epoch == _CLOSE_EPOCH:
            await broker.share.close_session(group_id, member_id)
    except PenstockError as failure:
        error = failure
    by_topic: dict[str, list[ack_out.PartitionData]] = {}
    for place in dict.fromkeys((*said.places, *said.errors)):
        failed = said.errors.get(place)
        by_topic.setdefault(place.topic, []).append(
            ack_out.PartitionData(
                partition_index=i32(place.partition),
                **error_fields(failed, broker),
                current_leader=_UNKNOWN_ACK_LEADER,
            )
        )
    return ack_out.ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        **error_fields(error, broker),
        acquisition_lock_timeout=_lock(broker, group_id, said.places),
        responses=tuple(
            ack_out.ShareAcknowledgeTopicResponse(
                topic_id=said.ids[topic], partitions=tuple(partitions)
            )
            for topic, partitions in by_topic.items()
        ),
        node_endpoints=(),
    )
