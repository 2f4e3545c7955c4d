"""Which moves wait for others to the same node."""

import uuid

from penstock.cluster import ClusterMetadata
from penstock.cluster.commands import (
    ChangeReplicas,
    Command,
    CreateTopic,
    SettleReplicas,
    encode_command,
)
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.links import Leader
from penstock.cluster.move_queue import MoveQueue
from penstock.log import StateEntry

ONE, TWO, THREE, FOUR = (1, 10), (2, 20), (3, 30), (4, 40)


class Scene:
    """Four partitions on nodes 1 and 2, all of them led, and a queue with room for two moves."""

    def __init__(self) -> None:
        self.metadata = ClusterMetadata()
        self.leaders = LeaderTable()
        self._index = 0
        self.apply(CreateTopic("orders", uuid.uuid4(), [(ONE, TWO)] * 4, {}))
        self.groups = [each.group for each in self.metadata.topic("orders").replicas]
        self.leaders.learn(Leader(group, 1, 1) for group in self.groups)
        self.queue = MoveQueue(self.metadata, self.leaders, 2)

    def apply(self, command: Command) -> None:
        self._index += 1
        self.metadata.apply_state(StateEntry(self._index, 1, 0, encode_command(command)))

    def move(self, number: int, *members: tuple[int, int]) -> None:
        self.apply(ChangeReplicas(self.groups[number], members))

    def waiting(self) -> list[int]:
        return [number for number, group in enumerate(self.groups) if group in self.queue.waiting()]


def test_moves_to_a_node_wait_in_the_order_in_which_they_were_asked_for() -> None:
    scene = Scene()

    for number in (3, 1, 0):
        scene.move(number, ONE, THREE)

    assert scene.waiting() == [0]
    scene.apply(SettleReplicas(scene.groups[3], (ONE, THREE)))
    assert scene.waiting() == []


def test_moves_to_another_node_do_not_wait() -> None:
    scene = Scene()
    for number in (0, 1, 2):
        scene.move(number, ONE, THREE)

    scene.move(3, ONE, FOUR)

    assert scene.waiting() == [2]


def test_a_move_that_is_cancelled_gives_its_turn_away_and_waits_for_nobody() -> None:
    scene = Scene()
    for number in (0, 1, 2, 3):
        scene.move(number, ONE, THREE)
    assert scene.waiting() == [2, 3]

    scene.move(0, ONE, TWO)
    scene.move(3, ONE, TWO)

    assert scene.waiting() == []


def test_a_group_without_a_leader_takes_nobodys_turn() -> None:
    scene = Scene()
    for number in (0, 1, 2):
        scene.move(number, ONE, THREE)

    scene.leaders.deposed(scene.groups[0], 1)

    assert scene.waiting() == []


def test_a_node_that_lost_its_disk_is_filled_a_few_logs_at_a_time() -> None:
    scene = Scene()

    for number in range(4):
        scene.move(number, ONE, (2, 99))

    assert scene.waiting() == [2, 3]
