"""What goes wrong in a fleet, at random and from the seed."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from penstock.testing import SimDisk
from tests.simulation.fleet.node import DATA
from tests.simulation.strikes import Strikes

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet
    from tests.simulation.fleet.node import FleetNode

_SPLIT_INTERVAL_US = 2_000_000
_FULL_DISK_SHARE = 0.3


class Weather(Strikes):
    """Draws faults until `end`."""

    def __init__(self, fleet: "Fleet") -> None:
        interval_us = int(400_000 + 4_000_000 * fleet.random.random() ** 2)
        super().__init__(fleet.schedule, fleet.random, interval_us)
        self._fleet = fleet
        # A fleet that is filled slowly is seldom whole.
        self._tries = 60 if fleet.filling.is_slow else 20
        actions: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3),
            (self._cut_power, 3),
            (self._stop_at_the_disk, 5),
            (self._stop_everyone, 2),
            (self._retire, 2),
            (self._pause, 2),
            (self._cut_link, 3),
            (self._isolate, 3),
            (self._break_link, 2),
            (self._slow_network, 2),
            (self._slow_disk, 2),
            (self._fail_sync, 1),
            (self._jump_clock, 1),
        ]
        if fleet.loses_memory:
            actions += [(self._wipe, 3), (self._flip_bit, 3)]
        self._choose(actions)
        for node in fleet.nodes.values():
            node.clock.rate = 1 + 0.1 * (self._random.random() - 0.5)
        # Disks run full by chance of its own: all else is drawn as if they did not.
        self._chance = Random(f"full disks {fleet.seed}")
        self._fills_disks = self._chance.random() < _FULL_DISK_SHARE
        self._full_interval_us = int(500_000 + 4_000_000 * self._chance.random())
        self._full_disks: list[SimDisk] = []

    def begin(self) -> None:
        """Let faults happen from now on."""
        self._begin_strikes()
        if self._fills_disks:
            self._later(self._full_interval_us, self._fill_disk)
        if self._fleet.filling.is_slow:
            self._later(_SPLIT_INTERVAL_US, self._split)

    def end(self) -> None:
        """Stop all faults and take back those that last."""
        self._is_over = True
        self._fleet.is_quiet = False
        wires = self._fleet.wires
        wires.cuts.clear()
        wires.slowness = 0.0
        wires.delay_us = 300
        for node in self._fleet.nodes.values():
            node.machine.wakes_us = 0
            node.disk.run_on()
            node.disk._syncs_until_failure = 0
            node.disk_us = 300
            node.cuts_power = False
        for disk in list(self._full_disks):
            self._make_room(disk)
        self._set_clocks()
        self.repair()

    def _set_clocks(self) -> None:
        """Let all machines have one time again, that of the fastest."""
        now_ms = max(node.clock.now_ms() for node in self._fleet.nodes.values())
        for node in self._fleet.nodes.values():
            node.clock.jump(now_ms - node.clock.now_ms())

    def repair(self) -> None:
        """Do for nodes that are down or have lost a log what an operator does."""
        self._fleet.follow_removals()
        self._fleet.redirect_newcomers()
        for node in list(self._fleet.nodes.values()):
            if node.is_rotten:
                self._fleet.wipe(node)
            elif node.has_failed:
                node.cuts_power = True
                node.stop()
            node.start()

    def _some(self) -> "FleetNode | None":
        on = [node for node in self._fleet.nodes.values() if node.is_on]
        return self._random.choice(on) if on else None

    def _pair(self) -> tuple[int, int]:
        one, other = self._random.sample(sorted(self._fleet.nodes), 2)
        return one, other

    # Machines.

    def _stop(self, node: "FleetNode", *, cuts_power: bool) -> None:
        node.cuts_power = cuts_power
        node.stop()
        self._later(3_000_000 * self._random.random() ** 2, self._start, node)

    def _start(self, node: "FleetNode") -> None:
        if self._fleet.nodes.get(node.name) is node:
            node.start()

    def _kill(self) -> None:
        if node := self._some():
            self.counts["kill"] += 1
            self._stop(node, cuts_power=False)

    def _cut_power(self) -> None:
        if node := self._some():
            self.counts["power cut"] += 1
            self._stop(node, cuts_power=True)

    def _stop_at_the_disk(self) -> None:
        """Stop a machine between two operations of its disk, soon."""
        if node := self._some():
            self.counts["stop between disk operations"] += 1
            node.cuts_power = self._random.random() < 0.6
            node.disk.stop_before(int(60 * self._random.random() ** 2))
            self._later(1_000_000 + 3_000_000 * self._random.random(), self._restart, node)

    def _restart(self, node: "FleetNode") -> None:
        node.disk.run_on()
        self._start(node)

    def _stop_everyone(self) -> None:
        self.counts["everyone stops"] += 1
        cuts_power = self._random.random() < 0.6
        for node in self._fleet.nodes.values():
            self._stop(node, cuts_power=cuts_power)

    def _retire(self) -> None:
        if node := self._some():
            self.counts["stop in good order"] += 1
            node.retire()
            self._later(3_000_000 + 3_000_000 * self._random.random(), self._start, node)

    def _pause(self) -> None:
        if node := self._some():
            self.counts["pause"] += 1
            pause_us = int(2_000_000 * self._random.random())
            node.machine.wakes_us = self._fleet.schedule.now_us + pause_us

    # The network.

    def _cut_link(self) -> None:
        pair = self._pair()
        self.counts["one-way cut"] += 1
        self._fleet.wires.cuts.add(pair)
        self._later(4_000_000 * self._random.random(), self._fleet.wires.cuts.discard, pair)

    def _isolate(self) -> None:
        if node := self._some():
            self.counts["isolation"] += 1
            cuts = {
                pair
                for other in self._fleet.nodes
                if other != node.name
                for pair in ((node.name, other), (other, node.name))
            }
            self._fleet.wires.cuts |= cuts
            self._later(6_000_000 * self._random.random(), self._heal, cuts)

    def _split(self) -> None:
        """Some of the nodes see nothing of the others for a while, again and again.

        Mostly it is those who are being filled with a log.
        """
        interval_us = _SPLIT_INTERVAL_US * (0.5 + self._random.random())
        self._later(interval_us, self._split)
        nodes = sorted(self._fleet.nodes)
        here = self._some_learners()
        if self._random.random() < 0.1:
            here = set(self._random.sample(nodes, len(nodes) // 2))
        if not here:
            return
        self.on_fault("split")
        self.counts["split"] += 1
        there = [node for node in nodes if node not in here]
        cuts = {pair for a in sorted(here) for b in there for pair in ((a, b), (b, a))}
        self._fleet.wires.cuts |= cuts
        self._later(interval_us * self._random.random(), self._heal, cuts)

    def _some_learners(self) -> set[int]:
        """Those who are being filled with one log, as far as anybody knows."""
        all_learners = [
            {int(learner.node) for learner in log.raft.membership.learners}
            for node in self._fleet.nodes.values()
            if node.broker is not None
            for _, log in sorted(node.broker.cluster.replicas.by_group.items())
            if log.raft.membership.learners
        ]
        return self._random.choice(all_learners) if all_learners else set()

    def _heal(self, cuts: set[tuple[int, int]]) -> None:
        self._fleet.wires.cuts -= cuts

    def _break_link(self) -> None:
        self.counts["broken link"] += 1
        self._fleet.wires.break_between(*self._pair())

    def _slow_network(self) -> None:
        self.counts["slow network"] += 1
        self._fleet.wires.delay_us = 200 + int(20_000 * self._random.random() ** 3)
        self._fleet.wires.slowness = 0.1 * self._random.random()

    # Disks and clocks.

    def _slow_disk(self) -> None:
        if node := self._some():
            self.counts["slow disk"] += 1
            node.disk_us = int(200_000 * self._random.random() ** 2)
            self._later(3_000_000 * self._random.random(), setattr, node, "disk_us", 300)

    def _fill_disk(self) -> None:
        """There is room for little more, and for nothing then, again and again."""
        self._later(self._full_interval_us * (0.2 + 1.6 * self._chance.random()), self._fill_disk)
        on = [node for node in self._fleet.nodes.values() if node.is_on]
        if not on:
            return
        self.on_fault("fill_disk")
        self.counts["full disk"] += 1
        disk = self._chance.choice(on).disk
        disk.tears_when_full = self._chance.random() < 0.5
        disk.capacity_bytes = disk.used_bytes() + int(20_000 * self._chance.random() ** 2)
        self._full_disks.append(disk)
        self._later(3_000_000 * self._chance.random(), self._make_room, disk)

    def _make_room(self, disk: SimDisk) -> None:
        if disk in self._full_disks:
            self._full_disks.remove(disk)
        disk.capacity_bytes = None

    def _fail_sync(self) -> None:
        if node := self._some():
            self.counts["failed sync"] += 1
            node.disk.fail_sync(int(10 * self._random.random()))
            self._later(1_000_000 + 2_000_000 * self._random.random(), self._replace_disk, node)

    def _replace_disk(self, node: "FleetNode") -> None:
        """Whoever sees that a log has failed starts the node again."""
        node.disk._syncs_until_failure = 0
        if node.has_failed or not node.is_on:
            node.cuts_power = True
            node.stop()
            self._start(node)

    def _wipe(self) -> None:
        """A machine loses its disk."""
        self._when_whole(self._wipe_one, self._tries)

    def _wipe_one(self, node: "FleetNode") -> None:
        self.counts["wiped disk"] += 1
        self._fleet.wipe(node)
        node.start()

    def _flip_bit(self) -> None:
        """A bit of a disk changes, and some time later its owner replaces the disk."""
        self._when_whole(self._flip_bit_of, self._tries)

    def _flip_bit_of(self, node: "FleetNode") -> None:
        files = [path for path in node.disk.files(DATA) if node.disk.content(path)]
        path = self._random.choice(files)
        position = int(len(node.disk.content(path)) * self._random.random())
        self.counts["flipped bit"] += 1
        node.is_rotten = True
        node.disk.flip_bit(path, position, int(8 * self._random.random()))
        if self._random.random() < 0.7:
            self._stop(node, cuts_power=False)
        self._later(8_000_000 * self._random.random(), self._replace_rotten, node)

    def _when_whole(self, act: "Callable[[FleetNode], None]", tries: int) -> None:
        """Do something to a machine once everyone has everything; users are silent until then.

        Then all others together miss nothing of what one holds.
        """
        is_sound = not any(node.is_rotten for node in self._fleet.nodes.values())
        self._fleet.is_quiet = False
        if is_sound and not self._fleet.what_is_missing():
            act(self._random.choice(list(self._fleet.nodes.values())))
        elif tries:
            self._fleet.is_quiet = True
            self._later(200_000, self._when_whole, act, tries - 1)

    def _replace_rotten(self, node: "FleetNode") -> None:
        if self._fleet.nodes.get(node.name) is node:
            self._fleet.wipe(node)
            node.start()

    def _jump_clock(self) -> None:
        if node := self._some():
            self.counts["clock jump"] += 1
            self._fleet.referee.shelf.clock_jumps(node.clock.now_ms())
            node.clock.jump(int(20_000 * (self._random.random() - 0.5)))
