"""Random histories of a group: faults of all kinds, then peace, from one seed each.

The name of a failing test holds its seed; `Storm(seed, nodes).run(3000)` repeats it exactly.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from penstock.errors import PenstockError
from penstock.ids import EntryIndex
from penstock.raft import EntryKind, Member, Membership, Message, RaftNode, RaftSettings, Role

from .group import Host, member, voters
from .referee import Referee

SETTINGS = RaftSettings(
    election_ticks=6, append_bytes_max=40, inflight_messages_max=4, inflight_bytes_max=120
)


class Storm:
    """Drives a group through a random history and checks every step."""

    def __init__(self, seed: int, nodes: int, node_class: type[RaftNode] = RaftNode) -> None:
        self.random = Random(seed)
        self.referee = Referee()
        self.node_class = node_class
        self.wire: list[Message] = []
        self.cuts: set[tuple[int, int]] = set()
        self.counts = dict.fromkeys(
            ("committed", "crashes", "wipes", "snapshots", "memberships", "reads", "elections"), 0
        )
        self._context = 0
        self._floors: dict[tuple[int, int], int] = {}
        """The commit index that a read must not fall short of."""
        self._incarnation = 1
        self.hosts: dict[int, Host] = {}
        for node in range(1, nodes + 1):
            self._add(node, 1, voters(*range(1, nodes + 1)))

    def _add(self, node: int, incarnation: int, membership: Membership) -> None:
        self.hosts[node] = Host(
            member(node, incarnation),
            membership,
            node_class=self.node_class,
            settings=SETTINGS,
            randrange=Random(self.random.random()).randrange,
        )

    def run(self, events: int) -> None:
        """Let faults rain, then require that the group heals."""
        actions = [
            (self.tick, 12),
            (self.deliver, 60),
            (self.persist, 30),
            (self.take, 40),
            (self.propose, 12),
            (self.read, 4),
            (self.drop, 3),
            (self.repeat, 3),
            (self.crash, 0.3),
            (self.restart, 2),
            (self.toggle_cut, 0.4),
            (self.isolate, 0.4),
            (self.heal, 0.7),
            (self.transfer, 0.5),
            (self.change_membership, 2),
            (self.fetch_snapshot, 4),
            (self.compact, 2),
            (self.break_link, 0.5),
            (self.wipe, 1),
        ]
        functions, weights = zip(*actions, strict=True)
        for action in self.random.choices(functions, weights, k=events):
            action()
        self.make_peace()

    # One event each.

    def _some(self) -> Host | None:
        up = [host for host in self.hosts.values() if host.is_up]
        return self.random.choice(up) if up else None

    def _leader(self) -> Host | None:
        leaders = [h for h in self.hosts.values() if h.is_up and h.node.role is Role.LEADER]
        return self.random.choice(leaders) if leaders else None

    def _after(self, host: Host) -> None:
        """Nothing is taken; the state alone is checked."""
        self.referee.check(host, self.hosts, None)

    def tick(self) -> None:
        if host := self._some():
            host.node.tick()
            self._after(host)

    def take(self) -> None:
        if host := self._some():
            self._take(host)

    def _take(self, host: Host) -> bool:
        messages, effects = host.take()
        self.wire += messages
        self.referee.check(host, self.hosts, effects)
        for message in messages:
            self.referee.check_sent(host, message)
        if effects is not None and effects.leadership is not None:
            self.counts["elections"] += effects.leadership.role is Role.LEADER
        for read in host.reads:
            self.counts["reads"] += 1
            floor = self._floors.pop((host.member.node, read.context))
            assert read.index >= floor, "a stale read was served"
        host.reads.clear()
        return effects is not None

    def deliver(self) -> None:
        if self.wire:
            self._deliver(self.random.randrange(len(self.wire)))

    def _deliver(self, position: int) -> None:
        self.wire[position], self.wire[-1] = self.wire[-1], self.wire[position]
        message = self.wire.pop()
        host = self.hosts[message.to]
        if host.is_up and (message.sender, message.to) not in self.cuts:
            host.node.step(message)
            self._after(host)

    def drop(self) -> None:
        if self.wire:
            self.wire.pop(self.random.randrange(len(self.wire)))

    def repeat(self) -> None:
        if self.wire and len(self.wire) < 200:
            self.wire.append(self.random.choice(self.wire))

    def persist(self) -> None:
        host = self._some()
        if host and host.writes:
            host.persist()
            self._after(host)

    def propose(self) -> None:
        if leader := self._leader():
            payload = self.random.randbytes(self.random.randrange(30))
            self._try(leader, lambda: leader.node.propose(EntryKind.RECORDS, payload))

    def read(self) -> None:
        host = self._some()
        if host and (host.node.leader is not None):
            self._context += 1
            self._floors[host.member.node, self._context] = len(self.referee.committed)
            self._try(host, lambda: host.node.read_index(self._context))

    def _try(self, host: Host, action: Callable[[], object]) -> None:
        try:
            action()
        except PenstockError:
            return
        self._after(host)

    def crash(self) -> None:
        host = self._some()
        if host is None or len(self._down()) > len(self.hosts) // 2:
            return
        self.counts["crashes"] += 1
        if host.writes and self.random.random() < 0.5:
            # A part of the write in progress may have reached the disk.
            write = host.writes[0]
            host.carry_out(write, entries=self.random.randint(0, len(write.entries)))
        host.crash()

    def _down(self) -> list[Host]:
        return [host for host in self.hosts.values() if not host.is_up]

    def restart(self) -> None:
        if down := self._down():
            self._start(self.random.choice(down))

    def _start(self, host: Host) -> None:
        host.start()
        host.commit_seen = host.node.commit_index

    def toggle_cut(self) -> None:
        link = tuple(self.random.sample(sorted(self.hosts), 2)) if len(self.hosts) > 1 else None
        if link:
            self.cuts ^= {(link[0], link[1])}

    def isolate(self) -> None:
        """Cut a leader off, or anyone when there is none."""
        if host := self._leader() or self._some():
            lone = host.member.node
            self.cuts |= {(lone, n) for n in self.hosts} | {(n, lone) for n in self.hosts}

    def heal(self) -> None:
        self.cuts.clear()

    def transfer(self) -> None:
        if leader := self._leader():
            to = self.random.choice(sorted(self.hosts))
            self._try(leader, lambda: leader.node.transfer_leader(member(to).node))

    def break_link(self) -> None:
        if leader := self._leader():
            leader.node.unreachable(member(self.random.choice(sorted(self.hosts))).node)

    def change_membership(self) -> None:
        if leader := self._leader():
            now = leader.node.membership
            host = self.random.choice(sorted(self.hosts.values(), key=lambda h: h.member))
            options = [now.with_learner(host.member), now.with_voter(host.member)]
            if len(now.voters) > 2:
                options.append(now.without(host.member.node))
            choice = self.random.choice(options)
            if len(choice.voters) < min(2, len(self.hosts)) or not self._is_safe(leader, choice):
                return
            before = leader.node.last_index
            self._try(leader, lambda: leader.node.propose_membership(choice))
            self.counts["memberships"] += leader.node.last_index > before

    def _is_safe(self, leader: Host, choice: Membership) -> bool:
        """Operators keep a majority that has its disks, and make no voter of one far behind."""
        caught_up = {
            status.node
            for status in leader.node.followers()
            if status.match >= leader.node.commit_index - 3
        } | {leader.member.node}
        added = set(choice.voters) - set(leader.node.membership.voters)
        present = sum(host.member in choice.voters for host in self.hosts.values())
        return present >= choice.quorum and all(
            one.node in caught_up and one in leader.node.membership.members for one in added
        )

    def fetch_snapshot(self) -> None:
        host = self._some()
        if host is None or host.fetching is None:
            return
        offer, host.fetching = host.fetching, None
        if self.random.random() < 0.2:
            host.node.snapshot_failed(offer)
        elif host.node.snapshot_fetched(offer):
            self.counts["snapshots"] += 1
        self._after(host)

    def compact(self) -> None:
        host = self._some()
        if host is None or host.writes or host.node._log._is_restoring:
            return
        applied = host.node._applied
        if applied > host.stored.base.index + 2:
            host.stored.compact(self.random.randint(host.stored.base.index + 1, applied - 1))

    def wipe(self) -> None:
        """Lose a disk. Nobody survives losing two at a time, so all others must be whole."""
        leader = self._leader()
        if leader is None or self._down() or len(self.hosts) < 3:
            return
        wanted = len(self.referee.committed)
        whole = {
            host.member
            for host in self.hosts.values()
            if host.stored.last_index >= wanted
            and (
                wanted <= host.stored.base.index
                or host.stored.term_at(EntryIndex(wanted)) == self.referee.committed[-1][0]
            )
        }
        # An unfinished change may need exactly the member that is lost; that is no minority.
        is_final = len({host.node.membership for host in self.hosts.values()}) == 1
        if not is_final or not whole == set(leader.node.membership.voters) == self._all():
            return
        self.counts["wipes"] += 1
        victim = self.random.choice(sorted(self.hosts))
        self._incarnation += 1
        self.referee.graves.append(self.hosts[victim])
        self._add(victim, self._incarnation, Membership())

    def _all(self) -> set[Member]:
        return {host.member for host in self.hosts.values()}

    # After the storm.

    def make_peace(self) -> None:
        """Without faults the group elects a leader, and all its members agree on everything."""
        self.cuts.clear()
        for host in self._down():
            self._start(host)
        self._calm(60)
        leader = self._leader()
        assert leader is not None, "no leader after the faults stopped"
        leader.node.propose(EntryKind.RECORDS, b"peace")
        self._calm(30)
        members = set(leader.node.membership.members) & self._all()
        assert b"peace" in [payload for _, payload in self.referee.committed], "no progress"
        for host in self.hosts.values():
            if host.member in members:
                assert host.node.commit_index == leader.node.commit_index, "a member lags"
        self.counts["committed"] = len(self.referee.committed)

    def _calm(self, rounds: int) -> None:
        """Time passes; everything is delivered, synced and fetched in order."""
        for _ in range(rounds):
            for host in self.hosts.values():
                host.node.tick()
            for _ in range(200):
                if not self._calm_step():
                    break

    def _calm_step(self) -> bool:
        is_busy = False
        for host in self.hosts.values():
            while self._take(host):
                is_busy = True
            while host.writes:
                host.persist()
                self._after(host)
                is_busy = True
            if host.fetching is not None:
                offer, host.fetching = host.fetching, None
                host.node.snapshot_fetched(offer)
                is_busy = True
        while self.wire:
            self._deliver(0)
            is_busy = True
        return is_busy


@pytest.mark.parametrize(
    ("nodes", "seed"),
    [(3, seed) for seed in range(60)] + [(5, seed) for seed in range(24)] + [(1, 0), (2, 0)],
)
def test_no_random_history_breaks_an_invariant(nodes: int, seed: int) -> None:
    Storm(seed, nodes).run(3000)


def test_random_histories_reach_every_kind_of_event() -> None:
    totals: Counter[str] = Counter()
    for seed in range(10):
        storm = Storm(seed, nodes=3)
        storm.run(2500)
        totals.update(storm.counts)

    assert all(totals[kind] > 0 for kind in storm.counts), totals
