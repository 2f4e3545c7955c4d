"""What a node does with replicas that are damaged when it opens them, or not to be there."""

import errno
import uuid
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from penstock.cluster.commands import (
    ChangeReplicas,
    Command,
    CreateTopic,
    DeleteTopic,
    SettleReplicas,
    encode_command,
)
from penstock.cluster.described import Replicas
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import METADATA_GROUP, ClusterMetadata
from penstock.cluster.replica_set import ReplicaSet
from penstock.config import NodeOptions
from penstock.log import StateEntry
from penstock.raft import Message
from tests.unit.cluster.workplaces import DATA, SimMachine, run, turn

GROUPS = (1, 2)
OTHER = (2, 22)
TOPIC_ID = uuid.UUID(int=7)


class Nobody:
    """Carries nothing anywhere."""

    def send(self, group: int, message: Message) -> None:
        """The other node does not answer."""


class Scene:
    """A node that keeps two logs of consumer groups, by itself or with another one."""

    def __init__(self, machine: SimMachine, *others: tuple[int, int]) -> None:
        self.metadata = ClusterMetadata()
        self.on_machine: Callable[[int], None] = lambda _: None
        self.replicas = ReplicaSet(
            NodeOptions(data_dir=DATA, group_shards=len(GROUPS)),
            machine.workplace(),
            metadata=self.metadata,
            transport=Nobody(),
            group_machine=self._machine,
        )
        own = self.own(GROUPS[0])
        self.metadata.shards = [Replicas(group, (own,), (own, *others)) for group in GROUPS]

    def _machine(self, shard: int) -> Machine:
        self.on_machine(shard)
        return ClusterMetadata()

    def own(self, group: int) -> tuple[int, int]:
        """This node as a member of a group."""
        node, incarnation = self.replicas.identity.member_of(group)
        return node, incarnation

    async def open(self) -> None:
        """Open all logs and wait until they are served."""
        await self.replicas.reconcile([])
        await turn(until=lambda: all(log.is_serving for log in self.replicas.logs()))

    async def move(self, shard: int, *members: tuple[int, int]) -> None:
        """The metadata names other members, and the node hears of it."""
        self.metadata.shards[shard] = Replicas(GROUPS[shard], (), members)
        await self.replicas.reconcile([])

    def carry_out(self, command: Command) -> None:
        """The metadata changes, and no round has begun since."""
        self.metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))

    def learn(self, shard: int) -> None:
        """The metadata takes over the incarnation that the node has in a group by now."""
        group = GROUPS[shard]
        self.metadata.shards[shard] = Replicas(group, (), (self.own(group), OTHER))


def test_a_replaced_replica_is_opened_although_the_metadata_was_faster_than_the_round() -> None:
    async def scene() -> None:
        machine = SimMachine()
        first = Scene(machine)
        await first.open()
        machine.disk.kill()
        for number in range(len(GROUPS)):
            machine.disk.put(DATA / "groups" / str(number) / f"{1:020}.index", b"rotten")

        again = Scene(machine, OTHER)
        # The first log is damaged and replaced; the metadata knows before the second is opened.
        again.on_machine = lambda shard: again.learn(0) if shard == 1 else None
        await again.replicas.reconcile([])
        assert len(again.replicas.failures) == len(GROUPS)
        again.on_machine = lambda _: None

        await again.replicas.reconcile([])
        assert list(again.replicas.by_group) == [GROUPS[0]]
        again.learn(1)
        await again.replicas.reconcile([])

        assert again.replicas.failures == {}
        assert sorted(again.replicas.by_group) == list(GROUPS)

    run(scene())


def test_a_replica_stays_until_the_node_knows_for_certain_that_it_is_unwanted() -> None:
    async def scene() -> None:
        machine = SimMachine()
        files = DATA / "groups" / "0"
        here = Scene(machine)
        closings: list[None] = []
        here.replicas.on_unwanted = lambda: closings.append(None)
        own = here.own(GROUPS[0])
        await here.open()
        held = here.replicas.by_group[GROUPS[0]].raft.last_index

        # A past in which it had left is heard of on the way to the present, in which it is back.
        await here.move(0, OTHER)
        (closed,) = here.replicas.unwanted.uncertain()
        await here.replicas.reconcile([])
        assert GROUPS[0] not in here.replicas.by_group
        assert machine.disk.exists(files)
        await here.move(0, own, OTHER)
        assert here.replicas.by_group[GROUPS[0]].raft.last_index == held > 0

        # What became certain then says nothing about what was closed later.
        await here.move(0, OTHER)
        closed.is_certain = True
        await here.replicas.reconcile([])
        assert machine.disk.exists(files)
        assert here.own(GROUPS[0]) == own

        (closed,) = here.replicas.unwanted.uncertain()
        closed.is_certain = True
        await here.replicas.reconcile([])
        assert not machine.disk.exists(files)
        assert here.own(GROUPS[0]) != own, "it would vote without knowing what it has voted"
        assert here.replicas.unwanted.take_certain() == {}
        assert len(closings) == 2

    run(scene())


