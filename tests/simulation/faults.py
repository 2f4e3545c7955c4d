"""Everything that can go wrong, at random and from the seed.

Each history draws which kinds of faults it has and how often they come, so that some histories are
nothing but crashes and others nothing but a bad network. No fault takes more than a minority of
memories: what a majority has forgotten nobody can bring back.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import Corruption, PenstockError
from penstock.ids import NodeId
from penstock.raft import Member, Membership
from tests.simulation.strikes import Strikes

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.world import World


class Faults(Strikes):
    """Draws faults until `end`."""

    def __init__(self, world: "World") -> None:
        interval_us = int(100_000 + 1_000_000 * world.random.random() ** 2)
        super().__init__(world.schedule, world.random, interval_us)
        self._world = world
        self._everyone = True
        actions: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3),
            (self._cut_power, 3),
            (self._stop_at_the_disk, 5),
            (self._stop_everyone, 0.7),
            (self._pause, 3),
            (self._cut_link, 4),
            (self._isolate, 3),
            (self._split, 2),
            (self._spoil_network, 3),
            (self._break_link, 2),
            (self._lull, 8),
            (self._transfer, 3),
            (self._change_members, 2),
            (self._wipe, 1),
            (self._fail_sync, 1),
            (self._fill_disk, 1),
            (self._slow_disk, 2),
            (self._flip_bit, 0.7),
            (self.rot_the_end, 1),
            (self._jump_clock, 2),
        ]
        self._choose(actions)
        for node in world.nodes.values():
            node.on_down = self._went_down
            node.clock.rate = 1 + 0.1 * (self._random.random() - 0.5)

    def begin(self) -> None:
        """Let faults happen from now on."""
        random = self._random.random
        network = self._world.network
        network.delay_us = 200 + int(2_000 * random() ** 3)
        if random() < 0.7:
            network.loss = 0.05 * random()
            network.repetition = 0.05 * random()
            network.slowness = 0.1 * random()
        self._begin_strikes()

    def end(self) -> None:
        """Stop all faults and take back those that last."""
        self._is_over = True
        self._everyone = True
        self._speak()
        network = self._world.network
        network.cuts.clear()
        network.loss = network.repetition = network.slowness = 0.0
        network.delay_us = 300
        for node in self._world.nodes.values():
            node.machine.wakes_us = 0
            node.disk.run_on()
            node.disk._syncs_until_failure = 0
            node.disk.capacity_bytes = None
            node.disk_us = 300
            node.cuts_power = False
            node.start()
        self.repair()

    def repair(self) -> None:
        """Do for replicas that are closed or rotten what an operator does."""
        for node in list(self._world.nodes.values()):
            self._look_for_loss(node)
            if node.is_unfit or node.is_doomed:
                if self._may_lose(node):
                    self._replace(node)
            elif node.log is not None and node.log.failure is not None:
                node.cuts_power = True
                node.stop()
                node.start()
            elif not node.is_on:
                node.start()

    def wants_everyone(self) -> bool:
        """Whether all nodes shall be voters now."""
        return self._everyone

    def _some(self) -> "Node | None":
        on = [node for node in self._world.nodes.values() if node.is_on]
        if not on:
            return None
        leader = self._world.leader()
        return leader if leader and self._random.random() < 0.4 else self._random.choice(on)

    # The process and its machine.

    def _kill(self) -> None:
        if node := self._some():
            self.counts["kill"] += 1
            node.stop()

    def _cut_power(self) -> None:
        if node := self._some():
            self.counts["power cut"] += 1
            node.cuts_power = True
            node.stop()

    def _stop_at_the_disk(self) -> None:
        """Stop a machine between two operations of its disk, soon."""
        if node := self._some():
            self.counts["stop between disk operations"] += 1
            node.cuts_power = self._random.random() < 0.6
            node.disk.stop_before(int(30 * self._random.random() ** 2))

    def _stop_everyone(self) -> None:
        self.counts["everyone stops"] += 1
        is_power = self._random.random() < 0.6
        for node in self._world.nodes.values():
            if node.is_on:
                node.cuts_power = is_power
                node.stop()

    def _went_down(self, node: "Node") -> None:
        """Start a machine again after a while; recovery may be cut short, too."""
        if self._is_over:
            return
        if self._random.random() < 0.5:
            for other in self._world.nodes.values():
                other.soon(other.lose_link, node.member.node)
        longest_us = 1_500_000 if self._random.random() < 0.2 else 200_000
        self._later(longest_us * self._random.random(), self._start, node)

    def _start(self, node: "Node") -> None:
        if self._world.nodes[node.name] is not node or node.is_on or node.is_unfit:
            return
        if self._random.random() < 0.3:
            self.counts["stop during recovery"] += 1
            node.cuts_power = self._random.random() < 0.6
            node.disk.stop_before(int(40 * self._random.random() ** 2))
        node.clock.rate = 1 + 0.1 * (self._random.random() - 0.5)
        node.start()

    def _pause(self) -> None:
        if node := self._some():
            self.counts["pause"] += 1
            pause_us = 800_000 * self._random.random() ** 2
            node.machine.wakes_us = self._world.schedule.now_us + int(pause_us)

    def _jump_clock(self) -> None:
        if node := self._some():
            self.counts["clock jump"] += 1
            if (books := self._world.referee.books) is not None:
                books.latest_ms = max(books.latest_ms, node.clock.now_ms())
            node.clock.jump(int(60_000 * (self._random.random() - 0.5)))

    # The network.

    def _for_a_while(self, undo: Callable[[], None]) -> None:
        self._later(100_000 + 900_000 * self._random.random() ** 2, undo)

    def _cut(self, cuts: set[tuple[int, int]]) -> None:
        network = self._world.network
        network.cuts |= cuts
        self._for_a_while(lambda: network.cuts.difference_update(cuts))

    def _cut_link(self) -> None:
        names = list(self._world.nodes)
        if len(names) > 1:
            self.counts["one-way cut"] += 1
            one, other = self._random.sample(names, 2)
            self._cut({(one, other)})

    def _isolate(self) -> None:
        if node := self._some():
            self.counts["isolation"] += 1
            others = [name for name in self._world.nodes if name != node.name]
            self._cut(
                {pair for other in others for pair in ((node.name, other), (other, node.name))}
            )

    def _split(self) -> None:
        names = list(self._world.nodes)
        if len(names) > 2:
            self.counts["split"] += 1
            some = set(self._random.sample(names, len(names) // 2))
            self._cut({(a, b) for a in names for b in names if (a in some) != (b in some)})

    def _spoil_network(self) -> None:
        self.counts["bad network"] += 1
        network = self._world.network
        before = (network.loss, network.repetition, network.slowness)
        network.loss = 0.4 * self._random.random()
        network.repetition = 0.4 * self._random.random()
        network.slowness = 0.5 * self._random.random()

        def undo() -> None:
            network.loss, network.repetition, network.slowness = before

        self._for_a_while(undo)

    def _break_link(self) -> None:
        nodes = self._world.nodes
        if len(nodes) > 1:
            self.counts["broken link"] += 1
            one, other = self._random.sample(list(nodes), 2)
            nodes[one].soon(nodes[one].lose_link, NodeId(other))
            nodes[other].soon(nodes[other].lose_link, NodeId(one))

    def _lull(self) -> None:
        """Let all clients be silent for a while, so that the group may rest."""
        self.counts["lull"] += 1
        for client in self._world.callers:
            client.is_stopping = True
        self._later(400_000 + 1_600_000 * self._random.random(), self._speak)

    def _speak(self) -> None:
        for client in self._world.callers:
            client.is_stopping = False

    # The group.

    def _transfer(self) -> None:
        leader = self._world.leader()
        if leader is None or leader.log is None:
            return
        to = NodeId(self._random.choice(list(self._world.nodes)))
        leader.soon(self._hand_over, leader, to)

    def _hand_over(self, leader: "Node", to: NodeId) -> None:
        assert leader.log is not None
        try:
            leader.log.raft.transfer_leader(to)
        except PenstockError:
            return
        self.counts["leadership transfer"] += 1
        if (books := self._world.referee.books) is not None:
            # What waits to be proposed is refused, and the handover may come to nothing.
            books.may_lose_leases = True
        leader.log._pump()

    def _change_members(self) -> None:
        """Take a voter out for a while; the steward brings it back."""
        leader = self._world.leader()
        if leader is None or leader.log is None or len(self._world.nodes) < 3:
            return
        now = leader.log.raft.membership
        gone = self._random.choice(list(self._world.nodes))
        wanted = [member for member in now.voters if member.node != gone]
        if len(wanted) < 2 or not self._is_safe(Membership.of(wanted)):
            return
        self._everyone = False
        leader.soon(self._world.take_step, leader, wanted)
        self._for_a_while(self._want_everyone)

    def _want_everyone(self) -> None:
        self._everyone = True

    # The disk.

    def _fail_sync(self) -> None:
        if node := self._some():
            self.counts["failed sync"] += 1
            node.disk.fail_sync(int(5 * self._random.random()))
            self._for_a_while(lambda: self._reboot(node))

    def _reboot(self, node: "Node") -> None:
        """Restart a machine whose replica is closed; its page cache goes with it."""
        if node.log is not None and node.log.failure is not None and not node.is_unfit:
            node.cuts_power = True
            node.stop()

    def _fill_disk(self) -> None:
        if node := self._some():
            self.counts["full disk"] += 1
            if (books := self._world.referee.books) is not None:
                books.may_lose_leases = True
            disk = node.disk
            disk.tears_when_full = self._random.random() < 0.5
            disk.capacity_bytes = disk.used_bytes() + int(2_000 * self._random.random())

            def undo() -> None:
                disk.capacity_bytes = None

            self._for_a_while(undo)

    def _slow_disk(self) -> None:
        if node := self._some():
            self.counts["slow disk"] += 1
            node.disk_us = int(20_000 * self._random.random())

            def undo() -> None:
                node.disk_us = 300

            self._for_a_while(undo)

    def _flip_bit(self) -> None:
        node = self._some()
        if node is None or not self._may_lose(node):
            return
        files = [path for path in node.disk.files(node.directory) if node.disk.content(path)]
        if not files:
            return
        path = self._random.choice(files)
        position = int(len(node.disk.content(path)) * self._random.random())
        self.counts["flipped bit"] += 1
        node.is_rotten = True
        node.disk.flip_bit(path, position, int(8 * self._random.random()))
        self._later(500_000 * self._random.random(), self._replace_if_rotten, node)
        if self._random.random() < 0.7:
            node.stop()

    def rot_the_end(self) -> None:
        """Kill a node and flip a bit in its newest entry: that is cut, and has to come back.

        A node that has to wait for it too long is replaced; in the end none is.
        """
        node = self._some()
        # Of another bit that was flipped there, nothing would be known when this one is back.
        if node is None or node.is_rotten or not self._may_lose(node):
            return
        if (newest := node.newest_entry()) is None:
            return
        path, position = newest
        assert node.log is not None
        self.counts["rot at the end"] += 1
        node.lost_index = node.log.log.written_index - 1
        node.is_rotten = True
        node.stop()
        node.disk.flip_bit(path, position, int(8 * self._random.random()))
        self._later(500_000 * self._random.random(), self._replace_if_rotten, node)

    def _look_for_loss(self, node: "Node") -> None:
        """Count a node as sound that has got back what it lost.

        A checkpoint vouches for what is not looked at again: rot there needs a scrub or a new disk,
        and where it is met before that, the replica is closed as damaged.
        """
        if node.log is not None and isinstance(node.log.failure, Corruption):
            node.lost_index = None
        log = node.log.log if node.log is not None and node.log.failure is None else None
        if log is None or node.lost_index is None or log.written_index <= node.lost_index:
            return
        with suppress(Corruption):
            if node.lost_index >= log.first_index:
                log.payload_at(node.lost_index)
            node.is_rotten = False
        node.lost_index = None

    def _replace_if_rotten(self, node: "Node") -> None:
        self._look_for_loss(node)
        if self._world.nodes[node.name] is node and node.is_rotten:
            if self._may_lose(node):
                self._replace(node)
            else:
                self._later(200_000, self._replace_if_rotten, node)

    def _wipe(self) -> None:
        node = self._some()
        if node is not None and self._may_lose(node):
            self.counts["wiped disk"] += 1
            self._replace(node)

    def _replace(self, node: "Node") -> None:
        """Put a machine with an empty disk in a node's place."""
        if node.is_on:
            node.machine.stop()
            node.partition = node.log = None
        self._world.referee.graves.append(node)
        new = self._world.new_node(node.name)
        new.on_down = self._went_down
        new.start()

    def _may_lose(self, lost: "Node") -> bool:
        """Whether all memberships that may be in force keep a majority without this memory."""
        sound = [
            node.member
            for node in self._world.nodes.values()
            if node is not lost and not node.is_rotten and not node.is_unfit
        ]
        memberships = [
            membership
            for node in self._world.nodes.values()
            if node.log is not None
            for _, membership in node.log.raft._memberships._steps
        ]
        others = [node for node in self._world.nodes.values() if node is not lost]
        return all(node.log is not None for node in others) and all(
            self._is_majority(sound, membership) for membership in memberships
        )

    def _is_safe(self, wanted: Membership) -> bool:
        sound = [
            node.member
            for node in self._world.nodes.values()
            if not node.is_rotten and not node.is_unfit
        ]
        return self._is_majority(sound, wanted)

    def _is_majority(self, sound: list[Member], membership: Membership) -> bool:
        return sum(member in membership.voters for member in sound) >= membership.quorum
