"""`/v1/topics`: create, look at, change and delete topics."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import NewTopic
from penstock.ids import TopicPartition
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint
from penstock.protocols.http.exchange import from_here, json_response, read_body
from penstock.protocols.http.setting_values import setting_text, split_settings
from penstock.protocols.http.topic_bodies import (
    AlterTopicBody,
    NewTopicBody,
    TopicDeleted,
    TopicDescription,
    TopicList,
    TopicPartitionBounds,
    TopicSettingValue,
    TopicSummary,
)
from penstock.protocols.http.view import NodeView

_DESCRIBED = Answer(meaning="As it stands.", body=TopicDescription)


def topic_endpoints(view: NodeView) -> list[Endpoint]:
    """What can be done to topics as a whole."""
    return [*_looking(view), *_creating(view), *_changing(view)]


def _looking(view: NodeView) -> list[Endpoint]:
    async def list_topics(_request: Request) -> Response:
        topics = sorted(view.metadata.topics.values(), key=lambda topic: topic.name)
        return json_response(
            TopicList(
                topics=[
                    TopicSummary(
                        name=topic.name,
                        partitions=topic.partitions,
                        replication_factor=len(topic.replicas[0].members),
                    )
                    for topic in topics
                ]
            )
        )

    async def show(request: Request) -> Response:
        return json_response(await _describe(view, request.path_params["topic"]))

    return [
        Endpoint(
            path="/v1/topics",
            name="topics",
            summary="All topics",
            description="By name.",
            answers={200: Answer(meaning="As this node sees it.", body=TopicList)},
            call=list_topics,
        ),
        Endpoint(
            path="/v1/topics/{topic}",
            name="topic",
            summary="One topic",
            description="Its partitions with the offsets that they hold, and all settings.",
            parameters=(TOPIC,),
            answers={200: _DESCRIBED, **FAILURES},
            call=show,
        ),
    ]


def _creating(view: NodeView) -> list[Endpoint]:
    async def create(request: Request) -> Response:
        body = await read_body(request, NewTopicBody)
        await view.topics.create(
            NewTopic(
                body.name,
                -1 if body.partitions is None else body.partitions,
                -1 if body.replication_factor is None else body.replication_factor,
                {name: setting_text(value) for name, value in body.settings.items()},
            )
        )
        return json_response(await _describe(view, body.name), status=201)

    async def delete(request: Request) -> Response:
        name = request.path_params["topic"]
        await view.topics.delete(view.topics.find(name).name)
        return json_response(TopicDeleted(name=name))

    return [
        Endpoint(
            path="/v1/topics",
            method="POST",
            name="create-topic",
            summary="Create a topic",
            description="Settings have the names that Kafka's tools use, and Penstock's own.",
            body=NewTopicBody,
            example='{"name": "orders", "partitions": 3, "settings": {"retention.ms": "86400000"}}',
            answers={201: _DESCRIBED, **FAILURES},
            call=from_here(create),
        ),
        Endpoint(
            path="/v1/topics/{topic}",
            method="DELETE",
            name="delete-topic",
            summary="Delete a topic",
            description="With all its records and groups.",
            parameters=(TOPIC,),
            answers={200: Answer(meaning="It is gone.", body=TopicDeleted), **FAILURES},
            call=from_here(delete),
        ),
    ]


def _changing(view: NodeView) -> list[Endpoint]:
    async def alter(request: Request) -> Response:
        body = await read_body(request, AlterTopicBody)
        name = view.topics.find(request.path_params["topic"]).name
        changed, removed = split_settings(body.settings)
        await view.topics.change_settings(name, changed, removed, dry_run=True)
        if body.partitions is not None:
            await view.topics.grow(name, body.partitions)
        await view.topics.change_settings(name, changed, removed)
        return json_response(await _describe(view, name))

    return [
        Endpoint(
            path="/v1/topics/{topic}",
            method="PATCH",
            name="alter-topic",
            summary="Change a topic",
            description="A setting that is null returns to its default. Partitions can only be"
            " added; records stay where they are.",
            parameters=(TOPIC,),
            body=AlterTopicBody,
            example='{"settings": {"retention.ms": "3600000", "cleanup.policy": null}}',
            answers={200: _DESCRIBED, **FAILURES},
            call=from_here(alter),
        ),
    ]


async def _describe(view: NodeView, name: str) -> TopicDescription:
    topic = view.topics.find(name)
    places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    bounds = await asyncio.gather(*(view.messages.bounds(place) for place in places))
    return TopicDescription(
        name=topic.name,
        id=str(topic.topic_id),
        partitions=[
            TopicPartitionBounds(
                partition=place.partition,
                start=start,
                end=end,
                leader=view.leader_of(place)[0],
                replicas=list(topic.replicas[place.partition].nodes),
            )
            for place, (start, end) in zip(places, bounds, strict=True)
        ],
        settings={
            each.definition.name: TopicSettingValue(
                value=each.value, is_default=not each.is_given, meaning=each.definition.meaning
            )
            for each in view.topics.settings(topic.name)
        },
    )