def test_files_that_a_node_was_about_to_give_up_go_after_its_next_start() -> None:
    async def scene() -> None:
        machine = SimMachine()
        files = [DATA / "groups" / "0", DATA / "topics" / "orders" / "0"]
        kept = DATA / "topics" / "orders" / "1"
        here = Scene(machine)
        own = here.own(GROUPS[0])
        create = CreateTopic("orders", TOPIC_ID, [(own,), (own,)], {})
        here.carry_out(create)
        await here.replicas.reconcile(list(here.metadata.topics.values()))
        await turn(until=lambda: all(log.is_serving for log in here.replicas.logs()))
        machine.disk.kill()

        again = Scene(machine)
        again.carry_out(create)
        (topic,) = again.metadata.topics.values()
        moved = topic.replicas[0].group
        again.carry_out(ChangeReplicas(moved, (OTHER,)))
        again.carry_out(SettleReplicas(moved, (OTHER,)))
        again.metadata.shards[0] = Replicas(GROUPS[0], (), (OTHER,))
        closings: list[None] = []
        again.replicas.on_unwanted = lambda: closings.append(None)
        topics = list(again.metadata.topics.values())
        await again.replicas.find_leftovers(topics)
        await again.replicas.reconcile(topics)
        assert all(map(machine.disk.exists, files))
        assert closings

        for each in again.replicas.unwanted.uncertain():
            each.is_certain = True
        await again.replicas.reconcile(topics)

        assert not any(map(machine.disk.exists, files))
        assert machine.disk.exists(kept)
        assert again.own(GROUPS[0]) != own != again.own(moved)
        assert again.own(GROUPS[1]) == own

    run(scene())


def test_files_of_a_replica_that_is_to_begin_anew_are_no_leftovers() -> None:
    async def scene() -> None:
        machine = SimMachine()
        here = Scene(machine)
        await here.open()
        machine.disk.kill()

        again = Scene(machine)
        # A crash came after the new incarnation and before the damaged files were moved away.
        again.replicas.identity.replace([GROUPS[0]])
        again.metadata.shards[1] = Replicas(GROUPS[1], (), (OTHER,), leaving=(again.own(2),))
        await again.replicas.find_leftovers([])

        assert again.replicas.unwanted.uncertain() == []

    run(scene())


def test_a_node_that_starts_forgets_what_it_was_in_groups_that_are_gone() -> None:
    async def scene() -> None:
        gone = 77
        here = Scene(SimMachine())
        here.replicas.identity.replace([METADATA_GROUP, GROUPS[0], gone])

        here.metadata.is_current = False
        await here.replicas.find_leftovers([])
        assert gone in here.replicas.identity.replaced, "it may not have heard of the group yet"
        here.metadata.is_current = True
        await here.replicas.find_leftovers([])

        assert here.replicas.identity.replaced.keys() == {METADATA_GROUP, GROUPS[0]}

    run(scene())


def test_files_that_cannot_be_put_away_do_not_keep_a_node_from_following() -> None:
    async def scene() -> None:
        machine = SimMachine()
        here = Scene(machine)
        await here.open()
        await here.move(0, OTHER)
        (closed,) = here.replicas.unwanted.uncertain()
        closed.is_certain = True
        rename = machine.disk.rename

        def refuse(source: Path, target: Path) -> None:
            if "deleted" in target.parts:
                raise OSError(errno.EIO, "the disk refuses", str(source))
            rename(source, target)

        with patch.object(machine.disk, "rename", refuse):
            await here.replicas.reconcile([])
        assert machine.disk.exists(DATA / "groups" / "0")

        await here.move(0, here.own(GROUPS[0]))
        assert sorted(here.replicas.by_group) == list(GROUPS)

    run(scene())


def test_the_files_of_a_topic_that_is_deleted_during_a_round_stay_while_they_are_open() -> None:
    async def scene() -> None:
        machine = SimMachine()
        here = Scene(machine)
        files = DATA / "topics" / "orders"
        placement = [(here.own(GROUPS[0]),)]
        here.carry_out(CreateTopic("orders", TOPIC_ID, placement, {}))
        topics = list(here.metadata.topics.values())
        await here.replicas.reconcile(topics)
        here.carry_out(DeleteTopic(TOPIC_ID))

        await here.replicas.reconcile(topics)
        assert machine.disk.exists(files)
        assert len(here.replicas.partitions) == 1

        await here.replicas.reconcile([])
        assert not machine.disk.exists(files)
        assert here.replicas.partitions == []

    run(scene())
