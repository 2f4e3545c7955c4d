"""Replicas of one group in memory, with disks that forget what was not synced."""

from collections import deque
from collections.abc import Callable
from random import Random

from msgspec import structs

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import (
    Effects,
    Entry,
    EntryKind,
    HardState,
    Incarnation,
    InstallSnapshot,
    Member,
    Membership,
    Message,
    RaftNode,
    RaftSettings,
    ReadState,
    Recovered,
    Role,
    Snapshot,
    Write,
)

SETTINGS = RaftSettings(election_ticks=10, heartbeat_ticks=1)
FIRST = Incarnation(1)


def member(node: int, incarnation: int = FIRST) -> Member:
    return Member(NodeId(node), Incarnation(incarnation))


def voters(*nodes: int) -> Membership:
    return Membership.of(member(node) for node in nodes)


def entry(index: int, term: int, payload: bytes = b"") -> Entry:
    return Entry(EntryIndex(index), Term(term), EntryKind.RECORDS, len(payload), payload)


class StoredLog:
    """What a disk holds after a crash; the `LogView` of the tests shows nothing more."""

    def __init__(self) -> None:
        self.base = Snapshot(EntryIndex(0), Term(0), Membership())
        self.entries: list[Entry] = []

    @property
    def first_index(self) -> EntryIndex:
        return EntryIndex(self.base.index + 1)

    @property
    def last_index(self) -> EntryIndex:
        return EntryIndex(self.base.index + len(self.entries))

    def term_at(self, index: EntryIndex) -> Term | None:
        if index == self.base.index:
            return self.base.term
        if self.base.index < index <= self.last_index:
            return self.entry(index).term
        return None

    def end_within(self, start: EntryIndex, end: EntryIndex, bytes_max: int) -> EntryIndex:
        stop = start + 1
        size_bytes = self.entry(start).size_bytes
        while stop < end and size_bytes + self.entry(stop).size_bytes <= bytes_max:
            size_bytes += self.entry(stop).size_bytes
            stop += 1
        return EntryIndex(stop)

    def snapshot(self) -> Snapshot | None:
        return self.base if self.base.index else None

    def entry(self, index: int) -> Entry:
        return self.entries[index - self.base.index - 1]

    def read(self, start: int, end: int) -> list[Entry]:
        assert start > self.base.index
        return self.entries[start - self.base.index - 1 : end - self.base.index - 1]

    def truncate(self, start: int) -> None:
        assert start > self.base.index
        del self.entries[start - self.base.index - 1 :]

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1, "entries are written without holes"
        self.entries.append(entry)

    def memberships(self) -> list[tuple[EntryIndex, Membership]]:
        steps = [(self.base.index, self.base.membership)]
        steps += [
            (entry.index, Membership.decode(entry.payload))
            for entry in self.entries
            if entry.kind is EntryKind.MEMBERSHIP
        ]
        return steps

    def compact(self, index: int) -> None:
        """Replace entries up to `index` by a snapshot."""
        term = self.term_at(EntryIndex(index))
        assert term is not None
        membership = [step for at, step in self.memberships() if at <= index][-1]
        kept = self.entries[index - self.base.index :]
        self.base, self.entries = Snapshot(EntryIndex(index), term, membership), kept


