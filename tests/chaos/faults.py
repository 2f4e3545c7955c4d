"""Faults at random, from a seed: each begins, lasts, and is undone."""

import heapq
import itertools
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.chaos.history import History, Place
from tests.chaos.upheavals import Upheavals
from tests.cluster_views import view_from
from tests.links import LinkedCluster

# A calm moment comes after this much trouble, so that there is progress to be endangered.
_TROUBLE_S = 25.0
_CALM_S = 6.0
_PAUSE_S = (0.5, 4.0)
_DURATION_S = (1.0, 8.0)
_FLAP_S = 0.4
_STUTTER_S = 0.15
_START_DEADLINE_S = 60.0

# Keeps the disk busy for as long as it runs: what others sync waits behind it.
_DISK_HOG = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        file.write(b"x" * 33_554_432)
        os.fsync(file.fileno())
"""

Undo = Callable[[], None]


class Faults:
    """Breaks a cluster, one fault after the other; several may last at the same time."""

    def __init__(
        self, cluster: LinkedCluster, places: list[Place], history: History, seed: int
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random.Random(seed)
        # Has a chance of its own: how often it looks must not change which faults come.
        self._upheavals = Upheavals(cluster, places, history, random.Random(seed))
        self._busy: set[int] = set()
        self._undo: list[tuple[float, int, Undo]] = []
        self._numbers = itertools.count()
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, tuple[int, Callable[[], Undo | None]]] = {
            "kill": (6, self._kill),
            "kill all": (1, self._kill_all),
            "restart": (2, self._restart),
            "rolling restart": (1, self._restart_all_in_turn),
            "wipe": (2, self._wipe),
            "move": (4, self._move),
            "suspend": (5, self._suspend),
            "stutter": (2, self._stutter),
            "isolate": (5, self._isolate),
            "cut link": (3, self._cut_link),
            "deaf link": (4, self._deafen_link),
            "flapping link": (2, self._flap_link),
            "slow link": (3, self._slow_link),
            "busy disk": (2, self._keep_disk_busy),
        }

    def run(self, seconds: float) -> None:
        """Break things for so long, then undo everything."""
        end_s = time.monotonic() + seconds
        calm_s = time.monotonic() + _TROUBLE_S
        while (now_s := time.monotonic()) < end_s:
            if now_s >= calm_s:
                self.undo_all()
                self._sleep(min(end_s, time.monotonic() + _CALM_S))
                calm_s = time.monotonic() + _TROUBLE_S
            self._begin_one()
            self._sleep(min(end_s, time.monotonic() + self._random.uniform(*_PAUSE_S)))
        self.undo_all()

    def _begin_one(self) -> None:
        names = list(self._kinds)
        weights = [self._kinds[name][0] for name in names]
        (name,) = self._random.choices(names, weights)
        undo = self._kinds[name][1]()
        if undo is not None:
            self.counts[name] += 1
            end_s = time.monotonic() + self._random.uniform(*_DURATION_S)
            heapq.heappush(self._undo, (end_s, next(self._numbers), undo))

    def _sleep(self, until_s: float) -> None:
        """Wait, and undo what has lasted long enough."""
        while (now_s := time.monotonic()) < until_s:
            next_s = self._undo[0][0] if self._undo else until_s
            if next_s <= now_s:
                heapq.heappop(self._undo)[2]()
            else:
                time.sleep(min(next_s, until_s) - now_s)

    def settle(self) -> None:
        """Wait until nothing that was begun goes on by itself."""
        self._upheavals.settle()

    def undo_all(self) -> None:
        """Repair everything and wait until all nodes serve."""
        while self._undo:
            heapq.heappop(self._undo)[2]()
        self._cluster.network.heal_all()
        for node in self._cluster.nodes.values():
            if node.is_running:
                node.resume()
        self._cluster.start()

    # Nodes.

    def _pick(self) -> int | None:
        """Choose a node that is well, as long as a majority of them is."""
        well = [node for node in self._cluster.nodes if node not in self._busy]
        if 2 * (len(well) - 1) <= len(self._cluster.nodes):
            return None
        node = self._random.choice(well)
        self._busy.add(node)
        return node

    def _hit(self, kind: str, node: int) -> None:
        """Measure how long the partitions that a node leads go without an acknowledgement."""
        for other in self._cluster.running:
            if other in self._busy and other != node:
                continue
            with suppress(OSError):
                for (topic, partition), leader in view_from(self._cluster[other]).leaders.items():
                    if leader == node:
                        self._history.probe(kind, Place(topic, partition))
                return

    def _kill(self) -> Undo | None:
        node = self._pick()
        if node is None:
            return None
        self._hit("kill", node)
        self._cluster[node].kill()
        return lambda: self._start(node)

    def _kill_all(self) -> Undo | None:
        if self._busy:
            return None
        self._busy |= set(self._cluster.nodes)
        self._cluster.kill()

        def undo() -> None:
            for node in self._cluster.nodes:
                self._start(node)

        return undo

    def _restart(self) -> Undo | None:
        node = self._pick()
        if node is None:
            return None
        self._hit("restart", node)
        is_bound = self._cluster[node].has_served
        code = self._cluster[node].stop()
        if code != 0 and is_bound:
            self._history.violate(f"node {node} did not stop well, but with {code}")
        return lambda: self._start(node)

    def _restart_all_in_turn(self) -> Undo | None:
        if self._busy or self._undo:
            return None
        for node in self._cluster.nodes:
            self._hit("rolling restart", node)
        self._upheavals.rolling_restart()
        return _nothing

    def _wipe(self) -> Undo | None:
        if self._busy or not self._upheavals.may_wipe():
            return None
        node = self._pick()
        assert node is not None, "all nodes are well"
        self._hit("wipe", node)
        self._upheavals.wipe(node)
        return lambda: self._start(node)

    def _move(self) -> Undo | None:
        place = self._upheavals.move()
        return None if place is None else lambda: self._upheavals.end_move(place)

    def _start(self, node: int) -> None:
        self._busy.discard(node)
        if not self._cluster[node].is_running:
            self._cluster[node].launch()

    def _suspend(self) -> Undo | None:
        node = self._pick()
        if node is None:
            return None
        self._hit("suspend", node)
        self._cluster[node].suspend()

        def undo() -> None:
            self._busy.discard(node)
            self._cluster[node].resume()

        return undo

    def _stutter(self) -> Undo | None:
        """Let a node run half of the time, as if its machine were overloaded."""
        node = self._pick()
        if node is None:
            return None

        def once() -> None:
            self._cluster[node].suspend()
            time.sleep(_STUTTER_S)
            self._cluster[node].resume()

        return self._repeat(once, _STUTTER_S, lambda: self._busy.discard(node))

    # Links.

    def _isolate(self) -> Undo | None:
        node = self._pick()
        if node is None:
            return None
        self._hit("isolate", node)
        self._cluster.network.isolate(node)

        def undo() -> None:
            self._busy.discard(node)
            self._cluster.network.rejoin(node)

        return undo

    def _pair(self) -> tuple[int, int]:
        one, other = self._random.sample(sorted(self._cluster.nodes), 2)
        return one, other

    def _cut_link(self) -> Undo:
        pair = self._pair()
        self._cluster.network.cut(*pair)
        return lambda: self._cluster.network.heal(*pair)

    def _deafen_link(self) -> Undo:
        """Hold what one node sends to another; in the end it comes late, or never."""
        pair = self._pair()
        is_lost = self._random.random() < 0.5
        self._cluster.network.hold(*pair)

        def undo() -> None:
            if is_lost:
                self._cluster.network.break_connections(*pair)
            self._cluster.network.heal(*pair)

        return undo

    def _flap_link(self) -> Undo:
        pair = self._pair()
        network = self._cluster.network

        def once() -> None:
            network.cut(*pair)
            time.sleep(_FLAP_S)
            network.heal(*pair)

        return self._repeat(once, _FLAP_S, lambda: network.heal(*pair))

    def _slow_link(self) -> Undo:
        pair = self._pair()
        self._cluster.network.slow(*pair, self._random.choice([0.02, 0.1, 0.4]))
        return lambda: self._cluster.network.heal(*pair)

    # The disk.

    def _keep_disk_busy(self) -> Undo:
        path = self._cluster.directory / "hog"
        hog = subprocess.Popen([sys.executable, "-c", _DISK_HOG, str(path)])

        def undo() -> None:
            hog.kill()
            hog.wait()
            path.unlink(missing_ok=True)

        return undo

    def _repeat(self, once: Callable[[], None], pause_s: float, after: Undo) -> Undo:
        stopping = threading.Event()

        def run() -> None:
            while not stopping.wait(pause_s):
                once()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def undo() -> None:
            stopping.set()
            thread.join()
            after()

        return undo


def _nothing() -> None:
    """Undo what has undone itself."""
