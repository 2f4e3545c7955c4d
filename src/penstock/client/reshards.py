"""Reshards as the HTTP door knows of them: how the copy of a topic takes its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, path_of, reader_of, to_json
from penstock.client.topics import read_nothing

ReshardPhase = Literal["copying", "fenced", "switched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardStatus:
    """How far a reshard is."""

    topic: str
    reshard_id: str
    phase: ReshardPhase
    target: str | None
    fence: int
    partitions: int
    target_partitions: int
    records: int
    target_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedPartition:
    """A partition that takes no writes: where it ends, and what waits there."""

    partition: int
    end: int
    scheduled: int
    staged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFence:
    """A fence that all partitions have confirmed."""

    fence: int
    partitions: tuple[FencedPartition, ...]


class Reshards:
    """The end of reshards, by blocking calls; all of them may be repeated."""

    def __init__(self, caller: BlockingCaller) -> None:
        self._caller = caller

    def get(self, topic: str) -> ReshardStatus:
        """Return how far the reshard of a topic is."""
        return self._caller.run(reshard_call(topic))

    def begin(self, topic: str, reshard_id: str, *, target: str) -> ReshardStatus:
        """Name the copy that is to take a topic's place."""
        return self._caller.run(begin_reshard_call(topic, reshard_id, target))

    def fence(self, topic: str, reshard_id: str) -> TopicFence:
        """Turn writes away, or go on doing so; to be repeated within a minute."""
        return self._caller.run(fence_call(topic, reshard_id))

    def lift(self, topic: str, fence: int) -> None:
        """Let a topic be written to again."""
        self._caller.run(lift_call(topic, fence))

    def switch(
        self,
        topic: str,
        reshard_id: str,
        *,
        fence: int,
        former_name: str,
        positions: Mapping[str, Sequence[int]],
    ) -> ReshardStatus:
        """Give a topic's name to its copy."""
        body = {
            "reshard_id": reshard_id,
            "fence": fence,
            "former_name": former_name,
            "positions": {group: list(offsets) for group, offsets in positions.items()},
        }
        return self._caller.run(switch_call(topic, body))

    def place_group(self, topic: str, group: str, offsets: Sequence[int]) -> None:
        """Let a queue group go on at an offset in each partition of a topic."""
        for partition, offset in enumerate(offsets):
            self._caller.run(place_group_call(topic, group, partition, offset))

    def cancel(self, topic: str) -> None:
        """Forget a reshard and delete its copy."""
        self._caller.run(cancel_reshard_call(topic))


def reshard_call(topic: str) -> Call[ReshardStatus]:
    """How far one reshard is."""
    return Call(method="GET", path=_path(topic), read=reader_of(ReshardStatus))


def begin_reshard_call(topic: str, reshard_id: str, target: str) -> Call[ReshardStatus]:
    """Begin; the same one again changes nothing."""
    return Call(
        method="POST",
        path=_path(topic),
        content=to_json({"reshard_id": reshard_id, "target": target}),
        read=reader_of(ReshardStatus),
    )


def fence_call(topic: str, reshard_id: str) -> Call[TopicFence]:
    """Raise a fence, or renew it."""
    return Call(
        method="POST",
        path=_path(topic, "fence"),
        content=to_json({"reshard_id": reshard_id}),
        read=reader_of(TopicFence),
    )


def lift_call(topic: str, fence: int) -> Call[None]:
    """Lift a fence."""
    path = _path(topic, "fence", "lift")
    return Call(method="POST", path=path, content=to_json({"fence": fence}), read=read_nothing)


def switch_call(topic: str, body: Mapping[str, object]) -> Call[ReshardStatus]:
    """Switch; the same one again finds it done."""
    return Call(
        method="POST",
        path=_path(topic, "switch"),
        content=to_json(body),
        read=reader_of(ReshardStatus),
    )


def place_group_call(topic: str, group: str, partition: int, offset: int) -> Call[None]:
    """Let a queue group go on at an offset of one partition."""
    return Call(
        method="POST",
        path=path_of("v1", "topics", topic, "groups", group, "reset"),
        content=to_json({"to": "offset", "offset": offset, "partition": partition}),
        read=read_nothing,
    )


def cancel_reshard_call(topic: str) -> Call[None]:
    """Cancel; the second time there is nothing to cancel."""
    return Call(method="DELETE", path=_path(topic), read=read_nothing, is_repeatable=False)


def _path(topic: str, *more: str) -> str:
    return path_of("v1", "topics", topic, "reshard", *more)
