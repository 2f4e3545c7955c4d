"""A group of nodes and its clients, the weather that they live in, and how it all ends."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from penstock.cluster.steward import Change, GroupView, HandOver, next_step
from penstock.delivery import GroupSettings, OrderMode
from penstock.errors import PenstockError
from penstock.ids import Term
from penstock.log import EntryKind, LogSettings, PartitionLog
from penstock.raft import Entry, Member, Membership, Role
from penstock.record import batch_without_records, read_header
from penstock.record.batch import CRC_POSITION
from penstock.testing import Schedule, SimMachine, SimNetwork
from tests.simulation.books import Books
from tests.simulation.callers import Caller, Surroundings
from tests.simulation.clients import Client, Ledger, unique_of
from tests.simulation.consumers import PLANNED, Consumer, Keyed, Planner
from tests.simulation.faults import Faults
from tests.simulation.governors import Governor, MetadataBooks
from tests.simulation.members import Committer, GroupsBooks
from tests.simulation.node import LOG, MACHINES, Node
from tests.simulation.referee import Referee, Violation, require
from tests.simulation.states import state_of
from tests.simulation.workloads import SHARES, Workload

EVENTS_DEFAULT = 25_000
_FOREVER_US = 1 << 60
_PEACE_US = 100_000
_PEACE_ROUNDS = 150
# How many histories end with rot that nothing but the others can make good.
_LAST_ROT = 0.4
_STEWARD_US = 40_000
_UPKEEP_US = 60_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one history was like."""

    seed: int
    events: int
    simulated_s: float
    faults: Counter[str]
    acked: int
    reads: int
    terms: int
    trace: int
    violation: str | None = None


