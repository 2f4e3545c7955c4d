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
from typing import Any

from penstock.cluster.belonging import Belonging
from penstock.cluster.changes import MetadataChanges
from penstock.cluster.commands import Command, FormCluster, PlaceShards, encode_command
from penstock.cluster.contact import Contact
from penstock.cluster.described import Node
from penstock.cluster.fence_expiry import FenceExpiry
from penstock.cluster.formation import Formation
from penstock.cluster.founding import FoundingFile
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.leadership import Leadership
from penstock.cluster.link_tls import load_link_tls
from penstock.cluster.links import Hello, Leader, Links, RequestKind
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import METADATA_GROUP, ClusterMetadata
from penstock.cluster.move_queue import MoveQueue
from penstock.cluster.overview import Overview
from penstock.cluster.pace import Pace
from penstock.cluster.partition import Partition
from penstock.cluster.peer_requests import PeerRequests
from penstock.cluster.placement import SHARD_REPLICAS, choose_replicas
from penstock.cluster.producer_ids import ProducerIds
from penstock.cluster.registration import Registration
from penstock.cluster.repair import Mender
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.rests import Rests
from penstock.cluster.snapshot_exchange import SnapshotExchange
from penstock.cluster.stewardship import Stewardship
from penstock.cluster.topic_changes import TopicChanges
from penstock.cluster.upkeep import Upkeep
from penstock.cluster.workplace import Workplace
from penstock.config import Address, NodeOptions, read_peers
from penstock.errors import (
    PenstockError,
    Unavailable,
)
from penstock.ids import EntryIndex, NodeId, ProducerId, TopicPartition
from penstock.log import Damage, Segment
from penstock.raft import (
    Membership,
    Message,
)

logger = logging.getLogger(__name__)

