"""`/v1/topics/{topic}/writes`: batches that are staged first and published together by a commit.

This is how Spark's sink writes exactly once. The topic in the path of a batch is the one that it is
for; the topic in the path of a commit is the writer's home, which keeps what was decided.
"""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import EPOCH_MAX, StageBatch, StagedRunStatus, WriteCommit, WritePart
from penstock.protocols.http.endpoints import (
    FAILURES,
    TOPIC,
    Answer,
    Endpoint,
    Parameter,
    text_query,
)
from penstock.protocols.http.exchange import (
    from_here,
    json_response,
    read_body,
    read_bytes,
    read_number,
)
from penstock.protocols.http.view import NodeView

_COMMIT_BYTES_MAX = 64 * 1024 * 1024
_PATH = "/v1/topics/{topic}/writes"
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]

_WRITER = Parameter(name="writer", type="string", meaning="Who writes: an id of its own for each.")
_BATCH = (
    TOPIC,
    _WRITER,
    Parameter(name="epoch", type="integer", meaning="Which write of the writer."),
    Parameter(name="run", type="string", meaning="Which attempt at the epoch."),
    Parameter(name="stage", type="string", meaning="What one task stages in this attempt."),
    Parameter(name="partition", type="integer", meaning="Where the batch is to be published."),
    Parameter(name="number", type="integer", meaning="Its place in its stage and partition."),
    text_query("home", "The topic that the commit will go to; this one, if it is not given."),
)


class StageOutcome(Struct, frozen=True, kw_only=True):
    """Whether the batch waits for its commit; if not, its epoch is committed already."""

    staged: bool


class StageBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stage, and how many batches it has in the partition."""

    stage: _Name
    batches: _Count


class WritePartBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stages that count in one partition, in the order in which they are published."""

    topic: str
    partition: _Partition
    stages: Annotated[list[StageBody], Meta(min_length=1, max_length=1_000_000)]


class WriteBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of an epoch, and what it has staged."""

    epoch: _Epoch
    run: _Name
    parts: Annotated[list[WritePartBody], Meta(max_length=100_000)]


class WriteCommitted(Struct, frozen=True, kw_only=True):
    """Whether the epoch is published everywhere, and which run of it was."""

    done: Annotated[bool, Meta(description="If not, it goes on; ask again.")]
    run: Annotated[str, Meta(description="Empty when that was decided long ago.")]


class WriteAborted(Struct, frozen=True, kw_only=True):
    """Whether the run will never be published; if not, it or a later epoch is committed."""

    aborted: bool


class StagedRun(Struct, frozen=True, kw_only=True):
    """What one attempt has staged in one partition and not committed."""

    partition: int
    writer: str
    epoch: int
    run: str
    batches: int
    records: int
    size_bytes: int
    touched: Annotated[int, Meta(description="When the last batch came, in milliseconds.")]


class StagedRuns(Struct, frozen=True, kw_only=True):
    """Everything that waits for a commit in a topic."""

    runs: list[StagedRun]


class WriterState(Struct, frozen=True, kw_only=True):
    """How far a writer is, as its home knows."""

    writer: str
    committed_epoch: int | None
    publishing_epoch: Annotated[
        int | None, Meta(description="Decided, and not published everywhere yet.")
    ]


def write_endpoints(view: NodeView, *, bytes_max: int) -> list[Endpoint]:
    """What writers can do."""
    return [*_looking(view), *_staging(view, bytes_max), *_ending(view)]


def _looking(view: NodeView) -> list[Endpoint]:
    async def list_staged(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        found = await view.writes.staged(topic)
        return json_response(StagedRuns(runs=[_show(each) for each in found]))

    async def writer_state(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        writer = request.path_params["writer"]
        found = await view.writes.status(topic, writer)
        return json_response(
            WriterState(
                writer=writer,
                committed_epoch=found.committed_epoch,
                publishing_epoch=found.publishing_epoch,
            )
        )

    return [
        Endpoint(
            path=_PATH,
            name="staged-writes",
            summary="What waits for a commit",
            description="Batches that writers have staged in the partitions of a topic.",
            parameters=(TOPIC,),
            answers={200: Answer(meaning="What waits.", body=StagedRuns), **FAILURES},
            call=list_staged,
        ),
        Endpoint(
            path=f"{_PATH}/{{writer}}/status",
            name="writer-status",
            summary="How far is a writer?",
            description="Asked at the writer's home.",
            parameters=(TOPIC, _WRITER),
            answers={200: Answer(meaning="How far it is.", body=WriterState), **FAILURES},
            call=writer_state,
        ),
    ]


def _staging(view: NodeView, bytes_max: int) -> list[Endpoint]:
    async def stage(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        staged = await view.writes.stage(
            StageBatch(
                topic=topic,
                partition=read_number(request, "partition"),
                writer=request.path_params["writer"],
                epoch=read_number(request, "epoch", most=EPOCH_MAX),
                run=request.path_params["run"],
                stage=request.path_params["stage"],
                number=read_number(request, "number"),
                home=request.query_params.get("home", topic),
                batch=await read_bytes(request, bytes_max),
            )
        )
        return json_response(StageOutcome(staged=staged))

    return [
        Endpoint(
            path=f"{_PATH}/{{writer}}/{{epoch}}/{{run}}/{{stage}}/{{partition}}/{{number}}",
            method="PUT",
            name="stage-write",
            summary="Stage a batch",
            description="The body is a record batch as Kafka's producers encode it, version 2,"
            " without a producer id. It is kept until its run is committed, and dropped when it"
            " has waited for `write_stage_expiry_ms`. Sending it again does no harm.",
            parameters=_BATCH,
            takes_bytes=True,
            answers={200: Answer(meaning="It is kept.", body=StageOutcome), **FAILURES},
            call=from_here(stage),
        )
    ]


def _ending(view: NodeView) -> list[Endpoint]:
    async def commit(request: Request) -> Response:
        committed = await view.writes.commit(await _read_commit(request, view))
        return json_response(WriteCommitted(done=committed.is_done, run=committed.run))

    async def abort(request: Request) -> Response:
        aborted = await view.writes.abort(await _read_commit(request, view))
        return json_response(WriteAborted(aborted=aborted))

    example = (
        '{"epoch": 7, "run": "a1", "parts": [{"topic": "orders", "partition": 0,'
        ' "stages": [{"stage": "task-0", "batches": 2}]}]}'
    )
    return [
        Endpoint(
            path=f"{_PATH}/{{writer}}/commit",
            method="POST",
            name="commit-write",
            summary="Publish what a run has staged",
            description="Each partition publishes its part exactly once. Where another run of the"
            " epoch was committed before, that one counts and this one is dropped; an epoch below"
            " the last one is refused. Committing again does no harm.",
            parameters=(TOPIC, _WRITER),
            body=WriteBody,
            example=example,
            answers={200: Answer(meaning="How far it is.", body=WriteCommitted), **FAILURES},
            call=from_here(commit),
        ),
        Endpoint(
            path=f"{_PATH}/{{writer}}/abort",
            method="POST",
            name="abort-write",
            summary="Drop what a run has staged",
            description="A run that is committed already stays so.",
            parameters=(TOPIC, _WRITER),
            body=WriteBody,
            example=example,
            answers={200: Answer(meaning="What became of it.", body=WriteAborted), **FAILURES},
            call=from_here(abort),
        ),
    ]


async def _read_commit(request: Request, view: NodeView) -> WriteCommit:
    body = await read_body(request, WriteBody, bytes_max=_COMMIT_BYTES_MAX)
    return WriteCommit(
        home=view.topics.find(request.path_params["topic"]).name,
        writer=request.path_params["writer"],
        epoch=body.epoch,
        run=body.run,
        parts=tuple(
            WritePart(
                part.topic,
                part.partition,
                tuple((each.stage, each.batches) for each in part.stages),
            )
            for part in body.parts
        ),
    )


def _show(run: StagedRunStatus) -> StagedRun:
    return StagedRun(
        partition=run.partition,
        writer=run.writer,
        epoch=run.epoch,
        run=run.run,
        batches=run.batches,
        records=run.records,
        size_bytes=run.size_bytes,
        touched=run.touched_ms,
    )
