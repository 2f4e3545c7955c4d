"""Move tasks through the verbs of a node that dies while it carries them out."""

import asyncio
import json

from penstock.broker import AskedMove, Broker, MoveProgress, NewMessage, NewTopic
from penstock.cluster import Leader
from penstock.errors import Unavailable
from penstock.ids import NodeId
from penstock.protocols.sqs.move_tasks import tasks_of, with_asked
from penstock.protocols.sqs.mover import Mover
from penstock.protocols.sqs.moving import MoveActions
from penstock.protocols.sqs.names import queue_arn
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.queues import QueueActions
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import LoopClock, SimMachine, run

MESSAGES = 30
PER_S = 20
GROUP = "sqs"


async def begin_move(broker: Broker) -> None:
    for name in ("dead", "queue"):
        await broker.topics.create(NewTopic(name, partitions=2))
    messages = [NewMessage(value=b"%d" % number) for number in range(MESSAGES)]
    await broker.messages.publish("dead", messages)
    asked = AskedMove(broker.now_ms(), MESSAGES, "queue", PER_S)
    changed = with_asked(broker.topics.find("dead"), "handle", asked)
    await broker.topics.change_settings("dead", changed, [])


def progress(broker: Broker) -> MoveProgress:
    (task,) = tasks_of(broker.topics.find("dead"))
    return task.progress


async def half_moved(machine: SimMachine) -> tuple[Broker, asyncio.Task[None]]:
    """Begin a move, and look at it while it is under way."""
    broker = await started(machine)
    await begin_move(broker)
    first = asyncio.create_task(Mover(broker).run())
    await asyncio.sleep(0.9)
    return broker, first


async def left(broker: Broker) -> int:
    return (await broker.queues.status("dead", GROUP)).unsettled


async def ended(broker: Broker) -> None:
    while progress(broker).status == "RUNNING":  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0.1)


def test_a_task_that_another_run_goes_on_with_counts_all_that_has_moved() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker, first = await half_moved(machine)
        moved = MESSAGES - await left(broker)
        assert 0 < progress(broker).moved < moved < MESSAGES, "the rest is not written down"
        machine.disk.kill()
        first.cancel()

        reborn = await started(machine)
        second = asyncio.create_task(Mover(reborn).run())
        await ended(reborn)

        assert progress(reborn) == MoveProgress(MESSAGES, "COMPLETED")
        assert await left(reborn) == 0
        second.cancel()

    run(scene())


def test_what_others_delete_from_the_queue_meanwhile_is_not_counted() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker, first = await half_moved(machine)
        first.cancel()
        taken = await broker.queues.receive("dead", GROUP, count_max=5)
        await broker.queues.ack("dead", GROUP, [each.receipt for each in taken])

        second = asyncio.create_task(Mover(broker).run())
        await ended(broker)

        assert progress(broker) == MoveProgress(MESSAGES - len(taken), "COMPLETED")
        assert len(taken) == 5
        second.cancel()

    run(scene())


def test_a_task_is_not_over_while_a_partition_cannot_be_asked() -> None:
    async def scene() -> None:
        broker, moving = await half_moved(SimMachine(clock=LoopClock()))
        replicas = broker.topics.find("dead").replicas[1]
        own = broker.cluster.leaders.leader_of(replicas.group)
        assert own is not None
        # Node 2 is not there to be asked.
        broker.cluster.leaders.learn([Leader(own.group, own.term + 1, NodeId(2))])
        await asyncio.sleep(60)
        assert progress(broker).status == "RUNNING"

        broker.cluster.leaders.learn([Leader(own.group, own.term + 2, own.node)])
        await ended(broker)

        assert progress(broker) == MoveProgress(MESSAGES, "COMPLETED")
        assert await left(broker) == 0
        moving.cancel()

    run(scene())


def test_of_moves_that_are_started_at_the_same_time_one_is_accepted() -> None:
    async def scene() -> tuple[list[str], list[str]]:
        broker = await started()
        options = SqsOptions("000000000000", "us-east-1", 0, 1_048_576)
        queues = QueueActions(broker, options)
        await queues.create({"QueueName": "dead"}, "")
        arn = queue_arn(options, "dead")
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        source = {"QueueName": "source", "Attributes": {"RedrivePolicy": policy}}
        await queues.create(source, "")
        moving = MoveActions(broker, queues, options, on_started=lambda: None)

        answers = await asyncio.gather(
            *(moving.start({"SourceArn": arn}, "") for _ in range(3)), return_exceptions=True
        )

        refused = [each for each in answers if isinstance(each, BaseException)]
        assert all(isinstance(each, Unavailable) for each in refused)
        handles = [each["TaskHandle"] for each in answers if not isinstance(each, BaseException)]
        return handles, [task.handle for task in tasks_of(broker.topics.find("dead"))]

    accepted, kept = run(scene())

    assert len(accepted) == 1
    assert kept == accepted
