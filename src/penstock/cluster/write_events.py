"""What happens to a write that is staged first and committed later, as entries of partitions' logs.

A *writer*, for instance a streaming query of Spark, writes *epochs*, one after the other, each to
any number of partitions. A *run* is one attempt at an epoch; a query that is started again makes
another one. In a run, each task stages its batches under a name of its own, the *stage*; a task
that is repeated takes another name, and the commit names the stages that count.

The partitions that are written to keep what is staged (`StagedWrites`). Which run of an epoch
counts is decided in one place, partition 0 of the writer's *home*, a topic (`WriteDecisions`).
"""

import msgspec


class WritePart(msgspec.Struct, frozen=True, array_like=True):
    """What a write holds for one partition: stages in their order, and the batches of each.

    `topic_id` tells the topic from one that is created under its name later.
    """

    topic: str
    partition: int
    stages: tuple[tuple[str, int], ...]
    topic_id: str = ""


class WriteStaged(msgspec.Struct, frozen=True, tag="write_stage"):
    """A batch waits here for its commit; `number` is its place in its stage.

    `producer_id` is the writer's number in this partition, if it has none there yet.
    """

    writer: str
    epoch: int
    run: str
    stage: str
    number: int
    batch: bytes
    home: str
    producer_id: int
    at_ms: int


class WriteDone(msgspec.Struct, frozen=True, tag="write_done"):
    """All records of an epoch are in the log; the writer's next one has the number `sequence`."""

    writer: str
    epoch: int
    sequence: int
    at_ms: int


class WriteDropped(msgspec.Struct, frozen=True, tag="write_drop"):
    """What a run has staged here is not wanted, unless it was touched at `before_ms` or later."""

    writer: str
    run: str
    before_ms: int


class WritersForgotten(msgspec.Struct, frozen=True, tag="write_forget"):
    """Writers that nobody heard of since `before_ms`, and that wait for nothing, are forgotten."""

    before_ms: int


class WriteDecided(msgspec.Struct, frozen=True, tag="write_decide"):
    """This run of the epoch counts, if none was decided before it."""

    writer: str
    epoch: int
    run: str
    parts: tuple[WritePart, ...]
    at_ms: int


class WriteRefused(msgspec.Struct, frozen=True, tag="write_refuse"):
    """This run never counts, unless that was decided before."""

    writer: str
    epoch: int
    run: str
    at_ms: int


class WriteFinished(msgspec.Struct, frozen=True, tag="write_finish"):
    """What was decided for the epoch is in the logs of all its partitions."""

    writer: str
    epoch: int
    at_ms: int


StagedWriteEvent = WriteStaged | WriteDone | WriteDropped
DecisionEvent = WriteDecided | WriteRefused | WriteFinished
WriteEvent = StagedWriteEvent | DecisionEvent | WritersForgotten