class Host:
    """One replica with its disk, its unfinished writes and what it has applied."""

    node: RaftNode

    def __init__(
        self,
        own: Member,
        membership: Membership,
        *,
        node_class: type[RaftNode] = RaftNode,
        settings: RaftSettings = SETTINGS,
        randrange: Callable[[int], int] = lambda count: count - 1,
    ) -> None:
        self.member = own
        self.stored = StoredLog()
        self.stored.base = structs.replace(self.stored.base, membership=membership)
        self.hard_state = HardState(Term(0), None, EntryIndex(0))
        self.doubt = (Term(0), EntryIndex(0))
        self._node_class = node_class
        self._settings = settings
        self._randrange = randrange
        self.is_up = False
        self.start()

    def start(self) -> None:
        """Start from what the disk holds."""
        assert not self.is_up
        self.is_up = True
        self.writes: deque[Write] = deque()
        self.applied: list[Entry] = []
        self.reads: list[ReadState] = []
        self.reads_refused: list[int] = []
        self.fetching: InstallSnapshot | None = None
        self.commit_seen = 0
        self.leaders_seen: list[tuple[Term, NodeId | None, Role]] = []
        self.node = self._node_class(
            member=self.member,
            log=self.stored,
            recovered=Recovered(
                self.hard_state,
                tuple(self.stored.memberships()),
                self.stored.base.index,
                self.doubt,
            ),
            settings=self._settings,
            randrange=self._randrange,
        )

    def crash(self) -> None:
        """Lose everything that was not synced."""
        self.is_up = False
        self.writes.clear()

    def take(self) -> tuple[list[Message], Effects | None]:
        """Take one bundle; messages come back, writes wait for `persist`."""
        effects = self.node.ready()
        if effects is None:
            return [], None
        if effects.write is not None:
            self.writes.append(effects.write)
        messages = list(effects.messages)
        messages += [
            order.with_entries(self.stored.read(order.prev_index + 1, order.end))
            for order in effects.replications
        ]
        if effects.apply_end > effects.apply_start:
            self.applied += self.stored.read(effects.apply_start, effects.apply_end)
            self.node.applied(EntryIndex(effects.apply_end - 1))
        self.reads += effects.reads
        self.reads_refused += effects.reads_refused
        self.fetching = effects.snapshot_wanted or self.fetching
        if effects.leadership is not None:
            change = effects.leadership
            self.leaders_seen.append((change.term, change.leader, change.role))
        return messages, effects

    def persist(self) -> None:
        """Carry out the oldest unfinished write and report it."""
        write = self.writes.popleft()
        self.carry_out(write, entries=len(write.entries))
        self.node.persisted(write.mark)

    def carry_out(self, write: Write, *, entries: int) -> None:
        """Put a write on disk, or a part of it: its hard state and its first entries."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.snapshot is not None:
            self.stored.base, self.stored.entries = write.snapshot, []
        if write.truncate_from is not None:
            self.stored.truncate(write.truncate_from)
        for one in write.entries[:entries]:
            self.stored.append(one)


class Group:
    """Hosts and the messages between them, for tests that decide every step."""

    def __init__(
        self,
        *nodes: int,
        node_class: type[RaftNode] = RaftNode,
        settings: RaftSettings = SETTINGS,
    ) -> None:
        self._node_class = node_class
        self._settings = settings
        self.hosts: dict[int, Host] = {}
        self.wire: list[Message] = []
        self.delivered: list[Message] = []
        self.cut: set[int] = set()
        """Nodes that no message reaches or leaves."""
        for node in nodes:
            self.add(member(node), voters(*nodes))

    def add(self, own: Member, membership: Membership) -> Host:
        host = Host(own, membership, node_class=self._node_class, settings=self._settings)
        self.hosts[own.node] = host
        return host

    def __getitem__(self, node: int) -> RaftNode:
        return self.hosts[node].node

    def flush(self, *nodes: int) -> None:
        """Take all bundles, without syncing anything."""
        for node in nodes or self.hosts:
            host = self.hosts[node]
            while host.is_up:
                messages, effects = host.take()
                if effects is None:
                    break
                self.wire += messages

    def sync(self, *nodes: int) -> None:
        """Finish all writes, and those that follow from them."""
        for node in nodes or self.hosts:
            host = self.hosts[node]
            self.flush(node)
            while host.is_up and host.writes:
                host.persist()
                self.flush(node)

    def deliver(self) -> None:
        """Deliver what is on the wire now; what it causes stays for later."""
        wire, self.wire = self.wire, []
        for message in wire:
            host = self.hosts.get(message.to)
            if self.cut & {message.sender, message.to} or host is None or not host.is_up:
                continue
            self.delivered.append(message)
            host.node.step(message)

    def settle(self) -> None:
        """Sync and deliver until nothing happens any more."""
        self.sync()
        while self.wire:
            self.deliver()
            self.sync()

    def tick(self, *nodes: int, count: int = 1) -> None:
        for node in nodes:
            for _ in range(count):
                self[node].tick()

    def beat(self, *nodes: int) -> None:
        """One heartbeat of each node (all that are up by default) and everything it causes."""
        for node in nodes or [node for node, host in self.hosts.items() if host.is_up]:
            if self[node].role is Role.LEADER:
                self.tick(node)
        self.settle()

    def expire_leases(self, *nodes: int) -> None:
        """Let followers forget the leader as far as votes go, without campaigning."""
        for node in nodes:
            self[node]._elapsed = self._settings.election_ticks

    def elect(self, node: int) -> None:
        """Make a node the leader by letting its timeout pass first."""
        others = [n for n, host in self.hosts.items() if host.is_up and n != node]
        self.expire_leases(*(n for n in others if n not in self.cut))
        self.tick(node, count=2 * self._settings.election_ticks - 1)
        self.settle()
        assert self[node].role is Role.LEADER, f"node {node} is {self[node].role.name}"

    def propose(self, node: int, payload: bytes) -> int:
        return self[node].propose(EntryKind.RECORDS, payload)

    def crash(self, node: int) -> None:
        self.hosts[node].crash()

    def restart(self, node: int) -> None:
        self.hosts[node].start()

    def log(self, node: int) -> list[tuple[int, int]]:
        """Index and term of every entry on a node's disk."""
        return [(one.index, one.term) for one in self.hosts[node].stored.entries]

    def applied(self, node: int) -> list[bytes]:
        """Payloads of the records that a node has applied."""
        return [
            bytes(one.payload) for one in self.hosts[node].applied if one.kind is EntryKind.RECORDS
        ]

    def sent(self, kind: type) -> list[Message]:
        """Messages of one type that are on the wire."""
        return [message for message in self.wire if isinstance(message, kind)]


def led(
    *nodes: int, node_class: type[RaftNode] = RaftNode, settings: RaftSettings = SETTINGS
) -> Group:
    """A group that node 1 leads, with nothing under way."""
    group = Group(*nodes, node_class=node_class, settings=settings)
    group.elect(1)
    group.beat(1)
    return group


def seeded(seed: int) -> Callable[[int], int]:
    return Random(seed).randrange
