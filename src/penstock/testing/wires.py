"""Connections between machines, as a network card and a system give them to a process.

What is sent arrives once and in its order, or the connection breaks and both ends hear of it, each
in its own time. A cut holds back what is under way in its direction; one that lasts breaks the
connections that have something to carry. A process that is killed has its connections closed by its
system, one that loses power leaves the others to find out.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from penstock.testing.machine import SimMachine
from penstock.testing.schedule import Schedule

_SLOW = 20
_REFUSED_US = 300
_LOOK_AGAIN_US = 20_000
_PATIENCE_US = 2_000_000
_NOTICED_US = 1_500_000

_Factory = Callable[[], asyncio.BufferedProtocol]


class _Listener(NamedTuple):
    """Who accepts connections at an address."""

    machine: SimMachine
    life: int
    factory: _Factory


class SimServer:
    """Accepts connections until it is closed; stands for its only socket, too."""

    def __init__(self, wires: "SimWires", host: str, port: int) -> None:
        self._wires = wires
        self._address = (host, port)

    @property
    def sockets(self) -> tuple["SimServer", ...]:
        """Where it listens."""
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        """Return the address."""
        return self._address

    def close(self) -> None:
        """Accept no more."""
        self._wires.listeners.pop(self._address, None)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wires: "SimWires", machine: SimMachine) -> None:
        super().__init__()
        self.machine = machine
        self.life = machine.life
        self.protocol: asyncio.BufferedProtocol | None = None
        self.peer: SimTransport
        self._wires = wires
        self._arrived: deque[bytes] = deque()
        self._arrives_us = 0
        """When the last of what was sent to this end arrives."""
        self._held_since_us: int | None = None
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False

    # What protocols call.

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send parts, one behind the other."""
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self._is_closing and self.machine.life == self.life:
            self.peer.later(self.peer.arrive, bytes(data))

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hand over what was kept, and what arrives from now on."""
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._hand_over)

    def get_write_buffer_size(self) -> int:
        """Nothing waits on this side."""
        return 0

    def is_closing(self) -> bool:
        """Whether either side has ended it."""
        return self._is_closing

    def close(self) -> None:
        """End the connection after what was sent."""
        if not self._is_closing and self.machine.life == self.life:
            self._is_closing = True
            self.peer.later(self.peer.lose)
            asyncio.get_running_loop().call_soon(self.lose)

    # What the wires call.

    def later(self, act: Callable[..., None], *args: Any, delay_us: int = 0) -> None:
        """Let something reach this end, after all that is on its way already."""
        schedule = self._wires.schedule
        due_us = schedule.now_us + self._wires.travel_us() + delay_us
        self._arrives_us = max(self._arrives_us, due_us)
        wait_us = self._arrives_us - schedule.now_us
        schedule.later_on(self.machine, self.life, wait_us, act, *args)

    def arrive(self, data: bytes) -> None:
        """Take in what the peer has sent, unless a cut holds it back."""
        self._arrived.append(data)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._is_held():
            return
        while self._arrived and not self._is_paused and not self._is_closing:
            data = memoryview(self._arrived.popleft())
            while data and not self._is_closing:
                data = data[self._fill(data) :]

    def _fill(self, data: memoryview) -> int:
        assert self.protocol is not None
        buffer = memoryview(self.protocol.get_buffer(-1))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        self.protocol.buffer_updated(count)
        return count

    def _is_held(self) -> bool:
        """Whether a cut keeps the bytes from coming; the connection breaks when it lasts."""
        if (self.peer.machine.name, self.machine.name) not in self._wires.cuts:
            self._held_since_us = None
            return False
        now_us = self._wires.schedule.now_us
        if self._held_since_us is None:
            self._held_since_us = now_us
            self._look_again()
        elif now_us - self._held_since_us > _PATIENCE_US:
            self.lose()
            self.peer.later(self.peer.lose)
        return True

    def _look_again(self) -> None:
        if self._held_since_us is not None and not self._is_lost:
            schedule = self._wires.schedule
            schedule.later_on(self.machine, self.life, _LOOK_AGAIN_US, self._look_again)
            self._hand_over()

    def lose(self) -> None:
        """The connection is over for this end; what still waits is read before."""
        if self._is_lost:
            return
        self._is_lost = True
        if self._held_since_us is None:
            self._hand_over()
        self._is_closing = True
        self._wires.ends.pop(self, None)
        if self.protocol is not None:
            self.protocol.connection_lost(None)


class SimWires:
    """Joins machines by connections; `slowness` is the chance that a piece takes its time."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self.schedule = schedule
        self.delay_us = 300
        """The usual time on the way, from half to one and a half of this."""
        self.slowness = 0.0
        self.cuts: set[tuple[int, int]] = set()
        """Pairs of machines, by name, of which the second hears nothing from the first."""
        self.listeners: dict[tuple[str, int], _Listener] = {}
        self.ends: dict[SimTransport, None] = {}
        self._random = random.random

    def travel_us(self) -> int:
        """Draw how long a piece is on its way."""
        delay_us = self.delay_us * (0.5 + self._random())
        if self.slowness and self._random() < self.slowness:
            delay_us *= 1 + _SLOW * self._random()
        return int(delay_us)

    def listen(self, machine: SimMachine, factory: _Factory, host: str, port: int) -> SimServer:
        """Accept connections on a machine until it stops."""
        self.listeners[host, port] = _Listener(machine, machine.life, factory)
        return SimServer(self, host, port)

    async def connect(
        self, machine: SimMachine, factory: _Factory, host: str, port: int
    ) -> tuple[SimTransport, asyncio.BufferedProtocol]:
        """Reach an address, or raise why that is not possible."""
        await asyncio.sleep(self.travel_us() / 1e6)
        listener = self.listeners.get((host, port))
        if listener is None:
            await asyncio.sleep(_REFUSED_US / 1e6)
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        there = listener.machine
        if {(machine.name, there.name), (there.name, machine.name)} & self.cuts:
            await asyncio.sleep(_PATIENCE_US / 1e6)
            raise TimeoutError(f"{host}:{port} does not answer")
        near, far = SimTransport(self, machine), SimTransport(self, there)
        near.peer, far.peer = far, near
        self.ends |= {near: None, far: None}
        far.later(_accepted, far, listener.factory)
        near.protocol = factory()
        near.protocol.connection_made(near)
        return near, near.protocol

    def break_between(self, one: int, other: int) -> None:
        """Break the connections of two machines."""
        for end in list(self.ends):
            if {end.machine.name, end.peer.machine.name} == {one, other}:
                end.later(end.lose)

    def stopped(self, machine: SimMachine, *, cuts_power: bool) -> None:
        """The process on a machine is gone, and its connections with it."""
        for address, listener in list(self.listeners.items()):
            if listener.machine is machine:
                del self.listeners[address]
        noticed_us = int(_NOTICED_US * self._random()) if cuts_power else 0
        for end in [end for end in self.ends if end.machine is machine]:
            del self.ends[end]
            end.peer.later(end.peer.lose, delay_us=noticed_us)


def _accepted(end: SimTransport, factory: _Factory) -> None:
    end.protocol = factory()
    end.protocol.connection_made(end)
