"""One node as a process: opens the broker, opens the doors, and closes them in reverse order."""

import asyncio
import errno
import gc
import logging
import random
import resource
import shutil
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from penstock.broker import Broker
from penstock.clock import SystemClock
from penstock.cluster import DirectoryLock, FlushPace, Vigil, Workplace
from penstock.config import NodeOptions
from penstock.errors import InvalidConfiguration, PenstockError
from penstock.log import LocalDisk
from penstock.logs import configure_logs
from penstock.protocols.http import GuestDoor, HttpServer, create_app, serve_http
from penstock.protocols.kafka import KafkaServer
from penstock.protocols.sqs import BODY_BYTES_MAX as SQS_BODY_BYTES_MAX
from penstock.protocols.sqs import SqsDoor, SqsOptions, read_access_keys

logger = logging.getLogger(__name__)


# A thread that has synced must get the interpreter back from a busy loop before anybody is told.
# With Python's default of 5 ms that takes longer than the sync itself.
_SWITCH_INTERVAL_S = 0.0005


def run(options: NodeOptions) -> None:
    """Run a node until SIGTERM or SIGINT; raises why it cannot start."""
    configure_logs(level=options.log_level, style=options.log_format)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _raise_file_limit()
    uvloop.run(_serve(options))


async def _serve(options: NodeOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    node = Node(options, has_process=True)
    stopping = asyncio.create_task(stop.wait())
    # A node that waits for the rest of its cluster can be stopped all the same.
    starting = asyncio.create_task(node.start())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    await starting
    # What was made until here stays. Looking through all of it for garbage takes the loop 60 ms.
    gc.freeze()
    try:
        if options.log_format == "text":
            # Where programs read the log, no line must come between that is not JSON.
            print(node.greeting(), flush=True)
        await stopping
    finally:
        await node.stop()


class Node:
    """A running node; one that has a process for itself may keep its loop awake."""

    def __init__(self, options: NodeOptions, *, has_process: bool = False) -> None:
        self._options = options
        self._has_process = has_process
        self._lock: DirectoryLock | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._broker: Broker | None = None
        self._kafka: KafkaServer | None = None
        self._http: HttpServer | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._moving: asyncio.Task[None] | None = None
        self.kafka_port = 0
        self.http_port = 0

    async def start(self) -> None:
        """Recover what is on disk, then open the doors. Raises with nothing left open."""
        try:
            await self._open_broker()
            await self._open_doors()
            await self._join_cluster()
        except BaseException:
            await self.stop()
            raise

    async def _open_broker(self) -> None:
        options = self._options
        disk = LocalDisk()
        try:
            disk.make_directory(options.data_dir)
            self._lock = DirectoryLock(options.data_dir)
        except OSError as error:
            raise _unusable_directory(options, error) from error
        self._executor = ThreadPoolExecutor(options.sync_threads, thread_name_prefix="disk")
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        pace = FlushPace(clock, Vigil(loop, clock) if self._has_process else None)
        workplace = Workplace(loop, self._executor, disk, clock, _randrange, pace)
        try:
            self._broker = await loop.run_in_executor(None, Broker, options, workplace)
        except OSError as error:
            raise _unusable_directory(options, error) from error
        try:
            await self._broker.start(options.host)
        except OSError as error:
            raise _address_taken("peer_port", options.host, options.peer_port, error) from error
        self._housekeeping = asyncio.create_task(self._broker.housekeeper.run())
        self._housekeeping.add_done_callback(_report_end)

    async def _open_doors(self) -> None:
        assert self._broker is not None
        options = self._options
        self._kafka = KafkaServer(self._broker)
        try:
            self.kafka_port = await self._kafka.start(options.host, options.kafka_port)
        except OSError as error:
            raise _address_taken("kafka_port", options.host, options.kafka_port, error) from error
        queues = SqsDoor(self._broker, _sqs_options(options))
        self._moving = asyncio.create_task(queues.run())
        self._moving.add_done_callback(_report_end)
        app = create_app(
            self._broker,
            body_bytes_max=options.http_body_bytes_max,
            queue_door=GuestDoor(queues.answer, SQS_BODY_BYTES_MAX, queues.is_for_callers_alone),
        )
        try:
            self._http = await serve_http(
                app, options.host, options.http_port, short_way=app.short_way
            )
        except OSError as error:
            raise _address_taken("http_port", options.host, options.http_port, error) from error
        self.http_port = self._http.port

    async def _join_cluster(self) -> None:
        """Tell the cluster where this node is; a new cluster waits for all its first nodes."""
        assert self._broker is not None
        options = self._options
        if self._broker.missing_nodes:
            logger.info("waiting for nodes", extra={"nodes": self._broker.missing_nodes})
        address = options.advertised(kafka_port=self.kafka_port, machine_name=socket.gethostname())
        await self._broker.register(kafka=address, http_port=self.http_port)
        logger.info(
            "node is serving",
            extra={
                "node": options.node_id,
                "kafka": f"{options.host}:{self.kafka_port}",
                "http": f"{options.host}:{self.http_port}",
                "data_dir": str(options.data_dir),
            },
        )

    def greeting(self) -> str:
        """Return what a newcomer needs to know."""
        host = self._options.host
        kafka, http = f"{host}:{self.kafka_port}", f"{host}:{self.http_port}"
        flag = "" if kafka == "127.0.0.1:9092" else f" -b {kafka}"
        command = _own_command() + flag
        return (
            f"Penstock is running. Kafka clients: {kafka}   HTTP: http://{http}/docs\n"
            f"Data: {self._options.data_dir.absolute()}   Stop with Ctrl-C.\n"
            "\n"
            "Send and receive a first message, in another terminal:\n"
            f"  echo hello | {command} produce greetings\n"
            f"  {command} consume greetings --from-beginning -n 1"
        )

    async def stop(self) -> None:
        """Hand over, stop accepting, answer what is in flight, close all; safe to call twice."""
        if self._broker is not None:
            self._broker.start_draining()
            await self._broker.hand_over()
        if self._kafka is not None:
            await self._kafka.stop(self._options.shutdown_grace_ms / 1000)
        if self._http is not None:
            assert self._broker is not None, "the doors of a node lead to its broker"
            self._broker.queues.arrivals.end_waits()
            await self._http.stop()
        for task in (self._moving, self._housekeeping):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._broker is not None:
            await self._broker.close()
            logger.info("node has stopped")
        if self._executor is not None:
            self._executor.shutdown()
        if self._lock is not None:
            self._lock.release()
        self._broker = self._kafka = self._http = self._housekeeping = self._moving = None
        self._executor = self._lock = None


def _own_command() -> str:
    """Return what to type for the command that this process was started with."""
    own = sys.argv[0]
    if Path(own).name != "penstock" or shutil.which("penstock") == own:
        return "penstock"
    return own


def _randrange(stop: int) -> int:
    """Chance for election timeouts; nothing secret depends on it."""
    return random.randrange(stop)  # noqa: S311


def _report_end(task: asyncio.Task[None]) -> None:
    """The supervisor of what goes on by itself: its end is a fault that must be seen."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("background work ended", exc_info=task.exception())


def _unusable_directory(options: NodeOptions, error: OSError) -> PenstockError:
    place = f" ({error.filename})" if error.filename else ""
    return InvalidConfiguration(
        f"data_dir: {options.data_dir} cannot be used: {error.strerror or error}{place}"
    )


def _address_taken(option: str, host: str, port: int, error: OSError) -> PenstockError:
    if error.errno == errno.EADDRINUSE:
        reason = "another process listens there"
    else:
        reason = error.strerror or str(error)
    return InvalidConfiguration(f"{option}: {host}:{port} cannot be used: {reason}")


def _raise_file_limit() -> None:
    """Every segment and every connection is an open file; take as many as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _sqs_options(options: NodeOptions) -> SqsOptions:
    return SqsOptions(
        account=options.sqs_account,
        region=options.sqs_region,
        purge_interval_ms=options.sqs_purge_interval_ms,
        batch_bytes_max=options.message_bytes_max,
        access_keys=_access_keys(options.sqs_access_keys_file),
    )


def _access_keys(name: str) -> dict[str, str]:
    if not name:
        return {}
    try:
        return read_access_keys(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidConfiguration(
            f"sqs_access_keys_file: {name} cannot be read: {reason}"
        ) from None
