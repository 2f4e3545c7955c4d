"""`/v1/archives` and `/v1/topics/{topic}/archive`: how far the archives of topics are."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import ArchivedPartition, Topic
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint
from penstock.protocols.http.exchange import from_here, json_response, read_body
from penstock.protocols.http.view import NodeView

# A topic has ten thousand partitions at most.
_REPORT_BYTES_MAX = 1024 * 1024


class ArchiveReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to which offset the archive at `path` durably holds partitions of a topic.

    `table` is the id of the Delta table there, `topic_id` that of the topic.
    """

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    table: Annotated[str, Meta(min_length=1, max_length=64)]
    topic_id: Annotated[str, Meta(min_length=1, max_length=64)]
    offsets: dict[int, Annotated[int, Meta(ge=0)]]


class ArchivedTopic(Struct, frozen=True, kw_only=True):
    """A topic that is archived, and where to."""

    topic: str
    topic_id: str
    path: str


class ArchivedTopics(Struct, frozen=True, kw_only=True):
    """All topics that are archived, by name."""

    archives: list[ArchivedTopic]


class ArchiveState(Struct, frozen=True, kw_only=True):
    """What each partition holds, and up to where the archive does; without a path it holds none."""

    topic: str
    topic_id: str
    path: str
    partitions: list[ArchivedPartition]


def archive_endpoints(view: NodeView) -> list[Endpoint]:
    """What is known about archives."""

    async def list_archives(_request: Request) -> Response:
        archives = [
            ArchivedTopic(
                topic=each.name, topic_id=str(each.topic_id), path=view.archives.path_of(each)
            )
            for each in view.archives.topics()
        ]
        return json_response(ArchivedTopics(archives=archives))

    async def show(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"])
        return json_response(_state(view, topic, await view.archives.partitions(topic)))

    async def report(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"])
        body = await read_body(request, ArchiveReport, bytes_max=_REPORT_BYTES_MAX)
        partitions = await view.archives.report(
            topic,
            topic_id=body.topic_id,
            path=body.path,
            table=body.table,
            offsets=body.offsets,
        )
        return json_response(_state(view, topic, partitions))

    known = Answer(meaning="As it stands.", body=ArchiveState)
    return [
        Endpoint(
            path="/v1/archives",
            name="archives",
            summary="All topics that are archived",
            description="By name.",
            answers={200: Answer(meaning="As this node sees it.", body=ArchivedTopics)},
            call=list_archives,
        ),
        Endpoint(
            path="/v1/topics/{topic}/archive",
            name="archive",
            summary="How far the archive of a topic is",
            description="Retention and compaction remove nothing from `archived` on.",
            parameters=(TOPIC,),
            answers={200: known, **FAILURES},
            call=show,
        ),
        Endpoint(
            path="/v1/topics/{topic}/archive",
            method="POST",
            name="report-archive",
            summary="Tell how far an archive is",
            description="Sent by `penstock archive run` when what it wrote is durable. Positions"
            " are replicated with the partitions and never go back, unless the table at the path"
            " is another one.",
            parameters=(TOPIC,),
            body=ArchiveReport,
            example='{"path": "/archive", "table": "8a6f", "topic_id": "1c", "offsets": {"0": 9}}',
            answers={200: known, **FAILURES},
            call=from_here(report),
        ),
    ]


def _state(view: NodeView, topic: Topic, partitions: list[ArchivedPartition]) -> ArchiveState:
    return ArchiveState(
        topic=topic.name,
        topic_id=str(topic.topic_id),
        path=view.archives.path_of(topic),
        partitions=partitions,
    )
