"""Staged writes over HTTP, with the Python client and as plain requests."""

import json
import time
import urllib.error
import urllib.request

import pytest

from penstock.client import StagedPart, StagedWriter, StageName, WriterState
from penstock.errors import WriteNotStaged, WriterFenced
from penstock.ids import TopicPartition
from penstock.record import Record, encode_batch
from tests.kafka_clients import new_topic, open_consumer, read, unique
from tests.processes import NodeProcess


def batch_of(*values: bytes) -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(encode_batch([Record(n, now_ms, None, value) for n, value in enumerate(values)]))


def name_of(topic: str, *, epoch: int = 0, run: str = "r") -> StageName:
    return StageName(home=topic, writer="w", epoch=epoch, run=run, stage="task-0")


def values_of(node: NodeProcess, topic: str, count: int) -> list[bytes | None]:
    with open_consumer(node, unique("group")) as consumer:
        consumer.subscribe([topic])
        return [message.value() for message in read(consumer, count)]


def put(node: NodeProcess, path: str, body: bytes) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(f"{node.http_url}{path}", body, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_kafka_clients_see_a_write_when_it_is_committed(node: NodeProcess) -> None:
    topic = new_topic(node)
    place = TopicPartition(topic, 0)
    writer = StagedWriter(node.http_url)
    assert writer.stage(name_of(topic), place, 0, batch_of(b"a", b"b"))
    assert writer.stage(name_of(topic), place, 1, batch_of(b"c"))
    (staged,) = json.loads(node.get(f"/v1/topics/{topic}/writes")[1])["runs"]
    assert (staged["writer"], staged["batches"], staged["records"]) == ("w", 2, 3)

    assert writer.commit(topic, "w", 0, "r", [StagedPart(place, [("task-0", 2)])]) == "r"

    assert values_of(node, topic, 3) == [b"a", b"b", b"c"]
    assert writer.status(topic, "w") == WriterState(
        writer="w", committed_epoch=0, publishing_epoch=None
    )
    assert not writer.stage(name_of(topic, run="again"), place, 0, batch_of(b"x"))
    assert writer.commit(topic, "w", 0, "again", [StagedPart(place, [("task-0", 1)])]) == "r"
    writer.close()


def test_errors_of_writers_are_told_as_they_are(node: NodeProcess) -> None:
    topic = new_topic(node)
    place = TopicPartition(topic, 0)
    writer = StagedWriter(node.http_url)

    with pytest.raises(WriteNotStaged, match="number 0 of 1 is missing"):
        writer.commit(topic, "w", 5, "r", [StagedPart(place, [("task-0", 1)])])
    writer.stage(name_of(topic, epoch=5), place, 0, batch_of(b"a"))
    writer.commit(topic, "w", 5, "r", [StagedPart(place, [("task-0", 1)])])
    with pytest.raises(WriterFenced, match="epoch 4 of writer 'w' comes after epoch 5"):
        writer.stage(name_of(topic, epoch=4), place, 0, batch_of(b"a"))
    writer.stage(name_of(topic, epoch=6), place, 0, batch_of(b"a"))
    assert writer.abort(topic, "w", 6, "r", [StagedPart(place, [("task-0", 1)])])
    assert json.loads(node.get(f"/v1/topics/{topic}/writes")[1]) == {"runs": []}
    writer.close()


@pytest.mark.parametrize(
    ("path", "is_batch", "status", "kind"),
    [
        ("{topic}/writes/w/0/r/s/0/0", False, 400, "InvalidBatch"),
        ("{topic}/writes/w/0/r/s/7/0", True, 404, "TopicNotFound"),
        ("{topic}/writes/w/x/r/s/0/0", True, 400, "InvalidRequest"),
        ("none-{topic}/writes/w/0/r/s/0/0", True, 404, "TopicNotFound"),
    ],
)
def test_what_cannot_be_staged_is_refused(
    node: NodeProcess, path: str, is_batch: bool, status: int, kind: str
) -> None:
    topic = new_topic(node)
    body = batch_of(b"a") if is_batch else b"nonsense"

    code, answer = put(node, f"/v1/topics/{path.replace('{topic}', topic)}", body)

    assert (code, answer["error"]["type"]) == (status, kind)  # type: ignore[index]