_STEWARD_INTERVAL_S = 0.3
# A node that stops does not wait longer for others to take over from it.
_HAND_OVER_S = 2.0


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
        self.metadata.is_current = False
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
        # Without methods around them: every publish and every receive asks.
        self.partition = self.replicas.partition
        self.replicas_of = self.replicas.replicas_of
        self.settings = self.replicas.settings
        self._listen_to_replicas()
        self.member = self.replicas.identity.member
        self._formation = Formation(self.member, frozenset(self._peers), joins=bool(options.join))
        self._founding_file = FoundingFile(workplace.disk, options.data_dir)
        copied = Pace(options.transfer_bytes_per_s, workplace.loop.time)
        self._snapshots = SnapshotExchange(self.links, workplace, copied)
        self._taught = Pace(options.transfer_bytes_per_s, workplace.loop.time)
        self._queue = MoveQueue(self.metadata, self.leaders, options.moves_per_node_max)
        self._changes = MetadataChanges(self.metadata, self.links, workplace)
        self._producer_ids = ProducerIds(self._changes)
        self._registration = Registration(self._changes, self.replicas.identity)
        self.topics = TopicChanges(
            self._changes, self.replicas, self.leaders, workplace, self._wait_until_reconciled
        )
        self.overview = Overview(self.metadata, self.replicas, self._queue, self.links, workplace)
        self.leadership = Leadership(
            self.metadata, self.replicas, self.leaders, self.links, workplace
        )
        self._rests = Rests(
            self.member.node, self.replicas.by_group, self.links, self.replicas.raft_settings
        )
        self._mender = Mender(self.member.node, self.links)
        self._belonging = Belonging(self.member.node, self.metadata, self._changes, self.links)
        self._requests = PeerRequests(
            self.replicas,
            self._changes,
            self._snapshots,
            self.overview,
            self.leadership,
            self._belonging,
        )
        self._work = asyncio.Event()
        self._reconciled_version = -1
        self._is_catching_up = False
        self._changed = asyncio.Condition()
        self.peer_port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._notices: set[asyncio.Future[None]] = set()
        self.on_shard_leadership: Callable[[int, ReplicatedLog], None] = lambda *_: None
        self.on_call: Callable[[bytes], Awaitable[bytes]] = _refuse_call

    def _listen_to_replicas(self) -> None:
        self.metadata.is_outdated = lambda: self.is_cut_off or self.was_removed
        self.replicas.on_opened = self._opened
        self.replicas.on_replaced = self._register_again
        self.replicas.on_unwanted = self._replica_closed
        self.replicas.is_led = self._is_led_elsewhere

    # Starting.

    async def start(self, host: str) -> None:
        """Open what is on disk, reach the peers, and found or find the cluster."""
        own = self._peers.get(self.member.node)
        port = own.port if own else self._options.peer_port
        self.peer_port = await self.links.listen(host, port)
        self._find_founding()
        for node, address in self._peers.items():
            self.links.told(NodeId(node), address)
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
        while self._changes.log is None:
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
        )
        await self._registration.register(description)
        # The answer came after everything that was committed before.
        self.metadata.is_current = True
        self._contact.joined()
        await self._notify()
        while not self.metadata.shards:
            await self._wait_for_change()
        await self._wait_until_reconciled()
        while not all(map(self._is_usable, self.replicas.by_group.values())):
            await self._wait_for_change()
        await self.replicas.report_unknown()

    def _is_usable(self, log: ReplicatedLog) -> bool:
        """True but for a log that is about to be served by this node alone.

        A replica that has heard of no voters waits for others to fill it, who may never come back.
        """
        is_alone = log.raft.membership.voters == (log.identity.member,)
        return log.is_serving or log.failure is not None or not is_alone

    async def _wait_for_change(self) -> None:
        """Wait for anything to happen; a second is enough where nobody tells."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1), self._changed:
                await self._changed.wait()

    def _find_founding(self) -> None:
        saved = self._founding_file.load()
        if saved is not None:
            self._formation.adopt(*saved)

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
        # Others may have been told to join this node.
        self.links.greet_again()
        logger.info("joining a cluster", extra={"cluster": cluster_id})

    def _save_founding(self, cluster_id: str, founding: Membership) -> None:
        self._founding_file.save(cluster_id, founding)
        self._formation.adopt(cluster_id, founding)

    async def _open_metadata(self) -> None:
        founding = self._formation.founding
        assert founding is not None, "a node has metadata once it belongs to a cluster"
        are_others_expected = founding != Membership.of([self.member])
        log = await self._workplace.in_thread(
            lambda: self.replicas.open_metadata(founding, are_others_expected=are_others_expected)
        )
        self._metadata_opened(log)
        self.metadata.watch(self.replicas.follow_names)
        self.metadata.watch(self._work.set)
        self._spawn(self._reconcile_rounds())
        self._spawn(self._steward_rounds())
        self._spawn(self._belonging.rounds())
        if self._options.leader_balance_interval_ms:
            interval_s = self._options.leader_balance_interval_ms / 1000
            self._spawn(self.leadership.balance_rounds(interval_s))
        self.replicas.begin_metadata(log)
        await self._notify()

    async def _open_metadata_late(self) -> None:
        """The same on a node that runs and has learnt only now where it belongs.

        What a sync that failed has left cannot be trusted by this process: the next one reads what
        is on disk. Until then the node is not ready and says why.
        """
        try:
            await self._open_metadata()
        except (OSError, PenstockError) as error:
            self.replicas.metadata_failed(error)

    def _metadata_opened(self, log: ReplicatedLog) -> None:
        self._changes.log = log
        self._opened(log, None)
        log.on_leadership = lambda: self._metadata_leadership(log)

    async def _replace_metadata(self) -> None:
        """Get the metadata from the others when it turns out to be damaged while it is in use.

        This node goes by what it knew until the new replica, under another incarnation, has caught
        up so far that it knows of that incarnation. From then on the new one is what it knows.
        A crash before that is a start with a replica that was begun anew.
        """
        learnt = ClusterMetadata()
        self._changes.log = None
        log = await self.replicas.replace_metadata(learnt)
        self._metadata_opened(log)
        # Damaged again, it is replaced again by the next round.
        with suppress(PenstockError):
            await self._registration.repeat()
            if self._is_recent(learnt):
                self._learn(log, learnt)

    def _learn(self, log: ReplicatedLog, learnt: ClusterMetadata) -> None:
        """Go by a new replica of the metadata. Nothing awaits here, so no entry comes between."""
        version = self.metadata.version
        self.metadata.restore(learnt.snapshot(), EntryIndex(log.applied_index + 1))
        self.metadata.version = max(version, self.metadata.version) + 1
        log.machine = self.metadata
        logger.info("metadata replaced", extra={"index": log.applied_index})
        self._work.set()

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
                self._spawn(self._open_metadata_late())
            elif self._formation.must_join and hello.cluster_id is not None:
                self._adopt(hello.cluster_id)
                self._spawn(self._open_metadata_late())

    def connected(self, node: NodeId) -> None:
        """Tell a peer what this node leads."""
        self.links.announce(self.leaders.led_by(self.member.node), to=node)
        self.leaders.version += 1

    def disconnected(self, node: NodeId) -> None:
        """A link broke: what was under way may be lost."""
        for log in self.replicas.by_group.values():
            log.unreachable(node)
        self._rests.broke(node)
        self.leaders.lost(node)
        self.leaders.version += 1

    def received(self, group: int, message: Message) -> None:
        """Hand a message to its replica; for one that is not open here it is lost."""
        log = self.replicas.by_group.get(group)
        if log is not None:
            log.step(message)

    def beat_heard(self, node: NodeId, body: bytes) -> None:
        """Let groups rest that a peer leads."""
        self._rests.heard(node, body)

    def beat_answered(self, node: NodeId, body: bytes) -> None:
        """Wake groups that do not rest with a peer."""
        self._rests.answered(node, body)

    def leaders_announced(self, leaders: Iterable[Leader]) -> None:
        """Learn who leads."""
        self.leaders.learn(leaders)
        if self.replicas.has_damaged:
            # Now it may be replaced.
            self._work.set()

    def _is_led_elsewhere(self, group: int) -> bool:
        leader = self.leaders.leader_of(group)
        return leader is not None and leader.node in self.links.connected

    async def asked(self, node: NodeId, kind: int, body: bytes) -> bytes:
        """Answer a peer."""
        del node
        if kind == RequestKind.CALL:
            return await self.on_call(body)
        return await self._requests.answer(kind, body)

    # Mending damage.

    async def mend(self, log: ReplicatedLog, segment: Segment, damage: Damage) -> bool:
        """Replace damaged bytes by those of the group's leader; False when that is not possible."""
        return await self._mender.mend(log, segment, damage)

    def _register_again(self) -> None:
        self._spawn(self._registration.repeat())

    def _replica_closed(self) -> None:
        if not self._is_catching_up:
            self._is_catching_up = True
            self._spawn(self._let_unwanted_go())

    async def _let_unwanted_go(self) -> None:
        """Catch up with the metadata, and let replicas go that were closed before."""
        while closed := self.replicas.unwanted.uncertain():
            # The answer comes after everything that was decided before.
            await self._registration.repeat()
            for each in closed:
                each.is_certain = True
            self._work.set()
        self._is_catching_up = False

    # Time and leadership.

    async def _steward_rounds(self) -> None:
        stewardship = Stewardship(self.metadata, self._queue)
        fences = FenceExpiry(self.metadata)
        while True:
            await asyncio.sleep(_STEWARD_INTERVAL_S)
            logs = list(self.replicas.by_group.values())
            commands = stewardship.tend(logs, reachable=self.reachable)
            if self._changes.log is not None and self._changes.log.is_serving:
                commands += fences.overdue(self._workplace.clock.steady_s())
            for command in commands:
                with suppress(PenstockError):
                    await self.change(command)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._options.tick_ms / 1000)
            self._rests.tick()

    def _opened(self, log: ReplicatedLog, shard: int | None) -> None:
        """Follow a replica that was opened: who leads it, and what it cannot get from its log."""

        def leadership() -> None:
            self._leadership(log)
            if shard is not None:
                self.on_shard_leadership(shard, log)

        log.on_leadership = leadership
        if log.identity.group != METADATA_GROUP:
            log.pace_learners(self._taught)
        log.on_snapshot_wanted = lambda offer: self._spawn(self._snapshots.copy(log, offer))

    def _leadership(self, log: ReplicatedLog) -> None:
        """Note who leads a group, and tell everyone when it is this node."""
        if log.leader is None or log.failure is not None:
            self.leaders.deposed(log.identity.group, self.member.node)
            if log.failure is not None:
                self._work.set()
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
                        min(SHARD_REPLICAS, len(self.metadata.nodes)),
                        reachable=self.reachable,
                    )
                    await log.propose_state(encode_command(PlaceShards(placement)))
                else:
                    await self._wait_for_change()
        except Unavailable:
            # Another node leads now and does the same.
            logger.debug("metadata leadership lost")

    # Finding.

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
        log = self._changes.log
        if log is None:
            return True
        now_s = self._workplace.loop.time()
        return self._contact.is_lost(log.raft.membership, self.reachable, now_s)

    @property
    def was_removed(self) -> bool:
        """True when the cluster goes on without this node."""
        return self._belonging.was_removed

    @property
    def reachable(self) -> set[NodeId]:
        """The nodes that this one has a link to, and itself."""
        return {self.member.node, *self.links.connected}

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
        return await self._changes.change(command)

    async def new_producer_id(self) -> ProducerId:
        """Return an id that no producer ever had."""
        return await self._producer_ids.take()

    async def _wait_until_reconciled(self) -> None:
        version = self.metadata.version
        while self._reconciled_version < version:
            await self._wait_for_change()

    # The replicas, as the metadata says.

    async def _reconcile_rounds(self) -> None:
        """Follow the metadata, from the state on that this node had reached before it stopped.

        What it knows of at first may be older than its files: a topic that was deleted since, and
        whose name and directory another one has; a group that it has left and come back to. To go
        by that would take the files away from those who have them now.
        """
        await self.replicas.empty_deleted()
        known: set[int] = set()
        while not (self.metadata.is_current and self._is_recent(self.metadata)):
            # Where the others were is the best that it can try, and may be all that it has.
            known = self._know_nodes(known)
            await self._wait_for_change()
        await self.replicas.find_leftovers(list(self.metadata.topics.values()))
        while True:
            self._work.clear()
            if self.metadata.is_current and self.replicas.is_metadata_replaceable:
                await self._replace_metadata()
            version = self.metadata.version
            known = self._know_nodes(known)
            await self.replicas.reconcile(list(self.metadata.topics.values()))
            self._reconciled_version = version
            await self._notify()
            await self._work.wait()

    def _know_nodes(self, known: set[int]) -> set[int]:
        """Keep links to the nodes of the cluster, and to no other that was known before."""
        for node in self.metadata.nodes.values():
            self.links.know(NodeId(node.node_id), Address(node.peer_host, node.peer_port))
        for node_id in known - self.metadata.nodes.keys():
            self.links.forget(NodeId(node_id))
        return set(self.metadata.nodes)

    def _is_recent(self, metadata: ClusterMetadata) -> bool:
        """False while metadata that was begun anew tells of a past that this node has outlived.

        In that past this node may found groups that it has left since, and whose votes it has
        forgotten. What it was when it registered under the new incarnation, it is still.
        """
        incarnation = self.replicas.identity.replaced.get(METADATA_GROUP)
        own = metadata.nodes.get(self.member.node)
        is_known = own is not None and own.replaced.get(METADATA_GROUP) == incarnation
        return incarnation is None or is_known

    async def hand_over(self) -> None:
        """Let others lead what this node leads, before it stops."""
        await self.leadership.hand_over_all(_HAND_OVER_S)

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
