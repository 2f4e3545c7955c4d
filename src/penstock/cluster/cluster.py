"""This node in its cluster: the logs that it replicates, and the links to the other nodes.

The metadata log says which topics there are and who replicates their partitions. Whenever it
changes, this node opens the replicas that it is to keep and closes those that it is not. Every
replica is a member of a consensus group of its own; their messages share one link per peer.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from penstock.cluster.contact import Contact
from penstock.cluster.formation import Formation
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.links import Hello, Leader, Links, RequestKind, load_link_tls
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import (
    AddPartitions,
    AllocateProducerIds,
    ChangeSettings,
    ClusterMetadata,
    Command,
    CreateTopic,
    DeleteTopic,
    FormCluster,
    Node,
    PlaceShards,
    RegisterNode,
    Replicas,
    Topic,
    encode_command,
)
from penstock.cluster.partition import Partition
from penstock.cluster.placement import choose_replicas
from penstock.cluster.repair import hand_over_if_leading, mended_bytes, write_mended
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.snapshot_exchange import SnapshotExchange
from penstock.cluster.status import PartitionStatus, leaderless, partition_status
from penstock.cluster.stewardship import Stewardship
from penstock.cluster.topic_settings import TopicSettings
from penstock.cluster.transfer import (
    ChunkRequest,
)
from penstock.cluster.upkeep import Upkeep
from penstock.cluster.workplace import Workplace
from penstock.config import Address, NodeOptions, read_peers
from penstock.errors import (
    NotLeader,
    PenstockError,
    Unavailable,
)
from penstock.ids import NodeId, ProducerId, TopicPartition
from penstock.log import INDEX_SUFFIX, Damage, LogSettings, Segment
from penstock.raft import (
    Membership,
    Message,
)

logger = logging.getLogger(__name__)

# State logs hold no records worth keeping: a segment goes once a snapshot covers it.
_STATE_LOG_SETTINGS = LogSettings(segment_bytes=16 * 1024 * 1024, retention_ms=0)
_PRODUCER_ID_BLOCK = 1_000
_CHANGE_TIMEOUT_S = 15.0
_REQUEST_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 0.1
_LEADERS_WAIT_S = 5.0
_FOUNDING_FILE = "cluster.msgpack"

_STEWARD_INTERVAL_S = 0.3
# A follower that copies a snapshot asks for more of it within this time.
_HOLD_S = 30.0


class _Founding(msgspec.Struct, frozen=True):
    cluster_id: str
    membership: bytes


class _Outcome(msgspec.Struct, frozen=True):
    """What came of a command that was sent to the leader of the metadata."""

    applied_index: int
    topic: Topic | None = None
    number: int | None = None


class Cluster:
    """Opens, finds and closes this node's replicas, and carries out changes of the metadata."""

    def __init__(
        self,
        options: NodeOptions,
        workplace: Workplace,
        group_machine: Callable[[int], Machine],
    ) -> None:
        self._options = options
        self._workplace = workplace
        self.metadata = ClusterMetadata()
        self.leaders = LeaderTable()
        self._contact = Contact()
        self._peers = read_peers(options.peers)
        tls = load_link_tls(
            certificate=options.peer_tls_certificate,
            key=options.peer_tls_key,
            authority=options.peer_tls_authority,
        )
        self.links = Links(NodeId(options.node_id), self, tls)
        self.replicas = ReplicaSet(
            options,
            workplace,
            metadata=self.metadata,
            transport=self.links,
            group_machine=group_machine,
        )
        self.replicas.on_opened = self._opened
        self.replicas.on_replaced = self._register_again
        self.member = self.replicas.identity.member
        self._formation = Formation(self.member, frozenset(self._peers))
        self._snapshots = SnapshotExchange(
            self.links, workplace, bytes_per_s=options.transfer_bytes_per_s
        )
        self._metadata_log: ReplicatedLog | None = None
        self._producer_ids: list[int] = []
        self._producer_id_refill = asyncio.Lock()
        self._work = asyncio.Event()
        self._reconciled_version = -1
        self._changed = asyncio.Condition()
        self.peer_port = 0
        self._description: Node | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notices: set[asyncio.Future[None]] = set()
        self.on_shard_leadership: Callable[[int, ReplicatedLog], None] = lambda *_: None
        self.on_call: Callable[[bytes], Awaitable[bytes]] = _refuse_call

    # Starting.

    async def start(self, host: str) -> None:
        """Open what is on disk, reach the peers, and found or find the cluster."""
        own = self._peers.get(self.member.node)
        port = own.port if own else self._options.peer_port
        self.peer_port = await self.links.listen(host, port)
        self._load_founding()
        for node, address in self._peers.items():
            self.links.know(NodeId(node), address)
        if self._options.join:
            host_name, _, join_port = self._options.join.rpartition(":")
            self.links.dial(Address(host_name, int(join_port)))
        self._spawn(self._tick())
        is_new = self._formation.founding is None and not self._options.join
        if is_new and self._formation.is_alone:
            self._found(str(uuid.uuid4()), Membership.of([self.member]))
        if self._formation.founding is not None:
            await self._open_metadata()

    async def register(self, *, kafka: Address, http_port: int) -> None:
        """Make this node known to all others; returns when it can serve what it leads."""
        while self._metadata_log is None:
            await self._wait_for_change()
        peer = self._options.advertised_to_peers(peer_port=self.peer_port, machine_name=kafka.host)
        description = Node(
            self.member.node,
            self.member.incarnation,
            peer.host,
            peer.port,
            kafka.host,
            kafka.port,
            http_port,
            self.replicas.identity.replaced,
        )
        self._description = description
        await self._announce(description)
        self._contact.joined()
        while not self._is_settled():
            await self._wait_for_change()
        await self.replicas.report_unknown()

    def _is_settled(self) -> bool:
        """True when all replicas of this node are open, and those without peers are served."""
        if not self.metadata.shards or self._reconciled_version < self.metadata.version:
            return False
        return all(
            log.is_serving or log.failure is not None or len(log.raft.membership.voters) > 1
            for log in self.replicas.by_group.values()
        )

    async def _wait_for_change(self) -> None:
        """Wait for anything to happen; a second is enough where nobody tells."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1), self._changed:
                await self._changed.wait()

    def _load_founding(self) -> None:
        path = self._options.data_dir / _FOUNDING_FILE
        if self._workplace.disk.exists(path):
            file = self._workplace.disk.open(path)
            saved = msgspec.msgpack.decode(file.read_at(0, file.size()), type=_Founding)
            self._formation.adopt(saved.cluster_id, Membership.decode(saved.membership))

    def _found(self, cluster_id: str, founding: Membership) -> None:
        """Write down the first membership before anybody hears of it."""
        self._save_founding(cluster_id, founding)
        self.links.greet_again()
        logger.info(
            "cluster founded",
            extra={"cluster": cluster_id, "nodes": [m.node for m in founding.voters]},
        )

    def _adopt(self, cluster_id: str) -> None:
        """Belong to a cluster that others have founded; its leader tells everything else."""
        self._save_founding(cluster_id, Membership())
        logger.info("joining a cluster", extra={"cluster": cluster_id})

    def _save_founding(self, cluster_id: str, founding: Membership) -> None:
        directory = self._options.data_dir
        disk = self._workplace.disk
        temporary = directory / (_FOUNDING_FILE + ".tmp")
        file = disk.create(temporary)
        file.write_at(0, [msgspec.msgpack.encode(_Founding(cluster_id, founding.encode()))])
        file.sync()
        disk.rename(temporary, directory / _FOUNDING_FILE)
        disk.sync_directory(directory)
        self._formation.adopt(cluster_id, founding)

    async def _open_metadata(self) -> None:
        log = await self._in_thread(lambda: self.replicas.open_metadata(self._formation.founding))
        self._metadata_log = log
        self._opened(log, None)
        log.on_leadership = lambda: self._metadata_leadership(log)
        self.metadata.watch(self._work.set)
        self._spawn(self._reconcile_rounds())
        self._spawn(self._steward_rounds())
        if len(log.raft.membership.voters) == 1:
            log.campaign()
        await self._notify()

    def _tell(self) -> None:
        """Wake those who wait for a change, from code that cannot wait."""
        task = asyncio.ensure_future(self._notify())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside everything else; its end by a fault must be seen."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("cluster work ended", exc_info=task.exception())

    # What the links call.

    def hello(self) -> Hello:
        """Say who this node is."""
        return self._formation.hello()

    def greeted(self, hello: Hello) -> None:
        """Learn who a peer is, and perhaps that a cluster can be formed."""
        self._formation.heard(hello)
        self._work.set()
        if self._formation.founding is None:
            decision = self._formation.decide()
            if decision is not None:
                self._found(*decision)
                self._spawn(self._open_metadata())
            elif self._formation.must_join and hello.cluster_id is not None:
                self._adopt(hello.cluster_id)
                self._spawn(self._open_metadata())

    def connected(self, node: NodeId) -> None:
        """Tell a peer what this node leads."""
        self.links.announce(self.leaders.led_by(self.member.node), to=node)
        self.leaders.version += 1

    def disconnected(self, node: NodeId) -> None:
        """A link broke: what was under way may be lost."""
        for log in self.replicas.by_group.values():
            log.unreachable(node)
        self.leaders.lost(node)
        self.leaders.version += 1

    def received(self, group: int, message: Message) -> None:
        """Hand a message to its replica; for one that is not open here it is lost."""
        log = self.replicas.by_group.get(group)
        if log is not None:
            log.step(message)

    def leaders_announced(self, leaders: Iterable[Leader]) -> None:
        """Learn who leads."""
        self.leaders.learn(leaders)

    async def asked(self, node: NodeId, kind: int, body: bytes) -> bytes:
        """Answer a peer."""
        del node
        if kind == RequestKind.CALL:
            return await self.on_call(body)
        if kind == RequestKind.PROPOSE:
            return msgspec.msgpack.encode(await self._propose_by_leader(body))
        if kind == RequestKind.MANIFEST:
            group, index = msgspec.msgpack.decode(body, type=tuple[int, int])
            return self._snapshots.offer_manifest(self.replicas.log_of(group), index)
        if kind == RequestKind.CHUNK:
            request = msgspec.msgpack.decode(body, type=ChunkRequest)
            return await self._snapshots.offer_chunk(self.replicas.log_of(request.group), request)
        if kind == RequestKind.ENTRY:
            group, index = msgspec.msgpack.decode(body, type=tuple[int, int])
            log = self.replicas.log_of(group)
            log.check_serving()
            return log.log.payload_at(index)[1]
        if kind == RequestKind.STATUS:
            return msgspec.msgpack.encode(self.led_partitions())
        if kind == RequestKind.TRANSFER:
            group, to = msgspec.msgpack.decode(body, type=tuple[int, int])
            self.replicas.log_of(group).transfer_leader(NodeId(to))
            return b""
        raise PenstockError(f"requests of kind {kind} are unknown")

    # What operators ask.

    def led_partitions(self) -> list[PartitionStatus]:
        """Return what this node knows about the partitions that it leads."""
        now_s = self._workplace.clock.steady_s()
        return [
            partition_status(partition, self.replicas_of(place), now_s)
            for place, partition in self.replicas.opened()
            if partition.log.is_serving and place.topic in self.metadata.topics
        ]

    async def all_partitions(self) -> list[PartitionStatus]:
        """Ask every node that can be reached for the partitions that it leads."""
        answers = await asyncio.gather(
            *(
                self.links.request(node, RequestKind.STATUS, b"", timeout_s=_REQUEST_TIMEOUT_S)
                for node in self.links.connected
            ),
            return_exceptions=True,
        )
        found = {(each.topic, each.partition): each for each in self.led_partitions()}
        for answer in answers:
            if isinstance(answer, bytes):
                for each in msgspec.msgpack.decode(answer, type=list[PartitionStatus]):
                    found[each.topic, each.partition] = each
        for topic in self.metadata.topics.values():
            for number, replicas in enumerate(topic.replicas):
                if (topic.name, number) not in found:
                    found[topic.name, number] = leaderless(topic.name, number, replicas)
        return [found[key] for key in sorted(found)]

    async def transfer_leader(self, group: int, to: int) -> None:
        """Let another replica of a group lead."""
        leader = self.leaders.leader_of(group)
        if leader is None or leader.node < 0:
            raise Unavailable(f"group {group} has no leader at the moment")
        if leader.node == self.member.node:
            self.replicas.log_of(group).transfer_leader(NodeId(to))
            return
        body = msgspec.msgpack.encode((group, to))
        await self.links.request(
            NodeId(leader.node), RequestKind.TRANSFER, body, timeout_s=_REQUEST_TIMEOUT_S
        )

    # Mending damage.

    async def mend(self, log: ReplicatedLog, segment: Segment, damage: Damage) -> bool:
        """Replace damaged bytes by those of the group's leader; False when that is not possible."""
        if damage.path.endswith(INDEX_SUFFIX):
            return False
        if hand_over_if_leading(log) or log.leader in (None, self.member.node):
            return False
        leader = log.leader
        assert leader is not None

        async def ask(index: int) -> bytes:
            body = msgspec.msgpack.encode((log.identity.group, index))
            return await self.links.request(
                leader, RequestKind.ENTRY, body, timeout_s=_REQUEST_TIMEOUT_S
            )

        try:
            data = await mended_bytes(segment, damage, ask)
        except Unavailable as error:
            logger.warning("damage not mended", extra={"log": log.name, "reason": str(error)})
            return False
        await self._in_thread(partial(write_mended, segment, damage, data))
        return True

    def _register_again(self) -> None:
        if self._description is not None:
            description = msgspec.structs.replace(
                self._description, replaced=self.replicas.identity.replaced
            )
            self._description = description
            self._spawn(self._announce(description))

    async def _announce(self, description: Node) -> None:
        # Also when nothing has changed: with the answer this node has caught up with the metadata.
        while True:
            with suppress(Unavailable):
                await self.change(RegisterNode(description))
                return

    # Time and leadership.

    async def _steward_rounds(self) -> None:
        stewardship = Stewardship(self.metadata)
        while True:
            await asyncio.sleep(_STEWARD_INTERVAL_S)
            for command in stewardship.tend(list(self.replicas.by_group.values())):
                with suppress(PenstockError):
                    await self.change(command)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._options.tick_ms / 1000)
            for log in tuple(self.replicas.by_group.values()):
                log.tick()

    def _opened(self, log: ReplicatedLog, shard: int | None) -> None:
        """Follow a replica that was opened: who leads it, and what it cannot get from its log."""

        def leadership() -> None:
            self._leadership(log)
            if shard is not None:
                self.on_shard_leadership(shard, log)

        log.on_leadership = leadership
        log.on_snapshot_wanted = lambda offer: self._spawn(self._snapshots.copy(log, offer))

    def _leadership(self, log: ReplicatedLog) -> None:
        """Note who leads a group, and tell everyone when it is this node."""
        if log.leader is None or log.failure is not None:
            self.leaders.deposed(log.identity.group, self.member.node)
            return
        leader = Leader(log.identity.group, log.term, log.leader)
        self.leaders.learn([leader])
        if log.leader == self.member.node:
            self.links.announce([leader])
        self._work.set()
        self._tell()

    def _metadata_leadership(self, log: ReplicatedLog) -> None:
        self._contact.leader_is(log.leader, self._workplace.loop.time())
        self._leadership(log)
        if log.is_serving:
            self._spawn(self._lead_metadata(log))

    async def _lead_metadata(self, log: ReplicatedLog) -> None:
        """Name a new cluster, and place the consumer groups when all first nodes are known."""
        try:
            if self.metadata.cluster_id is None:
                cluster_id = uuid.UUID(self._formation.cluster_id)
                await log.propose_state(encode_command(FormCluster(cluster_id)))
            founding = self._formation.founding
            while founding is not None and not self.metadata.shards and log.is_serving:
                if all(member.node in self.metadata.nodes for member in founding.voters):
                    placement = choose_replicas(
                        self.metadata,
                        self._options.group_shards,
                        min(3, len(self.metadata.nodes)),
                    )
                    await log.propose_state(encode_command(PlaceShards(placement)))
                else:
                    await self._wait_for_change()
        except Unavailable:
            # Another node leads now and does the same.
            logger.debug("metadata leadership lost")

    # Finding.

    def partition(self, place: TopicPartition) -> Partition:
        """Return a partition that this node replicates, or raise why it cannot be used."""
        return self.replicas.partition(place)

    def replicas_of(self, place: TopicPartition) -> Replicas:
        """Return who replicates a partition, or raise `TopicNotFound`."""
        return self.replicas.replicas_of(place)

    def settings(self, topic: str) -> TopicSettings:
        """Return the resolved settings of a topic."""
        return self.replicas.settings(topic)

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that are open on this node."""
        return self.replicas.partitions

    @property
    def failures(self) -> dict[TopicPartition, PenstockError]:
        """Partitions that should be open on this node and cannot be."""
        return self.replicas.failures

    @property
    def upkeep(self) -> Upkeep:
        """Who works on the files of logs behind the traffic."""
        return self.replicas.upkeep

    @property
    def version(self) -> int:
        """Changes whenever a topic, a node or a leader does."""
        return self.metadata.version + self.leaders.version

    @property
    def is_cut_off(self) -> bool:
        """True when others may know better than this node who leads."""
        log = self._metadata_log
        if log is None:
            return True
        reachable = {self.member.node, *self.links.connected}
        return self._contact.is_lost(log.raft.membership, reachable, self._workplace.loop.time())

    def logs(self) -> Iterator[ReplicatedLog]:
        """All logs that are open on this node."""
        return self.replicas.logs()

    @property
    def missing_nodes(self) -> list[int]:
        """First nodes that have not been heard from, while the cluster is being formed."""
        return self._formation.missing if self._formation.founding is None else []

    # Changing.

    async def change(self, command: Command) -> Any:
        """Carry out a command on the metadata, wherever its leader is."""
        payload = encode_command(command)
        deadline = self._workplace.loop.time() + _CHANGE_TIMEOUT_S
        while True:
            try:
                return await self._propose_anywhere(payload)
            except Unavailable:
                if self._workplace.loop.time() >= deadline:
                    raise
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _propose_anywhere(self, payload: bytes) -> Any:
        log = self._metadata_log
        if log is None:
            raise Unavailable("this node belongs to no cluster yet")
        if log.is_serving:
            outcome = await self._propose_here(payload)
        else:
            outcome = await self._propose_at(self._way_to_leader(log), payload)
        await log.wait_applied(outcome.applied_index)
        return outcome.topic if outcome.topic is not None else outcome.number

    def _way_to_leader(self, log: ReplicatedLog) -> NodeId:
        """Return the leader of the metadata, or any peer.

        A node that is new, or comes back with another address, may be known to few.
        """
        connected = self.links.connected
        if log.leader in connected:
            return log.leader
        if not connected:
            raise Unavailable("the leader of the metadata cannot be reached")
        return min(connected)

    async def _propose_by_leader(self, payload: bytes) -> _Outcome:
        """Propose what a peer asks for, here or where the leader is, and nowhere else."""
        log = self._metadata_log
        if log is None:
            raise NotLeader("this node belongs to no cluster yet")
        if log.is_serving:
            return await self._propose_here(payload)
        if log.leader is None or log.leader == self.member.node:
            raise Unavailable("the metadata has no leader at the moment")
        return await self._propose_at(log.leader, payload)

    async def _propose_at(self, node: NodeId, payload: bytes) -> _Outcome:
        answer = await self.links.request(
            node, RequestKind.PROPOSE, payload, timeout_s=_REQUEST_TIMEOUT_S
        )
        return msgspec.msgpack.decode(answer, type=_Outcome)

    async def _propose_here(self, payload: bytes) -> _Outcome:
        log = self._metadata_log
        if log is None:
            raise NotLeader("this node belongs to no cluster yet")
        result = await log.propose_state(payload)
        log.announce_commit()
        topic = result if isinstance(result, Topic) else None
        number = result if isinstance(result, int) else None
        return _Outcome(log.applied_index, topic, number)

    async def create_topic(
        self, name: str, placement: list[tuple[tuple[int, int], ...]], settings: dict[str, str]
    ) -> Topic:
        """Create a topic and wait until its partitions have leaders."""
        topic: Topic = await self.change(CreateTopic(name, uuid.uuid4(), placement, settings))
        await self._wait_for_leaders(topic)
        return topic

    async def add_partitions(
        self, topic: Topic, partitions: int, placement: list[tuple[tuple[int, int], ...]]
    ) -> Topic:
        """Let a topic grow."""
        grown: Topic = await self.change(AddPartitions(topic.topic_id, partitions, placement))
        await self._wait_for_leaders(grown)
        return grown

    async def change_settings(
        self, topic: Topic, changed: dict[str, str], removed: list[str]
    ) -> Topic:
        """Change settings of a topic; running partitions follow at once."""
        result: Topic = await self.change(ChangeSettings(topic.topic_id, changed, removed))
        await self._wait_until_reconciled()
        return result

    async def delete_topic(self, topic: Topic) -> None:
        """Remove a topic. Its files here are out of sight when this returns."""
        await self.change(DeleteTopic(topic.topic_id))
        await self._wait_until_reconciled()

    async def new_producer_id(self) -> ProducerId:
        """Return an id that no producer ever had; ids are reserved in blocks."""
        async with self._producer_id_refill:
            if not self._producer_ids:
                first = await self.change(AllocateProducerIds(_PRODUCER_ID_BLOCK))
                self._producer_ids = list(range(first + _PRODUCER_ID_BLOCK - 1, first - 1, -1))
            return ProducerId(self._producer_ids.pop())

    async def _wait_for_leaders(self, topic: Topic) -> None:
        """Give new partitions a moment to elect their leaders; clients would ask again anyway."""
        await self._wait_until_reconciled()
        deadline = self._workplace.loop.time() + _LEADERS_WAIT_S
        groups = [
            replicas.group
            for number, replicas in enumerate(topic.replicas)
            if TopicPartition(topic.name, number) not in self.replicas.failures
        ]
        while self._workplace.loop.time() < deadline:
            if all(self._has_serving_leader(group) for group in groups):
                return
            await asyncio.sleep(0.01)

    def _has_serving_leader(self, group: int) -> bool:
        leader = self.leaders.leader_of(group)
        if leader is None or leader.node < 0:
            return False
        log = self.replicas.by_group.get(group)
        return leader.node != self.member.node or (log is not None and log.is_serving)

    async def _wait_until_reconciled(self) -> None:
        version = self.metadata.version
        while self._reconciled_version < version:
            await self._wait_for_change()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await self._workplace.loop.run_in_executor(self._workplace.executor, work)

    # The replicas, as the metadata says.

    async def _reconcile_rounds(self) -> None:
        await self.replicas.empty_deleted()
        known: set[int] = set()
        while True:
            self._work.clear()
            version = self.metadata.version
            for node in self.metadata.nodes.values():
                self.links.know(NodeId(node.node_id), Address(node.peer_host, node.peer_port))
            for node_id in known - self.metadata.nodes.keys():
                self.links.forget(NodeId(node_id))
            known = set(self.metadata.nodes)
            await self.replicas.reconcile(list(self.metadata.topics.values()))
            self._reconciled_version = version
            await self._notify()
            await self._work.wait()

    async def close(self) -> None:
        """Stop all work, close all logs and drop the links."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.replicas.close()
        await self.links.close()


async def _refuse_call(body: bytes) -> bytes:
    raise Unavailable(f"a call of {len(body)} bytes came before this node was ready")
