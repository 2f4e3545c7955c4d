"""A machine of a fleet, over many lives of its process and some of its disk."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from penstock.broker import Broker
from penstock.cluster import Workplace
from penstock.config import Address, NodeOptions
from penstock.errors import PenstockError
from penstock.testing import Schedule, SimDisk, SimWires
from tests.simulation.computer import Computer

DATA = Path("/data")
PEER_PORT = 9000
OPTIONS = NodeOptions(
    data_dir=DATA,
    tick_ms=50,
    election_ticks=6,
    group_shards=2,
    default_replication_factor=3,
    segment_bytes=4_000,
    checkpoint_interval_ms=300,
    housekeeping_interval_ms=2_000,
    leader_balance_interval_ms=3_000,
    scrub_interval_ms=0,
    auto_create_topics=False,
    write_stage_expiry_ms=8_000,
    consumer_session_timeout_ms=5_000,
    consumer_heartbeat_interval_ms=500,
    retention_ms=-1,
)


def host(name: int) -> str:
    """Where a machine is found."""
    return f"node-{name}"


class FleetNode(Computer):
    """One machine, and the node that runs on it."""

    def __init__(
        self,
        name: int,
        *,
        peers: Iterable[int] = (),
        join: int | None = None,
        schedule: Schedule,
        wires: SimWires,
        random: Random,
        transfer_bytes_per_s: int,
    ) -> None:
        super().__init__(name, schedule=schedule, random=random)
        self.flushes_here = 0.5
        self.broker: Broker | None = None
        """The broker of the present life, once its files are open."""
        self.is_serving = False
        self.joins: int | None = None
        """Whom it was told to join."""
        self._options = replace(
            OPTIONS,
            node_id=name,
            host=host(name),
            peer_port=PEER_PORT,
            transfer_bytes_per_s=transfer_bytes_per_s,
        )
        self.tell(peers=peers, join=join)
        self._wires = wires
        self._housekeeping: asyncio.Task[None] | None = None

    def tell(self, *, peers: Iterable[int] = (), join: int | None = None) -> None:
        """Say from the next start on who the first nodes are, or whom to join."""
        self.joins = join
        self._options = replace(
            self._options,
            peers=",".join(f"{each}={host(each)}:{PEER_PORT}" for each in peers),
            join="" if join is None else f"{host(join)}:{PEER_PORT}",
        )

    def start(self) -> None:
        """Start the process."""
        if not self.is_on:
            self.ask(self._serve, self._begin_life(self._wires))

    async def _serve(self, workplace: Workplace) -> None:
        try:
            broker = await workplace.in_thread(lambda: Broker(self._options, workplace))
            self.broker = broker
            await broker.start(host(self.name))
            self._housekeeping = self.spawn(broker.housekeeper.run())
            await broker.register(kafka=Address(host(self.name), 9092), http_port=8080)
            self.is_serving = True
        except (OSError, PenstockError):
            # A node that cannot start says why and ends.
            self.stop()

    def retire(self) -> None:
        """Stop in good order, as on SIGTERM."""
        if self.broker is not None and self.is_serving:
            self.is_serving = False
            self.spawn(self._retire(self.broker))

    async def _retire(self, broker: Broker) -> None:
        broker.start_draining()
        await broker.hand_over()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.gather(self._housekeeping, return_exceptions=True)
        await broker.close()
        self.stop()

    def stop(self) -> None:
        """End the process by a kill or by a power cut."""
        if not self.machine.is_on:
            return
        self.disk.stop_before(0)
        self.machine.stop()
        self._wires.stopped(self.machine, cuts_power=self.cuts_power)
        self.broker = self._housekeeping = None
        self.is_serving = False
        self._restore_disk()

    def wipe(self) -> None:
        """Put an empty disk in the place of the machine's own."""
        self.stop()
        self.disk = SimDisk()
        self.is_rotten = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something on this machine until it ends or the machine stops."""
        assert self.machine.process is not None
        task = self.machine.process.create_task(work)
        task.add_done_callback(self._raise)
        return task

    def _raise(self, task: asyncio.Task[None]) -> None:
        """A task that fails in a way that nobody foresaw ends the simulation."""
        if task.cancelled() or self.disk.is_stopped:
            return
        if (error := task.exception()) is not None:
            raise error

    def ask(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Let the node do something, soon."""
        self._schedule.later_on(self.machine, self.machine.life, 0, lambda: self.spawn(work(*args)))

    @property
    def has_failed(self) -> bool:
        """Whether a log of the node cannot be used any more, as its disk has failed."""
        if self.broker is None:
            return False
        cluster = self.broker.cluster
        failures = [*cluster.failures.values(), *(log.failure for log in cluster.logs())]
        return any(failure is not None for failure in failures)
