"""A network that loses, repeats, delays and reorders what it carries.

Each message takes a way of its own, so any two may overtake each other. A cut is one-way and takes
what is sent while it lasts; what is under way arrives. Appends travel as bytes, as they would on a
wire, because the receiver writes into them; all other messages never change and travel as they are.
"""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from penstock.ids import NodeId
from penstock.raft import Append, Message, decode, encode
from penstock.testing.machine import ANY_LIFE, SimMachine
from penstock.testing.schedule import Schedule

_SLOW = 20


class _End(NamedTuple):
    """Where a node takes in what is sent to it."""

    machine: SimMachine
    receive: Callable[[int, Message], None]
    hear: Callable[[NodeId, bytes, bool], None]


class SimNetwork:
    """Joins machines; `loss`, `repetition` and `slowness` are chances per message."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self.delay_us = 500
        """The usual time on the way, from half to one and a half of this."""
        self.loss = 0.0
        self.repetition = 0.0
        self.slowness = 0.0
        """The chance that a message takes up to twenty times as long."""
        self.cuts: set[tuple[int, int]] = set()
        self.passes: Callable[[Message], bool] | None = None
        """What else may pass, for scripts that decide about single messages."""
        self.lost = 0
        self.repeated = 0
        self._schedule = schedule
        self._random = random.random
        self._ends: dict[NodeId, _End] = {}

    def join(
        self,
        node: NodeId,
        machine: SimMachine,
        receive: Callable[[int, Message], None],
        hear: Callable[[NodeId, bytes, bool], None],
    ) -> None:
        """Deliver messages for `node` to a machine, and beats with whether they are answers."""
        self._ends[node] = _End(machine, receive, hear)

    def others(self, node: NodeId) -> list[NodeId]:
        """All nodes but one."""
        return [other for other in self._ends if other != node]

    def isolate(self, node: int) -> None:
        """Cut a node off in both directions."""
        for other in self._ends:
            if other != node:
                self.cuts |= {(node, other), (other, node)}

    def send(self, group: int, message: Message) -> None:
        """Take a message on its way, or not."""
        end = self._ends.get(message.to)
        if end is None or self._is_lost(message.sender, message.to):
            self.lost += 1
            return
        if self.passes is not None and not self.passes(message):
            self.lost += 1
            return
        if type(message) is Append:
            frame = b"".join(encode(message))
            self._carry(end.machine, _deliver_bytes, end.receive, group, frame)
        else:
            self._carry(end.machine, end.receive, group, message)

    def send_beat(self, sender: NodeId, to: NodeId, body: bytes, *, is_answer: bool) -> None:
        """Take what two nodes tell each other about resting groups on its way, or not."""
        end = self._ends.get(to)
        if end is None or self._is_lost(sender, to):
            self.lost += 1
            return
        self._carry(end.machine, end.hear, sender, body, is_answer)

    def _is_lost(self, sender: NodeId, to: NodeId) -> bool:
        if self.cuts and (sender, to) in self.cuts:
            return True
        return bool(self.loss) and self._random() < self.loss

    def _carry(self, machine: SimMachine, act: Callable[..., None], *args: Any) -> None:
        self._carry_once(machine, act, *args)
        if self.repetition and self._random() < self.repetition:
            self.repeated += 1
            self._carry_once(machine, act, *args)

    def _carry_once(self, machine: SimMachine, act: Callable[..., None], *args: Any) -> None:
        delay_us = self.delay_us * (0.5 + self._random())
        if self.slowness and self._random() < self.slowness:
            delay_us *= 1 + _SLOW * self._random()
        self._schedule.later_on(machine, ANY_LIFE, int(delay_us), act, *args)


def _deliver_bytes(receive: Callable[[int, Message], None], group: int, frame: bytes) -> None:
    receive(group, decode(bytearray(frame)))
