"""This node in its cluster: the logs that it replicates, and the links to the other nodes.

The metadata log says which topics there are and who replicates their partitions. Whenever it
changes, this node opens the replicas that it is to keep and closes those that it is not. Every
replica is a member of a consensus group of its own; their messages share one link per peer.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from penstock.cluster.contact import Contact
from penstock.cluster.directories import Directories
from penstock.cluster.formation import Formation
from penstock.cluster.identity import Identity
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.links import Hello, Leader, Links, load_link_tls
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import (
    METADATA_GROUP,
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
from penstock.cluster.replicated_log import ReplicaIdentity, ReplicatedLog
from penstock.cluster.status import PartitionStatus, leaderless, partition_status
from penstock.cluster.stewardship import Stewardship
from penstock.cluster.topic_settings import TopicSettings, resolve_settings
from penstock.cluster.transfer import (
    CHUNK_BYTES,
    ChunkRequest,
    IncomingCopy,
    Manifest,
    manifest_of,
    read_chunk,
)
from penstock.cluster.upkeep import Upkeep
from penstock.cluster.workplace import Workplace
from penstock.config import Address, NodeOptions, read_peers
from penstock.errors import (
    Corruption,
    NotLeader,
    PenstockError,
    StorageFailed,
    TopicNotFound,
    Unavailable,
)
from penstock.ids import NodeId, ProducerId, TopicPartition
from penstock.log import INDEX_SUFFIX, Damage, IndexHeader, LogSettings, Segment
from penstock.raft import (
    Incarnation,
    InstallSnapshot,
    Member,
    Membership,
    Message,
    RaftSettings,
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
# Stands for the consumer groups among failures; no topic can have this name.
_SHARDS = "(groups)"

_STEWARD_INTERVAL_S = 0.3
# A follower that copies a snapshot asks for more of it within this time.
_HOLD_S = 30.0

_PROPOSE = 1
_MANIFEST = 2
_CHUNK = 3
_STATUS = 4
_TRANSFER = 5
_ENTRY = 6


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
        self._group_machine = group_machine
        self._directories = Directories(options.data_dir, workplace.disk)
        self._identity = Identity(workplace.disk, options.data_dir, options.node_id)
        self.member = self._identity.member
        self._peers = read_peers(options.peers)
        self._formation = Formation(self.member, frozenset(self._peers))
        self.metadata = ClusterMetadata()
        self.leaders = LeaderTable()
        self._contact = Contact()
        tls = load_link_tls(
            certificate=options.peer_tls_certificate,
            key=options.peer_tls_key,
            authority=options.peer_tls_authority,
        )
        self.links = Links(self.member.node, self, tls)
        self._raft_settings = RaftSettings(election_ticks=options.election_ticks, heartbeat_ticks=2)
        self._metadata_log: ReplicatedLog | None = None
        self._replicas: dict[int, ReplicatedLog] = {}
        self._directories.claim_group_shards(options.group_shards)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._shards: dict[int, ReplicatedLog] = {}
        self._settings: dict[str, TopicSettings] = {}
        self.failures: dict[TopicPartition, PenstockError] = {}
        self._failed_groups: dict[TopicPartition, int] = {}
        self._producer_ids: list[int] = []
        self._producer_id_refill = asyncio.Lock()
        self._work = asyncio.Event()
        self._reconciled_version = -1
        self._changed = asyncio.Condition()
        self.peer_port = 0
        self._description: Node | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notices: set[asyncio.Future[None]] = set()
        self.upkeep = Upkeep()
        self.on_shard_leadership: Callable[[int, ReplicatedLog], None] = lambda *_: None

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
            self._identity.replaced,
        )
        self._description = description
        await self._announce(description)
        self._contact.joined()
        while not self._is_settled():
            await self._wait_for_change()
        await self._in_thread(lambda: self._directories.report_unknown(self._is_current))

    def _is_settled(self) -> bool:
        """True when all replicas of this node are open, and those without peers are served."""
        if not self.metadata.shards or self._reconciled_version < self.metadata.version:
            return False
        return all(
            log.is_serving or log.failure is not None or len(log.raft.membership.voters) > 1
            for log in self._replicas.values()
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
        log = await self._in_thread(self._open_metadata_log)
        self._metadata_log = log
        log.on_leadership = lambda: self._metadata_leadership(log)
        self.metadata.watch(self._work.set)
        log.on_snapshot_wanted = partial(self._fetch_snapshot, log)
        self._replicas[METADATA_GROUP] = log
        self._spawn(self._reconcile_rounds())
        self._spawn(self._steward_rounds())
        if len(log.raft.membership.voters) == 1:
            log.campaign()
        await self._notify()

    def _open_metadata_log(self) -> ReplicatedLog:
        """Open the metadata, after beginning it where a crash came between founding and that.

        Were the replica founded before the membership is written down, a node that crashed in
        between could write down another one and begin the group with two first memberships.
        """
        founding = self._formation.founding
        directory = self._directories.metadata
        if founding is not None and self._identity.member_of(METADATA_GROUP) in founding.voters:
            ReplicatedLog.found(self._workplace, directory, founding, self.metadata)
        return self._open_log("metadata", METADATA_GROUP, directory, self.metadata)

    def _open_log(self, name: str, group: int, directory: Path, machine: Machine) -> ReplicatedLog:
        return ReplicatedLog(
            ReplicaIdentity(name, group, self._identity.member_of(group)),
            directory,
            _STATE_LOG_SETTINGS,
            machine,
            self._workplace,
            transport=self.links,
            raft_settings=self._raft_settings,
        )

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
        for log in self._replicas.values():
            log.unreachable(node)
        self.leaders.lost(node)
        self.leaders.version += 1

    def received(self, group: int, message: Message) -> None:
        """Hand a message to its replica; for one that is not open here it is lost."""
        log = self._replicas.get(group)
        if log is not None:
            log.step(message)

    def leaders_announced(self, leaders: Iterable[Leader]) -> None:
        """Learn who leads."""
        self.leaders.learn(leaders)

    async def asked(self, node: NodeId, kind: int, body: bytes) -> bytes:
        """Answer a peer."""
        del node
        if kind == _PROPOSE:
            return msgspec.msgpack.encode(await self._propose_by_leader(body))
        if kind == _MANIFEST:
            return await self._offer_manifest(*msgspec.msgpack.decode(body, type=tuple[int, int]))
        if kind == _CHUNK:
            return await self._offer_chunk(msgspec.msgpack.decode(body, type=ChunkRequest))
        if kind == _ENTRY:
            group, index = msgspec.msgpack.decode(body, type=tuple[int, int])
            log = self._replica(group)
            log.check_serving()
            return log.log.payload_at(index)[1]
        if kind == _STATUS:
            return msgspec.msgpack.encode(self.led_partitions())
        if kind == _TRANSFER:
            group, to = msgspec.msgpack.decode(body, type=tuple[int, int])
            self._replica(group).transfer_leader(NodeId(to))
            return b""
        raise PenstockError(f"requests of kind {kind} are unknown")

    # What operators ask.

    def led_partitions(self) -> list[PartitionStatus]:
        """Return what this node knows about the partitions that it leads."""
        now_s = self._workplace.clock.steady_s()
        return [
            partition_status(partition, self.replicas_of(place), now_s)
            for place, partition in self._partitions.items()
            if partition.log.is_serving and place.topic in self.metadata.topics
        ]

    async def all_partitions(self) -> list[PartitionStatus]:
        """Ask every node that can be reached for the partitions that it leads."""
        answers = await asyncio.gather(
            *(
                self.links.request(node, _STATUS, b"", timeout_s=_REQUEST_TIMEOUT_S)
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
            self._replica(group).transfer_leader(NodeId(to))
            return
        body = msgspec.msgpack.encode((group, to))
        await self.links.request(NodeId(leader.node), _TRANSFER, body, timeout_s=_REQUEST_TIMEOUT_S)

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
            return await self.links.request(leader, _ENTRY, body, timeout_s=_REQUEST_TIMEOUT_S)

        try:
            data = await mended_bytes(segment, damage, ask)
        except Unavailable as error:
            logger.warning("damage not mended", extra={"log": log.name, "reason": str(error)})
            return False
        await self._in_thread(partial(write_mended, segment, damage, data))
        return True

    def _replace_replica(self, place: TopicPartition, replicas: Replicas) -> None:
        """Take part in the group of a damaged replica as a stranger, with an empty log.

        The new incarnation is durable before the damaged files are moved away: an empty log under
        the old one could vote against what the replica once acknowledged.
        """
        if len(replicas.members) > 1:
            self._identity.replace(replicas.group)
            self._directories.set_aside(place)
            self._workplace.loop.call_soon_threadsafe(self._register_again)

    def _register_again(self) -> None:
        if self._description is not None:
            description = msgspec.structs.replace(
                self._description, replaced=self._identity.replaced
            )
            self._description = description
            self._spawn(self._announce(description))

    async def _announce(self, description: Node) -> None:
        # Also when nothing has changed: with the answer this node has caught up with the metadata.
        while True:
            with suppress(Unavailable):
                await self.change(RegisterNode(description))
                return

    # Copying snapshots.

    def _replica(self, group: int) -> ReplicatedLog:
        log = self._replicas.get(group)
        if log is None:
            raise NotLeader(f"group {group} is not replicated here")
        log.check_open()
        return log

    async def _offer_manifest(self, group: int, index: int) -> bytes:
        log = self._replica(group)
        if log.snapshot_index != index + 1:
            raise Unavailable(f"{log.name} has a newer snapshot than the one at {index}")
        log.held_until_s = self._workplace.loop.time() + _HOLD_S
        return msgspec.msgpack.encode(manifest_of(self._workplace.disk, log.log, index))

    async def _offer_chunk(self, request: ChunkRequest) -> bytes:
        log = self._replica(request.group)
        log.held_until_s = self._workplace.loop.time() + _HOLD_S
        try:
            chunk: bytes = await self._in_thread(
                lambda: read_chunk(self._workplace.disk, log.log.directory, request)
            )
        except OSError as error:
            raise Unavailable(f"{request.name} of {log.name} is gone: {error}") from error
        return chunk

    def _fetch_snapshot(self, log: ReplicatedLog, offer: InstallSnapshot) -> None:
        self._spawn(self._copy_snapshot(log, offer))

    async def _copy_snapshot(self, log: ReplicatedLog, offer: InstallSnapshot) -> None:
        """Copy what a leader offers, at the pace that the options allow."""
        try:
            await self._copy_files(log, offer)
        except (OSError, PenstockError) as error:
            logger.warning("snapshot not copied", extra={"log": log.name, "reason": str(error)})
            log.snapshot_failed(offer)
        else:
            log.snapshot_fetched(offer)

    async def _copy_files(self, log: ReplicatedLog, offer: InstallSnapshot) -> None:
        group, index = log.identity.group, offer.snapshot.index
        request = msgspec.msgpack.encode((group, index))
        answer = await self.links.request(
            offer.sender, _MANIFEST, request, timeout_s=_REQUEST_TIMEOUT_S
        )
        manifest = msgspec.msgpack.decode(answer, type=Manifest)
        copy = IncomingCopy(self._workplace.disk, log.log.directory)
        await self._in_thread(copy.begin)
        for file in manifest.files:
            position = 0
            while position < file.size_bytes or position == 0:
                size_bytes = min(CHUNK_BYTES, file.size_bytes - position)
                chunk = await self._fetch_chunk(
                    offer.sender, ChunkRequest(group, index, file.name, position, size_bytes)
                )
                await self._in_thread(partial(copy.write, file.name, position, chunk))
                position += len(chunk)
                if not chunk:
                    break
                await asyncio.sleep(len(chunk) / self._options.transfer_bytes_per_s)
        names = [file.name for file in manifest.files]
        active = IndexHeader(
            index + 1, manifest.next_offset, manifest.term, self._workplace.clock.now_ms()
        )
        await self._in_thread(lambda: copy.complete(names, active))

    async def _fetch_chunk(self, node: NodeId, request: ChunkRequest) -> bytes:
        body = msgspec.msgpack.encode(request)
        chunk = await self.links.request(node, _CHUNK, body, timeout_s=_REQUEST_TIMEOUT_S)
        if len(chunk) != request.size_bytes:
            raise Unavailable(f"{request.name} ended {request.size_bytes - len(chunk)} bytes early")
        return chunk

    # Time and leadership.

    async def _steward_rounds(self) -> None:
        stewardship = Stewardship(self.metadata)
        while True:
            await asyncio.sleep(_STEWARD_INTERVAL_S)
            for command in stewardship.tend(list(self._replicas.values())):
                with suppress(PenstockError):
                    await self.change(command)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._options.tick_ms / 1000)
            for log in tuple(self._replicas.values()):
                log.tick()

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
        partition = self._partitions.get(place)
        if partition is not None:
            return partition
        failure = self.failures.get(place)
        if failure is not None:
            raise failure
        replicas = self.replicas_of(place)
        if self.member.node in replicas.nodes:
            raise NotLeader(f"{place} is being opened")
        raise NotLeader(f"{place} is replicated by nodes {replicas.nodes}, not by this one")

    def replicas_of(self, place: TopicPartition) -> Replicas:
        """Return who replicates a partition, or raise `TopicNotFound`."""
        topic = self.metadata.topics.get(place.topic)
        if topic is None or not 0 <= place.partition < topic.partitions:
            raise TopicNotFound(f"there is no partition {place.partition} of topic {place.topic!r}")
        return topic.replicas[place.partition]

    def settings(self, topic: str) -> TopicSettings:
        """Return the resolved settings of a topic."""
        settings = self._settings.get(topic)
        if settings is None:
            found = self.metadata.topic(topic)
            settings = self._settings[topic] = resolve_settings(found.settings, self._options)
        return settings

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that are open on this node."""
        return list(self._partitions.values())

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
        return iter(tuple(self._replicas.values()))

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
        answer = await self.links.request(node, _PROPOSE, payload, timeout_s=_REQUEST_TIMEOUT_S)
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
            if TopicPartition(topic.name, number) not in self.failures
        ]
        while self._workplace.loop.time() < deadline:
            if all(self._has_serving_leader(group) for group in groups):
                return
            await asyncio.sleep(0.01)

    def _has_serving_leader(self, group: int) -> bool:
        leader = self.leaders.leader_of(group)
        if leader is None or leader.node < 0:
            return False
        log = self._replicas.get(group)
        return leader.node != self.member.node or (log is not None and log.is_serving)

    async def _wait_until_reconciled(self) -> None:
        version = self.metadata.version
        while self._reconciled_version < version:
            await self._wait_for_change()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await self._workplace.loop.run_in_executor(self._workplace.executor, work)

    # Opening and closing replicas as the metadata says.

    async def _reconcile_rounds(self) -> None:
        await self._in_thread(self._discard_leftovers)
        while True:
            self._work.clear()
            version = self.metadata.version
            # One look for the whole round: a topic that is deleted and created again meanwhile must
            # not have its new directory claimed while the old partitions are open.
            topics = list(self.metadata.topics.values())
            for node in self.metadata.nodes.values():
                self.links.know(NodeId(node.node_id), Address(node.peer_host, node.peer_port))
            await self._close_unwanted(topics)
            await self._open_wanted(topics)
            self._reconciled_version = version
            await self._notify()
            await self._work.wait()

    def _discard_leftovers(self) -> None:
        self._directories.empty_deleted()

    def _is_mine(self, replicas: Replicas) -> bool:
        """True for replicas that this node keeps, also while it is on its way out."""
        member = tuple(self._identity.member_of(replicas.group))
        return member in (*replicas.members, *replicas.leaving)

    async def _close_unwanted(self, topics: list[Topic]) -> None:
        wanted = {
            TopicPartition(topic.name, number): replicas.group
            for topic in topics
            for number, replicas in enumerate(topic.replicas)
            if self._is_mine(replicas)
        }
        wanted |= {
            TopicPartition(_SHARDS, number): shard.group
            for number, shard in enumerate(self.metadata.shards)
            if self._is_mine(shard)
        }
        for place, partition in list(self._partitions.items()):
            group = partition.log.identity.group
            if wanted.get(place) != group:
                del self._partitions[place]
                self._replicas.pop(group, None)
                await self._close_log(partition.log)
                if place.topic in self.metadata.topics:
                    await self._in_thread(partial(self._directories.discard_partition, place))
        for place, group in list(self._failed_groups.items()):
            if wanted.get(place) != group:
                del self.failures[place]
                del self._failed_groups[place]
        for name in [name for name in self._settings if name not in self.metadata.topics]:
            del self._settings[name]
        for number, log in list(self._shards.items()):
            if number < len(self.metadata.shards) and not self._is_mine(
                self.metadata.shards[number]
            ):
                del self._shards[number]
                self._replicas.pop(log.identity.group, None)
                await self._close_log(log)
                await self._in_thread(partial(self._directories.discard_shard, number))
        await self._in_thread(lambda: self._directories.discard_deleted(self.metadata.was_deleted))
        await self._in_thread(self._directories.empty_deleted)

    def _is_current(self, topic_id: uuid.UUID) -> bool:
        return any(topic.topic_id == topic_id for topic in self.metadata.topics.values())

    async def _open_wanted(self, topics: list[Topic]) -> None:
        for number, shard in enumerate(self.metadata.shards):
            place = TopicPartition(_SHARDS, number)
            is_open = shard.group in self._replicas or place in self.failures
            if self._is_mine(shard) and not is_open:
                try:
                    await self._open_shard(number, shard)
                except (OSError, PenstockError) as error:
                    # Topics and the other groups are served all the same.
                    self._install(place, shard, _cannot_open(place, error))
        for topic in topics:
            self._settings[topic.name] = resolve_settings(topic.settings, self._options)
            opened = await self._in_thread(partial(self._open_partitions, topic))
            for place, found in opened:
                self._install(place, topic.replicas[place.partition], found)
            self._follow_settings(topic)

    def _follow_settings(self, topic: Topic) -> None:
        settings = self._settings[topic.name]
        for number in range(topic.partitions):
            partition = self._partitions.get(TopicPartition(topic.name, number))
            if partition is not None:
                partition.log.log.settings = settings.log

    async def _open_shard(self, number: int, shard: Replicas) -> None:
        directory = self._directories.group_shard(number)
        machine = self._group_machine(number)

        def open_log() -> ReplicatedLog:
            self._found_replica(directory, shard, machine)
            return self._open_log(f"groups-{number}", shard.group, directory, machine)

        log = await self._in_thread(open_log)
        self._replicas[shard.group] = self._shards[number] = log

        def leadership() -> None:
            self._leadership(log)
            self.on_shard_leadership(number, log)

        log.on_leadership = leadership
        log.on_snapshot_wanted = partial(self._fetch_snapshot, log)
        self._begin(log, shard)

    def _found_replica(self, directory: Path, replicas: Replicas, machine: Machine) -> None:
        """Begin a group that this node founds; a later member starts with nothing."""
        if tuple(self._identity.member_of(replicas.group)) in replicas.founders:
            founders = [
                Member(NodeId(node), Incarnation(incarnation))
                for node, incarnation in replicas.founders
            ]
            ReplicatedLog.found(self._workplace, directory, Membership.of(founders), machine)

    def _begin(self, log: ReplicatedLog, replicas: Replicas) -> None:
        """Elect the intended leader of a new group at once; others wait for their timeout."""
        is_alone = log.raft.membership.voters == (log.identity.member,)
        is_new = log.raft.last_index == 0
        if is_alone:
            log.campaign()
        elif is_new and replicas.founders[:1] == (tuple(log.identity.member),):
            log.campaign()
            self._spawn(self._campaign_again(log))

    async def _campaign_again(self, log: ReplicatedLog) -> None:
        """Ask again while the others still open their replicas, until their own time is up."""
        for _ in range(self._options.election_ticks - 1):
            await asyncio.sleep(self._options.tick_ms / 1000)
            if log.leader is not None:
                return
            log.campaign()

    def _open_partitions(
        self, topic: Topic
    ) -> list[tuple[TopicPartition, Partition | PenstockError]]:
        """Open the files of a topic's partitions that are to be here. Runs in a thread."""
        settings = resolve_settings(topic.settings, self._options).log
        opened: list[tuple[TopicPartition, Partition | PenstockError]] = []
        for number, replicas in enumerate(topic.replicas):
            place = TopicPartition(topic.name, number)
            is_open = place in self._partitions or place in self.failures
            if self._is_mine(replicas) and not is_open:
                opened.append((place, self._claim_and_open(topic, place, replicas, settings)))
        return opened

    def _claim_and_open(
        self, topic: Topic, place: TopicPartition, replicas: Replicas, settings: LogSettings
    ) -> Partition | PenstockError:
        try:
            self._directories.claim_topic(topic.name, topic.topic_id)
        except (OSError, PenstockError) as error:
            return _cannot_open(place, error)
        return self._open_partition(place, replicas, settings)

    def _open_partition(
        self, place: TopicPartition, replicas: Replicas, settings: LogSettings
    ) -> Partition | PenstockError:
        directory = self._directories.partition(place.topic, place.partition)
        try:
            partition = Partition.open(
                place,
                ReplicaIdentity(
                    str(place), replicas.group, self._identity.member_of(replicas.group)
                ),
                directory,
                settings,
                found=lambda machine: self._found_replica(directory, replicas, machine),
                producer_expiry_ms=self._options.producer_expiry_ms,
                workplace=self._workplace,
                transport=self.links,
                raft_settings=self._raft_settings,
            )
        except Corruption as error:
            self._replace_replica(place, replicas)
            return _cannot_open(place, error)
        except (OSError, PenstockError) as error:
            return _cannot_open(place, error)
        cut_bytes = partition.log.log.cut_bytes
        if cut_bytes:
            logger.warning("torn tail cut", extra={"log": str(place), "bytes": cut_bytes})
        return partition

    def _install(
        self, place: TopicPartition, replicas: Replicas, found: Partition | PenstockError
    ) -> None:
        if not isinstance(found, Partition):
            self.failures[place] = found
            self._failed_groups[place] = replicas.group
            return
        self._partitions[place] = found
        log = found.log
        self._replicas[log.identity.group] = log
        log.on_leadership = lambda: self._leadership(log)
        log.on_snapshot_wanted = partial(self._fetch_snapshot, log)
        self._begin(log, replicas)

    async def close(self) -> None:
        """Close all logs: topics first, the metadata last."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._close_log(partition.log) for partition in self.partitions))
        for log in self._shards.values():
            await self._close_log(log)
        if self._metadata_log is not None:
            await self._close_log(self._metadata_log)
        await self.links.close()

    async def _close_log(self, log: ReplicatedLog) -> None:
        await self.upkeep.end(log)
        try:
            await log.close()
        except (OSError, PenstockError) as failure:
            # What was acknowledged is on disk already; the next start has to read more of it.
            logger.warning("log closed badly", extra={"log": log.name, "reason": str(failure)})


def _cannot_open(place: TopicPartition, error: OSError | PenstockError) -> PenstockError:
    """Report a partition that cannot be opened; it must not keep the others from being served."""
    logger.error("partition is damaged", extra={"log": str(place), "reason": str(error)})
    if isinstance(error, PenstockError):
        return error
    return StorageFailed(f"{place} cannot be opened: {error}")
