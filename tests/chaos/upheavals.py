"""What operators do to a cluster, and what takes a disk away, while everything else breaks.

A wiped node has lost its copies. Records that a majority held may then sit on one other node only,
until the copies are made again, so a second node is wiped only when the first one is whole: two of
three disks lost at once are beyond what three replicas promise to survive.
"""

import random
import shutil
import time
from contextlib import suppress

from penstock.client import ClusterAdmin
from penstock.errors import PenstockError, Unavailable
from tests.chaos.history import History, Place
from tests.cluster_views import wait_for
from tests.links import LinkedCluster
from tests.processes import NodeProcess

_ASK_S = 5.0
_STEADY_S = 5.0
_SETTLE_DEADLINE_S = 120.0
_REPLICAS = 3


class Upheavals:
    """Wipes, moves and rolling restarts of one cluster."""

    def __init__(
        self, cluster: LinkedCluster, places: list[Place], history: History, chance: random.Random
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._history = history
        self._random = chance
        self._wiped: tuple[float, dict[int, int]] | None = None

    # Wipes.

    def may_wipe(self) -> bool:
        """True when every log has all its replicas, those of a node that was wiped included."""
        with suppress(PenstockError):
            return self._is_whole()
        return False

    def wipe(self, node: int) -> None:
        """Kill a node and take its disk away."""
        ends = {each: process.log_path.stat().st_size for each, process in self._nodes()}
        self._wiped = (time.monotonic(), ends)
        self._cluster[node].kill()
        shutil.rmtree(self._cluster[node].data_dir)

    def _is_whole(self) -> bool:
        admin = self._admin()
        overview = admin.overview()
        is_settled = not (overview.behind or overview.changing or overview.without_leader)
        is_whole = is_settled and all(node.reachable for node in overview.nodes)
        # A move may have left a partition with two replicas; one of them alone is no majority.
        is_whole = is_whole and all(
            len(admin.partitions(topic)[partition].nodes) >= _REPLICAS
            for topic, partition in self._places
        )
        if not is_whole or self._wiped is None:
            return is_whole
        wiped_s, ends = self._wiped
        return time.monotonic() - wiped_s > _STEADY_S and not self._filling(ends)

    def _filling(self, ends: dict[int, int]) -> set[str]:
        """Return the logs that have a learner, or have changed a moment ago.

        The state of consumer groups and the metadata have replicas too, and no other report.
        """
        newest: dict[str, dict[str, object]] = {}
        for node, process in self._nodes():
            for line in process.log_lines(ends[node]):
                name = str(line.get("log"))
                if line.get("message") == "membership changes":
                    newest[name] = max(newest.get(name, line), line, key=_moment)
        oldest = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - _STEADY_S))
        if "metadata" not in newest:
            return {"metadata"}
        return {
            name for name, line in newest.items() if line.get("learners") or _moment(line) > oldest
        }

    # Moves.

    def move(self) -> Place | None:
        """Begin to move a partition to other nodes, or to fewer of them where there are no others.

        Returns the partition, or None when the cluster is in no state to do so.
        """
        place = self._random.choice(self._places)
        nodes = sorted(self._cluster.nodes)
        count = _REPLICAS if len(nodes) > _REPLICAS else self._random.choice((2, 3))
        with suppress(PenstockError):
            self._admin().move(*place, self._random.sample(nodes, count))
            return place
        return None

    def end_move(self, place: Place) -> None:
        """Cancel a move where it still goes on, and give the partition all its replicas."""
        with suppress(PenstockError):
            self._admin().cancel_move(*place)
        with suppress(PenstockError):
            self._replicate_fully(self._admin(), place)

    def settle(self) -> None:
        """Wait until every partition has all its replicas and no move goes on."""
        wait_for(self._is_settled, "all partitions have their replicas", _SETTLE_DEADLINE_S)

    def _is_settled(self) -> bool:
        try:
            admin = self._admin()
            short = [place for place in self._places if self._replicate_fully(admin, place)]
            overview = admin.overview()
        except PenstockError:
            return False
        return not short and not overview.changing and not overview.behind

    def _replicate_fully(self, admin: ClusterAdmin, place: Place) -> bool:
        """Let a partition with too few replicas have more of them; True when that was needed."""
        found = admin.partitions(place.topic)[place.partition]
        if len(found.nodes) >= _REPLICAS:
            return False
        others = [node for node in sorted(self._cluster.nodes) if node not in found.nodes]
        admin.move(*place, [*found.nodes, *others][:_REPLICAS])
        return True

    # Rolling restarts.

    def rolling_restart(self) -> None:
        """Restart all nodes one by one, as an upgrade does: the next when the last one serves."""
        for node, process in self._nodes():
            is_bound = process.has_served
            code = process.stop()
            if code != 0 and is_bound:
                self._history.violate(f"node {node} did not stop well, but with {code}")
            process.start()

    def _nodes(self) -> list[tuple[int, NodeProcess]]:
        return sorted(self._cluster.nodes.items())

    def _admin(self) -> ClusterAdmin:
        running = self._cluster.running
        if not running:
            raise Unavailable("no node runs")
        return ClusterAdmin(self._cluster[self._random.choice(running)].http_url, wait_s=_ASK_S)


def _moment(line: dict[str, object]) -> str:
    return str(line.get("time"))
