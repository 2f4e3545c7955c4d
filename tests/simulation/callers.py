"""Asking a node for something over a network that loses, delays and keeps no order."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.errors import NotLeader, PenstockError
from penstock.testing import Schedule, SimNetwork
from penstock.testing.machine import ANY_LIFE
from tests.simulation.referee import Referee

if TYPE_CHECKING:
    from tests.simulation.node import Node

PATIENCE_US = 150_000

Reply = Callable[[Any, BaseException | None], None]
Serve = Callable[["Node", Reply], None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all who ask share."""

    schedule: Schedule
    network: SimNetwork
    random: Random
    referee: Referee


class Caller:
    """Asks one thing at a time of one node, and another node when that does not help."""

    def __init__(self, number: int, around: Surroundings, *, interval_us: int) -> None:
        self.number = number
        self.is_stopping = False
        self.refused = 0
        self._schedule = around.schedule
        self._network = around.network
        self._random = around.random.random
        self._referee = around.referee
        self._interval_us = interval_us
        self._target = 1 + number % len(around.referee.nodes)
        self._sent_us = 0
        self._waits_for = 0
        """The number of the request that is not answered; 0 when there is none."""
        self._request = 0
        self._schedule.later(int(interval_us * self._random()), self._turn)

    def _turn(self) -> None:
        self._schedule.later(int(self._interval_us * (0.5 + self._random())), self._turn)
        if self._waits_for and self._is_late:
            self._waits_for = 0
            self._look_elsewhere()
        self._act()

    def _act(self) -> None:
        """Do what comes next, if anything."""
        raise NotImplementedError

    @property
    def _is_late(self) -> bool:
        return self._schedule.now_us - self._sent_us > PATIENCE_US

    def _look_elsewhere(self) -> None:
        self._target = 1 + int(self._random() * len(self._referee.nodes))

    def _ask(self, serve: Serve, on_success: Callable[[Any], None]) -> None:
        self._request += 1
        number = self._waits_for = self._request
        self._sent_us = self._schedule.now_us
        node = self._referee.nodes[self._target]

        def answered(result: Any, error: PenstockError | None, leader: int | None) -> None:
            is_awaited = number == self._waits_for
            if is_awaited:
                self._waits_for = 0
            if error is None:
                on_success(result)
                return
            self.refused += 1
            if is_awaited:
                self._follow(error, leader)

        def arrive() -> None:
            self._serve(node, serve, answered)

        if self._random() >= self._network.loss:
            self._schedule.later_on(node.machine, ANY_LIFE, self._delay_us(), arrive)

    def _serve(
        self,
        node: "Node",
        serve: Serve,
        answered: Callable[[Any, PenstockError | None, int | None], None],
    ) -> None:
        def reply(result: Any, error: BaseException | None) -> None:
            if self._random() < self._network.loss or node.log is None:
                return
            leader = node.log.leader
            if error is not None and not isinstance(error, PenstockError):
                raise error
            self._schedule.later(self._delay_us(), answered, result, error, leader)

        try:
            serve(node, reply)
        except PenstockError as error:
            reply(None, error)

    def _follow(self, error: PenstockError, leader: int | None) -> None:
        if isinstance(error, NotLeader) and leader is not None and leader != self._target:
            self._target = leader
        else:
            self._look_elsewhere()

    def _delay_us(self) -> int:
        return int(self._network.delay_us * (0.5 + self._random()))


async def answer(work: Coroutine[Any, Any, Any], reply: Reply) -> None:
    """Reply with what some work returns or refuses."""
    try:
        result = await work
    except PenstockError as error:
        reply(None, error)
    else:
        reply(result, None)
