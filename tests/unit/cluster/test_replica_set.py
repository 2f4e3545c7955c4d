"""What a node does with replicas that it finds damaged when it opens them."""

from collections.abc import Callable

from penstock.cluster.described import Replicas
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.replica_set import ReplicaSet
from penstock.config import NodeOptions
from penstock.raft import Message
from tests.unit.cluster.workplaces import DATA, SimMachine, run, turn

GROUPS = (1, 2)
OTHER = (2, 22)


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

    def learn(self, shard: int) -> None:
        """The metadata takes over the incarnation that the node has in a group by now."""
        group = GROUPS[shard]
        self.metadata.shards[shard] = Replicas(group, (), (self.own(group), OTHER))


def test_a_replaced_replica_is_opened_although_the_metadata_was_faster_than_the_round() -> None:
    async def scene() -> None:
        machine = SimMachine()
        first = Scene(machine)
        await first.replicas.reconcile([])
        await turn(until=lambda: all(log.is_serving for log in first.replicas.logs()))
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
