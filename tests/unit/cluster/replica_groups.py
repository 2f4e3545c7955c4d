"""Three machines that replicate one log, and a network between them that a test can cut."""

import asyncio
from typing import Any

from penstock.cluster import Partition, PartitionQueue, ReplicatedLog
from penstock.cluster.deliveries import DeliveryHost
from penstock.cluster.replica_identity import ReplicaIdentity
from penstock.cluster.topic_machine import TopicMachine
from penstock.delivery import GroupSettings
from penstock.ids import EntryIndex, NodeId, Offset
from penstock.log import LogSettings, StateEntry
from penstock.raft import Incarnation, Member, Membership, Message, RaftSettings, decode, encode
from penstock.record import BatchHeader, Buffer, decode_records
from tests.unit.cluster.workplaces import DIRECTORY, GROUP, PLACE, SimMachine, turn

NODES = (1, 2, 3)
_ELECTION_TICKS = 5
_PRODUCER_EXPIRY_MS = 86_400_000
# Enough for a message there and back and two visits to the disk.
_TURNS = 60


class Witness(TopicMachine):
    """The machine of a topic that also keeps what it was told, in order."""

    def __init__(self) -> None:
        super().__init__(producer_expiry_ms=_PRODUCER_EXPIRY_MS)
        self.events: list[int | bytes] = []

    def apply_records(self, header: BatchHeader, offset: Offset, batch: Buffer) -> None:
        super().apply_records(header, offset, batch)
        self.events.append(offset)

    def apply_state(self, entry: StateEntry) -> Offset:
        self.events.append(entry.payload)
        return Offset(len(self.events))

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        super().restore(payload, index)
        self.events = []


class Network:
    """Carries messages as the bytes that they are on the wire, in order, unless a way is cut."""

    def __init__(self) -> None:
        self.replicas: dict[int, ReplicatedLog] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.lost_kinds: tuple[type[Message], ...] = ()
        self.highest_served = 0

    def send(self, group: int, message: Message) -> None:
        """Deliver with the next turn of the loop."""
        frame = bytearray(b"".join(encode(message)))
        is_lost = isinstance(message, self.lost_kinds)
        if not is_lost and (message.sender, message.to) not in self.cuts:
            asyncio.get_running_loop().call_soon(self._deliver, group, message.to, frame)

    def _deliver(self, group: int, to: int, frame: bytearray) -> None:
        replica = self.replicas.get(to)
        if replica is not None and replica.identity.group == group:
            before = replica.high_watermark
            replica.step(decode(memoryview(frame)))
            assert replica.high_watermark >= before, "a watermark never goes back"
            if replica.is_serving:
                self.highest_served = max(self.highest_served, replica.high_watermark)

    def leadership_changed(self, replica: ReplicatedLog) -> None:
        """Check that whoever begins to serve shows all that readers have seen elsewhere."""
        if replica.is_serving:
            assert replica.high_watermark >= self.highest_served, "a watermark never goes back"


class ReplicaGroup:
    """One log on three nodes."""

    def __init__(self, **settings: Any) -> None:
        self.network = Network()
        self.machines = {node: SimMachine(seed=node) for node in NODES}
        self.witnesses: dict[int, Witness] = {}
        self.settings = settings
        self.membership = Membership.of(self.member(node) for node in NODES)
        for node in NODES:
            self.open(node)

    def member(self, node: int) -> Member:
        return Member(NodeId(node), Incarnation(10 * node))

    def open(self, node: int, witness: Witness | None = None) -> ReplicatedLog:
        """Open a replica, also after its machine was cut off from its power."""
        workplace = self.machines[node].workplace()
        witness = self.witnesses[node] = witness or Witness()
        ReplicatedLog.found(workplace, DIRECTORY, self.membership, witness)
        replica = self.network.replicas[node] = ReplicatedLog(
            ReplicaIdentity(str(PLACE), GROUP, self.member(node)),
            DIRECTORY,
            LogSettings(**self.settings),
            witness,
            workplace,
            transport=self.network,
            raft_settings=RaftSettings(election_ticks=_ELECTION_TICKS),
        )
        replica.on_leadership = lambda: self.network.leadership_changed(replica)
        return replica

    def __getitem__(self, node: int) -> ReplicatedLog:
        return self.network.replicas[node]

    def partition(self, node: int) -> Partition:
        """The partition as its producers see it on one node."""
        log, machine = self[node], self.witnesses[node]
        host = DeliveryHost(lambda _topic, _group: GroupSettings())
        workplace = self.machines[node].workplace()
        queue = PartitionQueue(PLACE, log, machine, workplace, host=host)
        return Partition(PLACE, log, machine, queue, workplace)

    def isolate(self, node: int) -> None:
        """Cut all ways from and to a node."""
        others = [other for other in NODES if other != node]
        self.network.cuts |= {(node, other) for other in others}
        self.network.cuts |= {(other, node) for other in others}

    def heal(self) -> None:
        self.network.cuts.clear()

    def stop(self, node: int) -> None:
        """End the process of a node; what it wrote is there when it is opened again."""
        del self.network.replicas[node]
        self.machines[node].disk.kill()

    async def elect(self, node: int) -> ReplicatedLog:
        """Let a node win the first election."""
        self[node].campaign()
        await turn(until=lambda: self[node].is_serving)
        assert self[node].is_serving
        await self.tick()
        return self[node]

    async def tick(self, ticks: int = 1) -> None:
        """Let time pass for all, and everything happen that follows from it."""
        for _ in range(ticks):
            for replica in tuple(self.network.replicas.values()):
                replica.tick()
            await turn(_TURNS)

    async def new_leader(self, *, instead_of: int) -> ReplicatedLog:
        """Let time pass until another node serves."""
        for _ in range(20 * _ELECTION_TICKS):
            for node, replica in self.network.replicas.items():
                if node != instead_of and replica.is_serving:
                    return replica
            await self.tick()
        raise AssertionError("nobody was elected")

    def entries(self, node: int) -> list[tuple[int, int, bytes]]:
        """Return term, kind and payload of all that a node has stored."""
        log = self[node].log
        found = []
        for row, _, index in log.rows(log.first_index):
            found.append((row.term, row.kind, bytes(log.payload_at(index)[1])))
        return found

    def values(self, node: int) -> list[bytes | None]:
        """Return the values of all records that a node has stored, committed or not."""
        log = self[node].log
        return [
            record.value
            for stored in log.batches(log.first_index)
            for record in decode_records(stored)
        ]

    def are_equal(self) -> bool:
        """True when all replicas hold and have applied the same."""
        first = NODES[0]
        return all(
            self.entries(node) == self.entries(first)
            and self.witnesses[node].events == self.witnesses[first].events
            and self[node].high_watermark == self[first].high_watermark
            for node in NODES
        )
