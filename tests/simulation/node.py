"""One machine of the simulation: a real replica on a simulated disk, clock, loop and network."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from penstock.broker.groups import ShardMachine
from penstock.cluster.changes import MetadataChanges
from penstock.cluster.housekeeping import Housekeeper
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.pace import Pace
from penstock.cluster.partition import Partition
from penstock.cluster.partition_queue import PartitionQueue
from penstock.cluster.replica_identity import ReplicaIdentity
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.rests import Rests
from penstock.cluster.snapshot_exchange import SnapshotExchange
from penstock.cluster.topic_machine import TopicMachine
from penstock.cluster.upkeep import Upkeep
from penstock.delivery import GroupSettings
from penstock.errors import Corruption, PenstockError
from penstock.groups import GroupLimits
from penstock.ids import NodeId, TopicPartition
from penstock.log import LOG_SUFFIX, STATE_SUFFIX, EntryKind, LogSettings, Segment
from penstock.raft import (
    Effects,
    Entry,
    Incarnation,
    InstallSnapshot,
    Member,
    Membership,
    Message,
    RaftSettings,
    Snapshot,
)
from penstock.testing import (
    MachineStopped,
    Schedule,
    SimNetwork,
)
from tests.simulation.computer import Computer
from tests.simulation.members import new_groups
from tests.simulation.referee import EXPIRY_MS, Referee, require
from tests.simulation.requests import Requests
from tests.simulation.services import Services
from tests.simulation.workloads import Workload

GROUP = 7
PLACE = TopicPartition("orders", 0)
DIRECTORY = Path("/data/orders/0")
TICK_US = 10_000
RAFT = RaftSettings(
    election_ticks=10,
    heartbeat_ticks=2,
    append_bytes_max=600,
    inflight_messages_max=8,
    inflight_bytes_max=4000,
)
LOG = LogSettings(segment_bytes=6_000, segment_ms=20_000, deletes=False)
# Twice the silence that a follower may not miss, and what the slowest beat takes on its way.
_LONELY_TICKS = 3 * RAFT.election_ticks
# Small enough that a copy takes many requests and can be overtaken by what happens meanwhile.
_CHUNK_BYTES = 1_500
_HOLD_S = 0.4


MACHINES: dict[Workload, Callable[[], Machine]] = {
    Workload.RECORDS: lambda: TopicMachine(producer_expiry_ms=EXPIRY_MS),
    Workload.MESSAGES: lambda: TopicMachine(producer_expiry_ms=EXPIRY_MS),
    Workload.METADATA: ClusterMetadata,
    Workload.GROUPS: lambda: ShardMachine(GroupLimits()),
}


class WatchedLog(ReplicatedLog):
    """The real thing, which shows the referee what it is about to do."""

    witness: "Node"

    def _carry_out(self, effects: Effects) -> None:
        self.witness.referee.check_effects(self.witness, effects)
        super()._carry_out(effects)

    def _apply_entry(self, entry: Entry) -> None:
        self.witness.referee.check_applied(self.witness, entry)
        super()._apply_entry(entry)
        self.witness.referee.check_state(self.witness, entry.index)

    def _installed(self, snapshot: Snapshot) -> None:
        super()._installed(snapshot)
        self.witness.referee.check_installed(self.witness, snapshot.index)


class Node(Computer):
    """A machine over many lives of its process and some lives of its disk."""

    def __init__(
        self,
        name: int,
        incarnation: int,
        *,
        schedule: Schedule,
        network: SimNetwork,
        random: Random,
        referee: Referee,
        settings: LogSettings = LOG,
        groups: dict[str, GroupSettings] | None = None,
        workload: Workload = Workload.RECORDS,
    ) -> None:
        super().__init__(name, schedule=schedule, random=random)
        self.settings = settings
        self.groups = groups or {}
        """The settings of queue groups."""
        self.workload = workload
        self.member = Member(NodeId(name), Incarnation(incarnation))
        self.directory = DIRECTORY
        self.referee = referee
        self.founders: Membership | None = None
        """Who founds the group; None for a node that joins a group that exists."""
        self.partition: Partition | None = None
        self.log: WatchedLog | None = None
        self.is_unfit = False
        """The disk or what is on it is no good, and the replica has said so."""
        self.lost_index: int | None = None
        """The newest entry before it rotted, until it is there again."""
        self.copy_bytes_per_s = 300_000
        self.copies = 0
        self.rests_begun = 0
        self._tidied: ReplicatedLog | None = None
        self.on_down: Callable[[Node], None] = lambda node: None
        # What the referee has seen of the present life.
        self.commit_seen = 0
        self.applied_seen = 0
        self.first_seen = 0
        self.watermark_seen = 0
        self.led_term = -1
        self.durable_term = 0
        # What its messages have revealed in all lives.
        self.revealed_term = 0
        self.revealed_vote = (-1, -1)
        self._network = network
        self._paths: dict[tuple[int, str], Path] = {}
        self._lonely_ticks = 0
        network.join(self.member.node, self.machine, self._receive, self._hear)

    # Lives.

    def start(self) -> None:
        """Start the process; recovery may end it again."""
        if self.machine.is_on:
            return
        self.workplace = self._begin_life()
        asyncio._set_running_loop(self.workplace.loop)
        try:
            self._open()
        except MachineStopped:
            self.stop()
        except Corruption:
            self.is_unfit = True
            self.stop()
        except (OSError, PenstockError):
            # The disk is full or has failed to sync; whoever looks after the machine restarts it.
            self.cuts_power = True
            self.stop()
        finally:
            asyncio._set_running_loop(None)

    def _open(self) -> None:
        requests = Requests(self, self._schedule, self._network, self._random)
        machine = self._new_machine()
        if self.founders is not None:
            ReplicatedLog.found(self.workplace, self.directory, self.founders, machine)
        log = WatchedLog(
            ReplicaIdentity(str(PLACE), GROUP, self.member),
            self.directory,
            self.settings,
            machine,
            self.workplace,
            transport=self,
            raft_settings=RAFT,
        )
        log.witness = self
        self.commit_seen = 0
        self.applied_seen = log.applied_index
        self.first_seen = log.log.first_index
        self.watermark_seen = 0
        self.led_term = -1
        self.durable_term = 0
        self._paths.clear()
        self.log = log
        self._begin_service(log, requests)
        self.rests = Rests(self.member.node, {GROUP: log}, self, RAFT)
        self._lonely_ticks = 0
        # The upkeep of one log asks its housekeeper for nothing else.
        cluster: Any = SimpleNamespace(upkeep=Upkeep())
        unused: Any = None
        self.keeper = Housekeeper(cluster, unused, unused, self.workplace)
        self.exchange = SnapshotExchange(
            requests,
            self.workplace,
            Pace(self.copy_bytes_per_s, self.workplace.loop.time),
            chunk_bytes=_CHUNK_BYTES,
            hold_s=_HOLD_S,
        )
        log.on_snapshot_wanted = self._copy
        self.referee.check_remembers(self)
        self.referee.check(self)
        self._later(self._random.random() * TICK_US, self._tick)

    def _new_machine(self) -> Machine:
        if self.workload is Workload.GROUPS:
            self.consumer_groups = new_groups(self)
            return self.consumer_groups.machine(0)
        return MACHINES[self.workload]()

    def _begin_service(self, log: WatchedLog, requests: Requests) -> None:
        """Let the replica be asked for what its machine is for."""
        machine = log.machine
        if isinstance(machine, ClusterMetadata):
            self.metadata = machine
            links: Any = requests
            self.changes = MetadataChanges(machine, links, self.workplace)
            self.changes.log = log
        elif isinstance(machine, TopicMachine):
            self.services = Services(self, requests, group=GROUP, settings=self.groups)
            queue = PartitionQueue(PLACE, log, machine, self.workplace, host=self.services.host)
            self.partition = Partition(PLACE, log, machine, queue, self.workplace)
        else:
            log.on_leadership = lambda: self.consumer_groups.leadership_changed(0, log)
            log.on_leadership()

    def stop(self) -> None:
        """End the process by a kill or by a power cut."""
        self.machine.stop()
        self.partition = self.log = None
        self._restore_disk()
        self.on_down(self)

    def soon(self, act: Callable[..., None], *args: Any) -> None:
        """Let something happen on this machine, unless it stops before."""
        self._schedule.later_on(self.machine, self.machine.life, 0, act, *args)

    def _later(self, delay_us: float, act: Callable[..., Any], *args: Any) -> None:
        self._schedule.later_on(self.machine, self.machine.life, int(delay_us), act, *args)

    # Events.

    def _tick(self) -> None:
        assert self.log is not None
        was_awake = self.log.rest is None
        self.rests.tick()
        if self.log.rest is not None:
            self.rests_begun += was_awake
            self._check_company(self.log)
        self._later(TICK_US / self.clock.rate, self._tick)

    def _receive(self, group: int, message: Message) -> None:
        assert self.log is not None
        assert group == GROUP
        self.log.step(message)

    def send(self, group: int, message: Message) -> None:
        """Carry a message of the replica to the network: the node is its transport."""
        self.referee.check_sent(self, message)
        self._network.send(group, message)

    def _check_company(self, log: WatchedLog) -> None:
        """A follower that rests soon notices that nobody leads it any more."""
        rest = log.rest
        assert rest is not None
        leader = self.referee.nodes[log.leader].log if log.leader is not None else None
        is_led = leader is not None and leader.failure is None and leader.raft.leads(rest.term)
        self._lonely_ticks = 0 if is_led else self._lonely_ticks + 1
        require(
            self._lonely_ticks < _LONELY_TICKS, "a follower rests under nobody", self.name, rest
        )

    @property
    def connected(self) -> list[NodeId]:
        return self._network.others(self.member.node)

    def send_beat(self, to: NodeId, body: bytes) -> None:
        self._network.send_beat(self.member.node, to, body, is_answer=False)

    def send_beat_answer(self, to: NodeId, body: bytes) -> None:
        self._network.send_beat(self.member.node, to, body, is_answer=True)

    def _hear(self, sender: NodeId, body: bytes, is_answer: bool) -> None:
        if is_answer:
            self.rests.answered(sender, body)
        else:
            self.rests.heard(sender, body)

    def lose_link(self, peer: NodeId) -> None:
        """The link to a peer breaks, and the node notices."""
        if self.log is not None:
            self.log.unreachable(peer)
            self.rests.broke(peer)

    def _copy(self, offer: InstallSnapshot) -> None:
        assert self.log is not None
        self.copies += 1
        self.spawn(self.exchange.copy(self.log, offer))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something on this machine until it ends or the machine stops."""
        assert self.machine.process is not None
        self.machine.process.create_task(work).add_done_callback(_raise)

    # Upkeep.

    @property
    def is_doomed(self) -> bool:
        """Whether a bit was flipped that does not come back from the others: the disk has to go."""
        return self.is_rotten and self.lost_index is None

    def newest_entry(self) -> tuple[Path, int] | None:
        """Return the file and a position in the middle of the newest entry that was flushed."""
        segments = self.log.log.segments if self.log is not None else []
        if not segments or not segments[-1].written_rows:
            return None
        segment = segments[-1]
        row = segment.table.row(segment.written_rows - 1)
        is_log = row.kind == EntryKind.RECORDS
        start = row.log_position if is_log else row.state_position
        return segment.path(LOG_SUFFIX if is_log else STATE_SUFFIX), start + row.size // 2

    def save_snapshot(self) -> None:
        """Save a snapshot, as housekeeping does."""
        if log := self._healthy():
            self._work(log, "snapshot", ReplicatedLog.save_snapshot)

    def checkpoint(self) -> None:
        """Save a checkpoint, as housekeeping does."""
        if log := self._healthy():
            self._work(log, "checkpoint", self.keeper._checkpoint)

    def seal(self) -> None:
        """Begin a new segment when the old one is due, as housekeeping does."""
        if log := self._healthy():
            now_ms = self.clock.now_ms()

            async def seal_if_due(log: ReplicatedLog) -> None:
                await log.run_exclusive(lambda: log.log.seal_if_due(now_ms))

            self._work(log, "seal", seal_if_due)

    def tidy(self) -> None:
        """Apply retention and compaction, as housekeeping does: one round after another."""
        log = self._healthy()
        if log is not None and log is not self._tidied:
            self._tidied = log
            self._work(log, "retention", self._tidy_log)

    async def _tidy_log(self, log: ReplicatedLog) -> None:
        try:
            await self.keeper._tidy_log(log)
        finally:
            self._tidied = None

    def _work(
        self,
        log: ReplicatedLog,
        name: str,
        run: Callable[[ReplicatedLog], Coroutine[Any, Any, None]],
    ) -> None:
        self.spawn(self.keeper._work_on(log, name, run))

    def _healthy(self) -> WatchedLog | None:
        return self.log if self.log is not None and self.log.failure is None else None

    def path_of(self, segment: Segment, suffix: str) -> Path:
        """The path of a segment's file, kept because it is asked for at every commit."""
        key = (segment.first_index, suffix)
        path = self._paths.get(key)
        if path is None:
            path = self._paths[key] = segment.path(suffix)
        return path


def _raise(task: asyncio.Task[None]) -> None:
    """A task that fails in a way that nobody foresaw ends the simulation."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
