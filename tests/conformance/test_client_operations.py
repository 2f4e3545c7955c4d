"""Groups, dead letters, schedules and traces: with the client and from the command line."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import AsyncClient, Client, Header
from penstock.errors import GroupNotFound, MessageNotFound
from tests.kafka_clients import unique, wait_until
from tests.processes import NodeProcess


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.http_url) as opened:
        yield opened


def penstock(node: NodeProcess, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_URL": node.http_url},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def with_dead_letters(client: Client, *values: str) -> str:
    """Return a topic whose group `billing` has rejected these values."""
    topic = unique("orders")
    client.create_topic(topic, partitions=1)
    for value in values:
        client.publish(topic, value, key=f"key-{value}")
    messages = client.receive(topic, "billing", wait_s=10, count_max=len(values))
    for message in messages:
        client.reject(message, reason=f"cannot read {message.text()}")
    wait_until(
        lambda: len(client.dead_letters.search(topic)) == len(values), "they are dead letters"
    )
    return topic


def test_dead_letters_are_found_redriven_and_purged(client: Client) -> None:
    topic = with_dead_letters(client, "a", "b", "c")

    (letter,) = client.dead_letters.search(topic, reason="read b", group="billing", key="key-b")
    assert (letter.value, letter.key, letter.source_topic) == (b"b", b"key-b", topic)
    assert client.dead_letters.get(topic, letter.id) == letter
    assert client.dead_letters.redrive(topic, dry_run=True).moved == 3
    assert client.dead_letters.redrive(topic, ids=[letter.id]).moved == 1
    (message,) = client.receive(topic, "billing", wait_s=10)
    assert message.value == b"b"
    assert client.dead_letters.purge(topic, key="key-a").purged == 1
    assert [each.value for each in client.dead_letters.search(topic)] == [b"c"]
    with pytest.raises(MessageNotFound):
        client.dead_letters.get(topic, "0-99")


def test_a_dead_letter_is_edited_and_keeps_what_is_not_named(client: Client) -> None:
    topic = with_dead_letters(client, "a")
    (letter,) = client.dead_letters.search(topic)

    valued = client.dead_letters.edit(topic, letter.id, value={"total": 12})
    keyed = client.dead_letters.edit(topic, valued.id, key=b"\xff", headers={"by": "anna"})
    emptied = client.dead_letters.edit(topic, keyed.id, key=None, value=None, headers={})

    assert (valued.value, valued.key, valued.reason) == (b'{"total":12}', b"key-a", letter.reason)
    assert (keyed.value, keyed.key) == (valued.value, b"\xff")
    assert keyed.headers == (Header("by", b"anna"),)
    assert (emptied.value, emptied.key, emptied.headers) == (None, None, ())
    assert [each.id for each in client.dead_letters.search(topic)] == [emptied.id]
    with pytest.raises(MessageNotFound):
        client.dead_letters.edit(topic, letter.id, value="too late")


def test_scheduled_messages_are_cancelled_moved_and_released(client: Client) -> None:
    topic = unique("orders")
    ids = [client.publish(topic, value, delay_s=3_600).id for value in ("a", "b", "c")]
    page = client.schedule.page(topic, count_max=2)
    assert page.waiting == 3
    assert page.after is not None
    rest = client.schedule.page(topic, after=page.after)
    assert {each.id for each in (*page.messages, *rest.messages)} == set(ids)

    assert client.schedule.cancel(topic, ids[:1]) == {}
    assert client.schedule.move(topic, ids[1:2], datetime.now(UTC) + timedelta(days=1)) == {}
    assert client.schedule.release(topic, ids[2:]) == {}

    (message,) = client.receive(topic, "billing", wait_s=10)
    assert (message.value, message.id) == (b"c", ids[2])
    assert [each.id for each in client.schedule.page(topic).messages] == ids[1:2]
    refused = client.schedule.cancel(topic, ids[:1])
    assert isinstance(refused[ids[0]], MessageNotFound)


def test_groups_are_configured_seen_reset_and_deleted(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "a")
    group = client.groups.configure(topic, "billing", {"delivery.lease.ms": "5000"})
    assert group.settings["delivery.lease.ms"].value == "5000"
    client.receive(topic, "billing", wait_s=10)
    wait_until(lambda: client.groups.get(topic, "billing").totals.in_flight == 1, "it is out")

    client.groups.reset(topic, "billing", to="latest")
    assert client.groups.get(topic, "billing").totals.unsettled == 0
    assert [each.name for each in client.groups.list(topic)] == ["billing"]
    client.groups.delete(topic, "billing")
    with pytest.raises(GroupNotFound):
        client.groups.get(topic, "billing")


def test_a_message_tells_its_life(client: Client) -> None:
    topic = unique("orders")
    published = client.publish(topic, "a")
    (message,) = client.receive(topic, "billing", wait_s=10, consumer="anna")
    client.nack(message, delay_s=0, reason="not yet")
    (message,) = client.receive(topic, "billing", wait_s=10)
    client.ack(message)

    steps = client.trace(topic, published.id)

    kinds = [step.kind for step in steps if step.group == "billing"]
    assert kinds == ["DELIVERED", "NACKED", "REDELIVERED", "ACKNOWLEDGED"]
    assert any(step.consumer == "anna" for step in steps)


def test_the_asynchronous_face_operates_too(node: NodeProcess, client: Client) -> None:
    topic = with_dead_letters(client, "a", "b")

    async def scenario() -> None:
        async with AsyncClient(node.http_url) as opened:
            (first, _) = await opened.dead_letters.search(topic)
            assert await opened.dead_letters.get(topic, first.id) == first
            first = await opened.dead_letters.edit(topic, first.id, value="other")
            assert first.value == b"other"
            assert (await opened.dead_letters.redrive(topic, ids=[first.id])).moved == 1
            assert (await opened.dead_letters.purge(topic)).purged == 1
            later = await opened.publish(topic, "later", delay_s=3_600)
            assert (await opened.schedule.page(topic)).waiting == 1
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            assert await opened.schedule.move(topic, [later.id], tomorrow) == {}
            assert await opened.schedule.release(topic, [later.id]) == {}
            while (await opened.schedule.page(topic)).waiting:
                # Each look is a request, which takes its time.
                continue
            assert later.id in await opened.schedule.cancel(topic, [later.id])
            await opened.groups.configure(topic, "other", {})
            await opened.groups.reset(topic, "other", to="latest")
            names = [each.name for each in await opened.groups.list(topic)]
            assert names == ["billing", "other"]
            assert (await opened.groups.get(topic, "other")).totals.unsettled == 0
            await opened.groups.delete(topic, "other")
            assert (await opened.trace(topic, "0-0"))[0].kind == "PUBLISHED"
            task = await opened.tasks.enqueue(unique("email"), 1)
            (leased,) = await opened.tasks.lease([task.type], wait_s=10)
            await opened.tasks.extend(leased, lease_s=60)
            await opened.tasks.nack(leased, reason="no", delay_s=60)
            assert (await opened.tasks.status(task.id)).last_error == "no"
            assert len(await opened.tasks.pending([task.type])) == 1
            assert task.type in [each.type for each in await opened.tasks.stats()]

    asyncio.run(scenario())


def test_dead_letters_are_dealt_with_from_the_command_line(
    node: NodeProcess, client: Client
) -> None:
    topic = with_dead_letters(client, "a", "b")

    letters = json.loads(penstock(node, "dlq", "list", topic, "--json"))
    assert [each["value"] for each in letters] == ["a", "b"]
    assert "cannot read a" in penstock(node, "dlq", "list", topic)
    shown = penstock(node, "dlq", "show", topic, letters[0]["id"])
    assert f"It came from {topic} partition 0 offset 0" in shown
    assert "value: a" in shown
    edit = ("dlq", "edit", topic)
    told = penstock(node, *edit, letters[0]["id"], "--value", "A", "-H", "by=anna", "-H", "x=1=2")
    (edited,) = json.loads(penstock(node, "dlq", "list", topic, "--key", "key-a", "--json"))
    assert told == f"Dead letter {edited['id']} is in the place of {letters[0]['id']}.\n"
    assert (edited["value"], edited["key"], edited["source_id"]) == ("A", "key-a", "0-0")
    headers = [{"name": "by", "value": "anna"}, {"name": "x", "value": "1=2"}]
    assert edited["headers"] == headers
    bare = json.loads(penstock(node, *edit, letters[1]["id"], "--no-value", "--no-key", "--json"))
    assert (bare["value"], bare["key"]) == (None, None)
    penstock(node, *edit, letters[1]["id"], "--no-headers", code=1)
    assert penstock(node, "dlq", "redrive", topic, "--dry-run").startswith("2 dead letters would")
    assert penstock(node, "dlq", "redrive", topic, "--key", "key-a").startswith("1 dead letters")
    unknown = f"None of the chosen dead letters of {topic} is 0-99.\n"
    assert penstock(node, "dlq", "redrive", topic, "--id", "0-99", code=1).endswith(unknown)
    assert penstock(node, "dlq", "purge", topic, "--id", "0-99", code=1) == f"Purged 0.\n{unknown}"
    assert penstock(node, "dlq", "purge", topic) == "Purged 1.\n"
    assert "There are no dead letters" in penstock(node, "dlq", "list", topic)
    penstock(node, "dlq", "show", topic, "0-99", code=1)


def test_signs_for_the_terminal_are_shown_and_not_obeyed(node: NodeProcess, client: Client) -> None:
    topic = with_dead_letters(client, "first\n\x1b[2Jsecond")

    shown = penstock(node, "dlq", "show", topic, "0-0")

    assert "last error: cannot read first\\n\\x1b[2Jsecond\n" in shown
    assert "value: first\\n\\x1b[2Jsecond\n" in shown
    assert "\x1b" not in shown


def test_schedules_are_changed_from_the_command_line(node: NodeProcess, client: Client) -> None:
    topic = unique("orders")
    first, second = [client.publish(topic, value, delay_s=3_600).id for value in ("a", "b")]

    assert f"2 messages of {topic} wait" in penstock(node, "schedule", "list", topic)
    moved = penstock(node, "schedule", "move", topic, first, "--to", "+2h")
    assert moved == "Moved 1 of 1 messages.\n"
    listed = json.loads(penstock(node, "schedule", "list", topic, "--json"))
    assert [each["id"] for each in listed["messages"]] == [second, first]
    penstock(node, "schedule", "release", topic, second)
    penstock(node, "schedule", "cancel", topic, first)
    assert "does not wait" in penstock(node, "schedule", "cancel", topic, first, code=1)


def test_messages_are_consumed_and_traced_from_the_command_line(
    node: NodeProcess, client: Client
) -> None:
    topic = unique("orders")
    client.create_topic(topic, partitions=1)
    for value in ("a", "b", "c"):
        client.publish(topic, value)

    assert penstock(node, "consume", topic, "--queue", "billing", "-n", "1") == "a\n"
    assert penstock(node, "consume", topic, "--queue", "billing", "-e") == "b\nc\n"
    assert penstock(node, "consume", topic, "--queue", "billing", "-e") == ""
    assert "ACKNOWLEDGED" in penstock(node, "trace", topic, "0-0")
    steps = json.loads(penstock(node, "trace", topic, "0-0", "--json"))
    assert steps[0]["kind"] == "PUBLISHED"
    assert penstock(node, "trace", f"{topic}/0-0") == penstock(node, "trace", topic, "0-0")
    refused = penstock(node, "consume", topic, "--queue", "x", "--from-beginning", code=2)
    assert "--queue" in refused
    penstock(node, "consume", unique("missing"), "--queue", "x", code=1)


def test_the_life_of_a_message_is_told_as_a_tree(node: NodeProcess, client: Client) -> None:
    topic = with_dead_letters(client, "a")

    lines = penstock(node, "trace", f"{topic}/0-0").splitlines()

    assert lines[0] == f"{topic}/0-0"
    assert re.match(r"├─ 2\d{3}-\S+Z  PUBLISHED: offset 0", lines[1])
    assert lines[3] == "├─ group billing"
    assert re.match(r"│  ├─ \+\S+  DELIVERED to .*: leased until 2\d{3}-\S+Z$", lines[4])
    assert re.match(r"│  │  └─ \+\S+ \(\S+ later\)  REJECTED: cannot read a$", lines[5])
    assert lines[6].endswith(f"DEAD_LETTERED: copied to {topic}.dlq")
    assert lines[7].startswith("└─ +7d  RETAINED: kept at least until then (2")
