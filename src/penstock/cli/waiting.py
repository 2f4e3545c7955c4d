"""Waits for a change of the cluster and shows how far it is.

A change goes on by itself; ending a wait, by its timeout or by Ctrl-C, does not end the change.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from penstock.clock import Clock, SystemClock
from penstock.errors import Conflict, TimedOut, TopicNotFound, Unavailable

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.client import ClusterNode, ClusterPartition

LOOK_AGAIN_S = 0.5
# Where lines cannot be overwritten, they come no more often than this.
LINE_INTERVAL_S = 5.0
SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a change."""

    is_done: bool
    text: str


class Progress:
    """One line on stderr that is overwritten; lines now and then where that is not a terminal."""

    def __init__(
        self, *, is_silent: bool, stream: TextIO | None = None, clock: Clock | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._is_silent = is_silent
        self._is_terminal = self._stream.isatty()
        self._clock = clock or SystemClock()
        self._text = ""
        self._shown_s = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        if self._is_terminal and self._text:
            self._stream.write("\n")

    def begin(self, text: str) -> None:
        """Show what begins now, however soon after the line before."""
        self._shown_s = float("-inf")
        self.show(text)

    def show(self, text: str) -> None:
        """Show how far it is."""
        if self._is_silent or text == self._text:
            return
        now_s = self._clock.steady_s()
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{text}")
        elif now_s - self._shown_s >= LINE_INTERVAL_S:
            self._stream.write(f"{text}\n")
            self._shown_s = now_s
        self._stream.flush()
        self._text = text


def wait_for(
    look: Callable[[], Look],
    *,
    timeout_ms: int,
    progress: Progress,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Look until it is done; a node that cannot answer for a moment is asked again."""
    clock = clock or SystemClock()
    deadline_s = clock.steady_s() + timeout_ms / 1000
    while True:
        try:
            seen = look()
        except Unavailable as error:
            seen = Look(False, str(error))
        progress.show(seen.text)
        if seen.is_done:
            return
        if clock.steady_s() >= deadline_s:
            raise TimedOut(f"not done after {timeout_ms / 1000:g} s, and going on: {seen.text}")
        sleep(LOOK_AGAIN_S)


def look_at_move(
    partitions: "Sequence[ClusterPartition]", number: int, nodes: Sequence[int]
) -> Look:
    """See how far the move of one partition is; another change in between is a `Conflict`."""
    found = next((each for each in partitions if each.partition == number), None)
    if found is None:
        raise TopicNotFound(f"partition {number} is not there any more")
    if list(found.nodes) != list(nodes):
        raise Conflict(
            f"{_name(found)} is to be on nodes {_listed(found.nodes)} by now,"
            f" not on {_listed(nodes)}: another change came after this one"
        )
    return Look(not found.changing, _moving(found))


def look_at_drain(
    nodes: "Sequence[ClusterNode]", partitions: "Sequence[ClusterPartition]", node_id: int
) -> Look:
    """See how much is left on a node; what does not leave it any more is a `Conflict`."""
    node = next((each for each in nodes if each.node_id == node_id), None)
    if node is None or (node.logs == 0 and node.draining):
        return Look(True, f"node {node_id} is drained")
    if not node.draining:
        raise Conflict(f"node {node_id} is not being drained any more")
    kept = [each for each in partitions if node_id in each.nodes]
    if kept:
        raise Conflict(
            f"{_name(kept[0])} is to be on nodes {_listed(kept[0].nodes)} by now: another change"
            f" came after the drain of node {node_id}; drain it again"
        )
    moving = [each for each in partitions if each.changing and node_id in each.leaving]
    shown = "; ".join(_moving(each) for each in moving[:SHOWN_MAX])
    return Look(False, f"node {node_id}: {node.logs} logs left" + (f"; {shown}" if shown else ""))


def _moving(partition: "ClusterPartition") -> str:
    """Say in one phrase what a move waits for."""
    name = _name(partition)
    if not partition.changing:
        return f"{name}: on nodes {_listed(partition.nodes)}"
    if partition.leader is None:
        return f"{name}: waits for a leader"
    if partition.queued:
        return f"{name}: waits for other moves to its nodes"
    learners = [each for each in partition.replicas if each.role == "learner"]
    present = {each.node_id for each in partition.replicas}
    missing = [node for node in partition.nodes if node not in present]
    waits = [f"node {each.node_id} lacks {each.lag_entries} entries" for each in learners]
    waits += [f"node {node} is to be added" for node in missing]
    if not waits and partition.leaving:
        waits = [f"node {node} is to leave" for node in partition.leaving]
    return f"{name}: {', '.join(waits) or 'settling'}"


def _name(partition: "ClusterPartition") -> str:
    return f"{partition.topic}-{partition.partition}"


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
