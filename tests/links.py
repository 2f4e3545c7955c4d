"""A cluster whose nodes talk to each other through proxies, so that links can fail.

In front of each node's peer port stands a proxy. Who dials is told by the first frame, the hello,
so each connection belongs to a pair of nodes, and each pair can be cut, slowed, or made deaf in one
direction. The proxies run in a thread of the test's own process.
"""

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, permutations
from pathlib import Path
from types import TracebackType

import msgspec
import uvloop

from tests.processes import ClusterProcess, free_ports

_CHUNK_BYTES = 64 * 1024
_QUEUED_CHUNKS_MAX = 64
_HELLO_TIMEOUT_S = 10.0
_SIZE = struct.Struct(">I")

Pair = tuple[int, int]


@dataclass
class _Direction:
    """What happens to bytes on their way from one node to another."""

    delay_s: float = 0.0
    passes: asyncio.Event = field(default_factory=asyncio.Event)


class PeerNetwork:
    """The proxies of a cluster. Its methods may be called from any thread."""

    def __init__(self, peer_ports: dict[int, int]) -> None:
        self._peer_ports = peer_ports
        self.ports = dict(zip(peer_ports, free_ports(len(peer_ports)), strict=True))
        self._directions: dict[Pair, _Direction] = {}
        self._cut: set[frozenset[int]] = set()
        self._writers: dict[frozenset[int], set[asyncio.StreamWriter]] = {}
        self._loop = uvloop.new_event_loop()
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peer network", daemon=True)

    def start(self) -> None:
        """Open the proxies."""
        self._thread.start()
        assert self._is_open.wait(120), "the proxies did not open"

    @property
    def is_started(self) -> bool:
        """True once the proxies were opened."""
        return self._thread.ident is not None

    def close(self) -> None:
        """Close the proxies and all connections through them."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)

    # Faults.

    def pairs(self) -> list[Pair]:
        """All pairs of nodes."""
        return list(combinations(self._peer_ports, 2))

    def cut(self, one: int, other: int) -> None:
        """Break the connections of two nodes and let no new one come up."""
        self._call(self._cut_now, frozenset((one, other)))

    def hold(self, source: int, target: int) -> None:
        """Let nothing through from `source` to `target`; the other direction goes on."""
        self._call(self._directions[source, target].passes.clear)

    def slow(self, one: int, other: int, delay_s: float) -> None:
        """Delay everything between two nodes."""
        self._call(self._set_delay, one, other, delay_s)

    def heal(self, one: int, other: int) -> None:
        """Undo all faults between two nodes; what was held arrives late."""
        self._call(self._heal_now, one, other)

    def break_connections(self, one: int, other: int) -> None:
        """Break what is open between two nodes; they may connect again at once."""
        self._call(self._break_now, frozenset((one, other)))

    def isolate(self, node: int) -> None:
        """Cut a node off from all others."""
        for other in self._others(node):
            self.cut(node, other)

    def rejoin(self, node: int) -> None:
        """Undo all faults of a node's links."""
        for other in self._others(node):
            self.heal(node, other)

    def heal_all(self) -> None:
        """Undo all faults."""
        for pair in self.pairs():
            self.heal(*pair)

    def _others(self, node: int) -> Iterable[int]:
        return (other for other in self._peer_ports if other != node)

    def _call(self, change: Callable[..., None], *arguments: object) -> None:
        """Make a change in the loop, and return when it is made."""
        done = threading.Event()

        def run() -> None:
            change(*arguments)
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(120), "the proxies do not answer"

    def _cut_now(self, pair: frozenset[int]) -> None:
        self._cut.add(pair)
        self._break_now(pair)

    def _break_now(self, pair: frozenset[int]) -> None:
        for writer in self._writers.get(pair, set()):
            writer.transport.abort()

    def _set_delay(self, one: int, other: int, delay_s: float) -> None:
        self._directions[one, other].delay_s = delay_s
        self._directions[other, one].delay_s = delay_s

    def _heal_now(self, one: int, other: int) -> None:
        self._cut.discard(frozenset((one, other)))
        self._set_delay(one, other, 0.0)
        self._directions[one, other].passes.set()
        self._directions[other, one].passes.set()

    # Carrying bytes.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._directions = {pair: _Direction() for pair in permutations(self._peer_ports, 2)}
        for direction in self._directions.values():
            direction.passes.set()
        for node, port in self.ports.items():
            self._loop.run_until_complete(self._listen(node, port))
        self._loop.call_soon(self._is_open.set)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))

    async def _listen(self, node: int, port: int) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._carry(node, reader, writer)
            writer.transport.abort()

        await asyncio.start_server(accept, "127.0.0.1", port)

    async def _carry(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            hello = await _read_frame(reader)
        dialer = int(msgspec.msgpack.decode(memoryview(hello)[_SIZE.size + 1 :])["node_id"])
        pair = frozenset((dialer, node))
        if pair in self._cut:
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._peer_ports[node])
        writers = self._writers.setdefault(pair, set())
        writers |= {writer, back}
        outward, inward = self._directions[dialer, node], self._directions[node, dialer]
        tasks = [
            asyncio.create_task(_pump(reader, back, outward, hello)),
            asyncio.create_task(_pump(there, writer, inward, b"")),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writers -= {writer, back}
            back.transport.abort()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(*_SIZE.unpack(size))


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Direction, first: bytes
) -> None:
    """Carry bytes one way, each chunk no earlier than its delay allows."""
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS_MAX)

    async def read() -> None:
        if first:
            await chunks.put((time.monotonic() + way.delay_s, first))
        while data := await reader.read(_CHUNK_BYTES):
            await chunks.put((time.monotonic() + way.delay_s, data))

    async def write() -> None:
        while True:
            due, data = await chunks.get()
            if (wait_s := due - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            await way.passes.wait()
            writer.write(data)
            await writer.drain()

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LinkedCluster(ClusterProcess):
    """A cluster whose nodes reach each other through a `PeerNetwork`."""

    def __init__(self, directory: Path, size: int, *flags: str) -> None:
        self._network: PeerNetwork | None = None
        super().__init__(directory, size, *flags)

    @property
    def network(self) -> PeerNetwork:
        """The proxies between the nodes."""
        if self._network is None:
            self._network = PeerNetwork(self.peer_ports)
        return self._network

    def flags_of(self, node_id: int) -> tuple[str, ...]:
        """Let a node listen on its own port, and reach all others through their proxies."""
        ports = {**self.network.ports, node_id: self.peer_ports[node_id]}
        peers = ",".join(f"{peer}=127.0.0.1:{port}" for peer, port in ports.items())
        return (
            "--node-id", str(node_id),
            "--peers", peers,
            "--peer-advertise", f"127.0.0.1:{self.network.ports[node_id]}",
        )  # fmt: skip

    def start(self) -> None:
        """Open the proxies with the first start, then start the nodes."""
        if not self.network.is_started:
            self.network.start()
        super().start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.network.close()