class World:
    """Everything of one history; the seed decides all of it."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int | None = None,
        settings: LogSettings | None = None,
        workload: Workload | None = None,
        groups: dict[str, GroupSettings] | None = None,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.schedule = Schedule()
        self.network = SimNetwork(self.schedule, self.random)
        self.referee = Referee()
        self.ledger = Ledger()
        self.clients: list[Client] = []
        self._incarnation = 0
        self.flushes_here = 0.0
        self.consumers: list[Consumer] = []
        self.planners: list[Planner] = []
        self.workload = workload or self._draw_workload()
        self.groups = groups or {}
        self.governors: list[Governor] = []
        self.committers: list[Committer] = []
        self._open_books()
        self.settings = settings or self._draw_settings()
        self.referee.compacts = self.settings.compacts
        self.referee.new_machine = MACHINES[self.workload]
        count = nodes or self.random.choice((3, 3, 3, 3, 3, 3, 3, 5, 5, 2, 1))
        founded = [self.new_node(name) for name in range(1, count + 1)]
        founders = Membership.of(node.member for node in founded)
        for node in founded:
            node.founders = founders
        self.faults = Faults(self)
        for node in founded:
            node.start()

    def _open_books(self) -> None:
        if self.workload is Workload.MESSAGES:
            self.groups = self.groups or self._draw_groups()
            self.referee.books = Books(self.groups)
        elif self.workload is Workload.METADATA:
            self.referee.metadata_books = MetadataBooks()
        elif self.workload is Workload.GROUPS:
            self.referee.groups_books = GroupsBooks()

    def _draw_workload(self) -> Workload:
        return self.random.choices(list(SHARES), list(SHARES.values()))[0]

    def _draw_settings(self) -> LogSettings:
        """What the topic gives up: nothing, old records, replaced ones, or both."""
        kinds = ("nothing", "old", "old", "replaced", "both")
        # A queue has no use for compaction: it would take messages that nobody received.
        # Neither have logs of state entries alone.
        has_records = self.workload is Workload.RECORDS
        gives_up = self.random.choice(kinds if has_records else kinds[:3])
        # Zeros are written ahead of entries only in files of more than a page.
        scale = 8 if gives_up == "nothing" else 1
        return replace(
            LOG,
            segment_bytes=(2_000 + int(4_000 * self.random.random())) * scale,
            deletes=gives_up in ("old", "both"),
            retention_ms=-1,
            retention_bytes=int(12_000 * self.random.random()),
            compacts=gives_up in ("replaced", "both"),
            tombstone_retention_ms=1_000,
            dirty_ratio_min=0.2,
        )

    def _draw_groups(self) -> dict[str, GroupSettings]:
        """One or two queue groups, each with an order of its own."""
        groups = {}
        for name in ("workers", "auditors")[: self.random.choice((1, 1, 2))]:
            order = self.random.choice(list(OrderMode))
            groups[name] = GroupSettings(
                lease_ms=self.random.choice((100, 300, 900)),
                attempts_max=self.random.choice((0, 1, 1, 2, 4)),
                backoff_min_ms=self.random.choice((5, 40)),
                backoff_max_ms=200,
                order=order,
                in_flight_max=self.random.choice((6, 1_000)),
                consumer_in_flight_max=self.random.choice((5, 1_000)),
                dead_letter_topic="orders",
            )
        return groups

    def begin(self) -> None:
        """Let clients, upkeep and faults come."""
        self._add_clients()
        self.flushes_here = self.random.choice((0.0, 0.5, 0.9))
        for node in self.nodes.values():
            node.flushes_here = self.flushes_here
        self.schedule.later(_STEWARD_US, self._steward)
        self.schedule.later(_UPKEEP_US, self._keep_up)
        self.faults.begin()

    def new_node(self, name: int) -> Node:
        """Give a place to a machine with an empty disk."""
        self._incarnation += 1
        node = Node(
            name,
            self._incarnation,
            schedule=self.schedule,
            network=self.network,
            random=self.random,
            referee=self.referee,
            settings=self.settings,
            groups=self.groups,
            workload=self.workload,
        )
        node.flushes_here = self.flushes_here
        self.referee.nodes[name] = node
        return node

    @property
    def nodes(self) -> dict[int, Node]:
        """All machines by name; where one was replaced, the newest."""
        return self.referee.nodes

    @property
    def callers(self) -> list[Caller]:
        """Everyone who asks something of a node."""
        return [
            *self.clients,
            *self.consumers,
            *self.planners,
            *self.governors,
            *self.committers,
        ]

    @property
    def acked(self) -> int:
        """How many requests of all kinds were carried out."""
        return (
            self.ledger.acked
            + sum(planner.acked for planner in self.planners)
            + sum(governor.acked for governor in self.governors)
            + sum(committer.acked for committer in self.committers)
        )

    def leader(self) -> Node | None:
        """Some node that leads, as far as it knows."""
        for node in self.nodes.values():
            if node.log and node.log.failure is None and node.log.raft.role is Role.LEADER:
                return node
        return None

    def _add_clients(self) -> None:
        interval_us = int(4_000 * (1 + 4 * self.random.random()))
        around = Surroundings(self.schedule, self.network, self.random, self.referee)
        referee = self.referee
        if (metadata := referee.metadata_books) is not None:
            for number in range(3):
                governor = Governor(number, around, books=metadata, interval_us=interval_us)
                self.governors.append(governor)
            return
        if (groups := referee.groups_books) is not None:
            for number in range(6):
                committer = Committer(number, around, books=groups, interval_us=interval_us)
                self.committers.append(committer)
            return
        for number, window in enumerate((0, 0, 1, 1, 3, 4)):
            self.clients.append(
                Client(number, window, around, ledger=self.ledger, interval_us=interval_us)
            )
        if (books := self.referee.books) is None:
            return
        for number, group in enumerate([*self.groups] * 2):
            self.consumers.append(
                Consumer(number, around, books=books, group=group, interval_us=interval_us)
            )
        keyed: list[Keyed] = []
        for number in range(2):
            planner = Planner(number, around, books=books, keyed=keyed, interval_us=3 * interval_us)
            self.planners.append(planner)

    # A history.

    def run(self, events: int = EVENTS_DEFAULT) -> Outcome:
        """Let everything happen, then let it end well."""
        self.begin()
        self.schedule.run(until_us=_FOREVER_US, events_max=events, after=self._check)
        self.conclude()
        return self.outcome()

    def outcome(self, violation: str | None = None) -> Outcome:
        """What has happened so far."""
        faults = Counter(self.faults.counts)
        faults["messages lost"] = self.network.lost
        faults["messages repeated"] = self.network.repeated
        faults["rests begun"] = sum(node.rests_begun for node in self.nodes.values())
        faults["snapshot installed"] = self.referee.installs
        return Outcome(
            self.seed,
            self.schedule.events,
            self.schedule.now_us / 1e6,
            faults,
            self.acked + self.ledger.states_acked,
            self.ledger.reads,
            len(self.referee.leaders),
            hash((self.schedule.trace, len(self.referee.committed), self.acked)),
            violation,
        )

    def end(self) -> None:
        """End all lives, wherever they are."""
        for node in self.nodes.values():
            node.machine.stop()

    def advance(self, duration_us: int) -> None:
        """Let time pass."""
        self.schedule.run(
            until_us=self.schedule.now_us + duration_us, events_max=_FOREVER_US, after=self._check
        )

    def _check(self, machine: SimMachine) -> None:
        self.referee.check(self.referee.nodes[machine.name])

    # Whoever looks after the group.

    def _steward(self) -> None:
        """Bring the members back that lost their disks, by the real steps of the real steward."""
        self.schedule.later(int(_STEWARD_US * (0.5 + self.random.random())), self._steward)
        leader = self.leader()
        if leader is None or not self.faults.wants_everyone():
            return
        leader.soon(self.take_step, leader, [node.member for node in self.nodes.values()])

    def take_step(self, leader: Node, wanted: list[Member]) -> None:
        """Take the next step towards these voters."""
        assert leader.log is not None
        log = leader.log
        raft = log.raft
        view = GroupView(leader.member, raft.membership, raft.followers(), raft.last_index)
        step = next_step(view, wanted)
        try:
            if isinstance(step, Change):
                raft.propose_membership(step.membership)
                self.faults.counts["membership change"] += 1
            elif isinstance(step, HandOver):
                raft.transfer_leader(step.to)
        except PenstockError:
            return
        log._pump()

    def _keep_up(self) -> None:
        self.schedule.later(int(_UPKEEP_US * (0.5 + self.random.random())), self._keep_up)
        node = self.random.choice(list(self.nodes.values()))
        node.soon(self.random.choice((node.checkpoint, node.save_snapshot, node.seal, node.tidy)))

    # The end.

    def conclude(self) -> None:
        """Without faults the group makes progress, and holds all that was ever acknowledged."""
        if self.random.random() < _LAST_ROT:
            self.faults.rot_the_end()
        self.faults.end()
        before = self.acked
        for client in self.callers[1:]:
            client.is_stopping = self.random.random() < 0.7
        self._advance_until(lambda: self.acked > before and self._is_whole())
        require(self.leader() is not None, "nobody leads after the faults have stopped")
        require(self.acked > before, "nothing is acknowledged after the faults")
        for caller in self.callers:
            caller.is_stopping = caller not in self.consumers
        self._empty_queues()
        self._advance_until(lambda: self._is_whole() and self._is_quiet())
        self._check_convergence()
        self._check_acknowledged()
        self._check_durable()

    def _empty_queues(self) -> None:
        """Consumers that ack everything come to the end of every group."""
        if (books := self.referee.books) is None:
            return
        for consumer in self.consumers:
            consumer.hasten()
        # What waits for a time waits by a clock that may have been set back many times.
        for node in self.nodes.values():
            node.clock.jump(3_600_000)
        before = -1
        while not books.is_done() and books.settled_count > before:
            # One at a time takes its time; but it goes on.
            before = books.settled_count
            self._advance_until(books.is_done)
        books.check_done()
        for consumer in self.consumers:
            consumer.is_stopping = True

    def _advance_until(self, is_reached: Callable[[], bool]) -> None:
        for _ in range(_PEACE_ROUNDS):
            if is_reached():
                return
            self.advance(_PEACE_US)
            self.faults.repair()

    def _is_whole(self) -> bool:
        """Whether every node is a voter, up, open, and on a disk that nobody has to replace."""
        leader = self.leader()
        wanted = {node.member for node in self.nodes.values()}
        return (
            leader is not None
            and leader.log is not None
            and set(leader.log.raft.membership.voters) == wanted
            and all(node.log and node.log.failure is None for node in self.nodes.values())
            and not any(node.is_doomed for node in self.nodes.values())
        )

    def _is_quiet(self) -> bool:
        """Whether everyone has applied everything, and nobody waits for an answer."""
        return not any(client.pending for client in self.clients) and all(
            node.log is not None
            and node.log.applied_index == node.log.raft.last_index == len(self.referee.committed)
            for node in self.nodes.values()
        )

    def _check_convergence(self) -> None:
        leader = self.leader()
        assert leader is not None
        assert leader.log is not None
        wanted = {node.member for node in self.nodes.values()}
        require(
            set(leader.log.raft.membership.voters) == wanted,
            "not everyone is a voter again",
            leader.log.raft.membership,
            wanted,
        )
        states = []
        for node in self.nodes.values():
            require(node.log is not None, "a node is down in peace", node.name)
            assert node.log is not None
            require(node.log.failure is None, "a replica is closed in peace", node.log.failure)
            require(
                node.log.applied_index == len(self.referee.committed),
                "a replica lags behind in peace",
                node.name,
                node.log.applied_index,
                len(self.referee.committed),
            )
            states.append(state_of(node.log.machine))
        same = all(state == states[0] for state in states)
        require(same, "replicas have different states", states)

    def _check_acknowledged(self) -> None:
        for client in self.clients:
            require(not client.pending, "a batch was never acknowledged", client.pending)
        uniques: Counter[int] = Counter()
        sequences: dict[int, int] = {}
        offset = 0
        for base_offset in sorted(self.referee.batches):
            batch = self.referee.batches[base_offset]
            require(base_offset == offset, "offsets have a gap", base_offset, offset)
            header = read_header(batch)
            offset = header.next_offset
            if self.referee.books is not None and (PLANNED in batch or b"penstock-" in batch):
                continue
            sent = self.ledger.sent.get(unique_of(batch))
            require(
                sent is not None and sent.data[CRC_POSITION:] == batch[CRC_POSITION:],
                "a batch is in the log that nobody has sent",
                base_offset,
            )
            assert sent is not None
            uniques[sent.unique] += 1
            if header.has_producer:
                expected = sequences.get(header.producer_id, 0)
                require(
                    header.base_sequence == expected,
                    "an idempotent producer's batch is lost, repeated or out of order",
                    header,
                    expected,
                )
                sequences[header.producer_id] = header.base_sequence + header.records
        for sent in self.ledger.sent.values():
            if sent.offset >= 0:
                require(uniques[sent.unique] == 1, "an acknowledged batch is lost", sent)

    def _check_durable(self) -> None:
        """Cut everyone's power once more, and compare every stored entry."""
        for node in self.nodes.values():
            if node.is_on:
                node.cuts_power = True
                node.stop()
        self.faults.end()
        for node in self.nodes.values():
            node.start()
            require(node.log is not None, "a node does not start again", node.name)
            assert node.log is not None
            self._check_stored(node, node.log.log)

    def _check_stored(self, node: Node, log: PartitionLog) -> None:
        for entry in self.referee.committed[log.first_index - 1 :]:
            row, payload = log.payload_at(entry.index)
            if row.kind == EntryKind.RECORDS and row.size == 0:
                payload = bytes(batch_without_records(row.first_offset, row.records, row.term))
            stored = Entry(entry.index, Term(row.term), entry.kind, len(payload), payload)
            require(
                stored.term == entry.term and self.referee.is_same(stored, entry),
                "a stored entry is not the committed one",
                node.name,
                entry.index,
            )


def play(
    seed: int,
    *,
    events: int = EVENTS_DEFAULT,
    nodes: int | None = None,
    workload: Workload | None = None,
) -> Outcome:
    """Play one history; a violation is part of the outcome."""
    return outcome_of(World(seed, nodes=nodes, workload=workload), events)


class History(Protocol):
    """What can be played."""

    def run(self, events: int) -> Outcome:
        """Let everything happen, then let it end well."""

    def outcome(self, violation: str | None = None) -> Outcome:
        """What has happened so far."""

    def end(self) -> None:
        """End all lives, wherever they are."""


def outcome_of(history: History, events: int) -> Outcome:
    """Play a history; a violation is part of the outcome."""
    try:
        return history.run(events)
    except Violation as violation:
        return history.outcome(str(violation))
    except Exception as error:  # noqa: BLE001 (whatever escapes is a finding)
        return history.outcome(f"{type(error).__name__}: {error}")
    finally:
        history.end()
