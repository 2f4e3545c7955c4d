"""`penstock consume`: read messages of a topic."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.bounds import Bounds, grows_in_time, start_offset
from penstock.cli.connection import connect, open_admin
from penstock.cli.formats import DEFAULT, Writer, compile_format, json_line
from penstock.cli.history import HistoryRequest, consume_history
from penstock.cli.interruption import Interruption
from penstock.cli.options import Json, QueueBootstrap, QueueUrl, TopicName, read_name
from penstock.cli.output import Output
from penstock.cli.receive import Receiving, receive
from penstock.cli.storage import ArchivePath, StorageOptions, read_storage_options
from penstock.cli.times import read_time_ms
from penstock.clock import SystemClock
from penstock.errors import Conflict, TopicNotFound, Unavailable
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client import Admin, Consumer, Disconnection, Message, OffsetRange

# Short enough for Ctrl-C to feel immediate, since librdkafka does not hear signals while it waits.
POLL_WAIT_S = 0.1
COMMIT_INTERVAL_S = 1.0


class Isolation(StrEnum):
    """Whether records of open transactions are shown."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class GroupProtocol(StrEnum):
    """How a group shares its partitions."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


def consume(
    topic: TopicName,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            callback=read_name,
            show_default=False,
            help="Read as a member of this group, and commit.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", "-q", show_default=False, help="Receive for this queue group, and ack each."
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, show_default="all", help="May be repeated."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset", "-o", show_default="end", help="Number, beginning, end, or -N: the last N."
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="For a group: where it has no offset yet.")
    ] = False,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time", show_default=False, help="Not before ISO 8601, epoch ms, or -1h."
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", show_default=False, help="Only before this time."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, show_default=False, help="Stop after so many."),
    ] = None,
    message_format: Annotated[
        str, typer.Option("--format", help="%t %p %o %k %v %T %h and \\n \\t, as with kcat.")
    ] = DEFAULT,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop where the topic ends now.")
    ] = False,
    include_deleted: Annotated[
        bool,
        typer.Option(
            "--include-deleted",
            help="Read what retention removed from the archive, too, up to where the topic ends.",
        ),
    ] = False,
    from_snapshot: Annotated[
        str | None,
        typer.Option(
            "--from-snapshot",
            metavar="TIME",
            show_default=False,
            help="Read the topic as it was then, with its archive.",
        ),
    ] = None,
    archive: ArchivePath = None,
    storage: StorageOptions = None,
    isolation: Annotated[Isolation, typer.Option("--isolation")] = Isolation.READ_COMMITTED,
    protocol: Annotated[
        GroupProtocol,
        typer.Option("--group-protocol", help="consumer is KIP-848, classic the older one."),
    ] = GroupProtocol.CONSUMER,
    bootstrap: QueueBootstrap = "",
    url: QueueUrl = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Read messages and write them to standard output, until Ctrl-C or a limit is reached.

    With a group, an offset is committed only after its message was written out. With a queue
    group, which is asked for at --url, a message is acked only after it was.

    --include-deleted, --from-snapshot and --archive read archive and log as one, up to where the
    topic ends now.
    """
    request = ReadRequest(
        topic=topic,
        partitions=tuple(partitions or ()),
        offset="beginning" if from_beginning else offset,
        from_ms=read_time_ms(from_time, option="--from-time"),
        to_ms=read_time_ms(to_time, option="--to-time"),
    )
    _check_start(request, from_beginning=from_beginning, given_offset=offset, group=group)
    writer = _writer(message_format, as_json=as_json)
    if queue is not None:
        _check_queue(request, is_in_group=group is not None)
        receive(
            topic,
            queue,
            Receiving(
                url, writer, Output(as_json=as_json), count_max=count, exit_at_end=exit_at_end
            ),
        )
        return
    if include_deleted or from_snapshot is not None or archive is not None:
        _check_history(request, is_in_group=group is not None, is_snapshot=bool(from_snapshot))
        history = HistoryRequest(
            topic=topic,
            partitions=request.partitions,
            offset=request.offset,
            from_ms=request.from_ms,
            to_ms=request.to_ms,
            snapshot_ms=read_time_ms(from_snapshot, option="--from-snapshot"),
            count_max=count,
            isolation=isolation.value,
            archive_path=archive,
            storage=read_storage_options(storage),
        )
        consume_history(history, bootstrap, writer, Output(as_json=as_json))
        return
    bounds = Bounds(
        count_max=count, from_ms=request.from_ms, to_ms=request.to_ms, exit_at_end=exit_at_end
    )
    admin = open_admin(bootstrap)
    output = Output(as_json=as_json)
    from penstock.client import Consumer

    consumer = Consumer(
        connect(bootstrap),
        group=group,
        reset="earliest" if from_beginning else "latest" if group else "error",
        isolation=isolation.value,
        protocol=protocol.value,
    )
    with consumer, Interruption() as interruption:
        reading = Reading(consumer, admin, writer, output, bounds, interruption)
        if group is None:
            request.assign(consumer, admin, bounds, now_ms=SystemClock().now_ms())
            if request.is_from_end and output.is_terminal:
                output.note("Waiting for new messages; --from-beginning shows older ones, too.")
            reading.run()
        else:
            # A group may subscribe to a topic that nobody has created; a person mistyped it.
            admin.partitions(topic)
            consumer.subscribe(topic, reading.commit)
            reading.run_committing()
    if interruption.is_requested:
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What to read of a topic without a group."""

    topic: str
    partitions: tuple[int, ...]
    offset: str | None
    from_ms: int | None
    to_ms: int | None

    @property
    def is_from_end(self) -> bool:
        """Whether only messages are read that do not exist yet."""
        return self.from_ms is None and self.offset in (None, "end")

    @property
    def is_empty(self) -> bool:
        """Whether no time lies in the window."""
        return self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms

    def assign(self, consumer: "Consumer", admin: "Admin", bounds: Bounds, *, now_ms: int) -> None:
        """Find the first offset and, where it is known, the last, and start the consumer there."""
        chosen = self._choose(admin.partitions(self.topic))
        held = admin.offset_ranges(chosen)
        starts = self._starts(chosen, held, admin)
        if self.to_ms is not None:
            bounds.skips_late = not grows_in_time(admin.topic(self.topic).settings)
            if not bounds.skips_late:
                found = admin.offsets_at(chosen, self.to_ms)
                bounds.ends = {each: end for each, end in found.items() if end is not None}
            elif bounds.lacks_ends(now_ms):
                bounds.ends = {each: held[each].end for each in chosen}
        empty = {each for each, end in bounds.ends.items() if starts[each] >= end}
        bounds.skip(empty)
        consumer.assign({each: start for each, start in starts.items() if each not in empty})

    def _choose(self, existing: Sequence[TopicPartition]) -> list[TopicPartition]:
        chosen = [TopicPartition(self.topic, each) for each in self.partitions] or list(existing)
        for each in chosen:
            if each not in existing:
                raise TopicNotFound(
                    f"partition is {each.partition}, topic {self.topic} has 0..{len(existing) - 1}"
                )
        return chosen

    def _starts(
        self,
        chosen: Sequence[TopicPartition],
        held: "Mapping[TopicPartition, OffsetRange]",
        admin: "Admin",
    ) -> Mapping[TopicPartition, int]:
        if self.from_ms is not None:
            found = admin.offsets_at(chosen, self.from_ms)
            starts = {each: found[each] for each in chosen}
            return {each: held[each].end if at is None else at for each, at in starts.items()}
        wanted = self.offset or "end"
        return {each: start_offset(wanted, each, held[each]) for each in chosen}


@dataclass(slots=True)
class Reading:
    """Writes messages out and remembers how far it came."""

    consumer: "Consumer"
    admin: "Admin"
    writer: Writer
    output: Output
    bounds: Bounds
    interruption: Interruption
    _clock: SystemClock = field(default_factory=SystemClock)
    _uncommitted: dict[TopicPartition, int] = field(default_factory=dict)

    def run(self) -> None:
        """Read until the bounds are reached."""
        while not self._is_done():
            self._step()
        self.output.flush()

    def run_committing(self) -> None:
        """Read until the bounds are reached, committing on the way and at any end."""
        due_s = self._clock.steady_s() + COMMIT_INTERVAL_S
        try:
            while not self._is_done():
                self._step()
                if self._clock.steady_s() >= due_s:
                    self.commit()
                    due_s = self._clock.steady_s() + COMMIT_INTERVAL_S
        finally:
            self.commit()

    def commit(self) -> None:
        """Commit what was written out; what could not be committed will be delivered again."""
        self.output.flush()
        if not self._uncommitted:
            return
        try:
            self.consumer.commit(self._uncommitted)
        except Conflict as error:
            self.output.note(f"penstock: {error}; these messages will be delivered again")
        self._uncommitted.clear()

    def _is_done(self) -> bool:
        if self.interruption.is_requested:
            return True
        if not self.consumer.is_joined:
            return False
        assigned, now_ms = self.consumer.assignment(), self._clock.now_ms()
        if self.bounds.lacks_ends(now_ms):
            held = self.admin.offset_ranges(assigned)
            self.bounds.ends = {each: held[each].end for each in assigned}
        return self.bounds.is_done(assigned, now_ms)

    def _step(self) -> None:
        from penstock.client import Disconnection, PartitionEnd

        for event in self.consumer.poll(POLL_WAIT_S):
            if isinstance(event, PartitionEnd):
                self.bounds.reached_end(event.partition)
            elif isinstance(event, Disconnection):
                self._on_disconnection(event)
            elif self.bounds.admits(event):
                self._write(event)
        self.output.flush()

    def _on_disconnection(self, event: "Disconnection") -> None:
        # Who reads to the end wants an end; who follows a topic waits for the broker to return.
        if self.bounds.exit_at_end:
            raise Unavailable(f"consume: {event.reason}")
        self.output.note(f"penstock: {event.reason}; waiting for a broker to return")

    def _write(self, message: "Message") -> None:
        self.output.write(self.writer(message))
        partition = TopicPartition(message.topic, message.partition)
        self._uncommitted[partition] = message.offset + 1


def _check_start(
    request: ReadRequest, *, from_beginning: bool, given_offset: str | None, group: str | None
) -> None:
    starts = {
        "--from-beginning": from_beginning,
        "--offset": given_offset is not None,
        "--from-time": request.from_ms is not None,
    }
    given = [name for name, is_given in starts.items() if is_given]
    if len(given) > 1:
        raise typer.BadParameter("choose one start.", param_hint=" and ".join(given))
    if request.is_empty:
        raise typer.BadParameter("it is not after --from-time.", param_hint="--to-time")
    if group is not None and (request.partitions or given not in ([], ["--from-beginning"])):
        raise typer.BadParameter(
            "a group decides on partitions and offsets itself; `penstock group reset` moves it.",
            param_hint="--group",
        )
    if given_offset is not None and not re.fullmatch(r"beginning|end|-?[0-9]+", given_offset):
        raise typer.BadParameter(
            f"{given_offset!r} is not a number, beginning, end or -N.", param_hint="--offset"
        )


def _check_queue(request: ReadRequest, *, is_in_group: bool) -> None:
    is_placed = request.partitions or request.offset is not None
    if is_in_group or is_placed or request.from_ms is not None or request.to_ms is not None:
        raise typer.BadParameter(
            "a queue group hands out what is next; no group, partition, offset or time goes with"
            " it.",
            param_hint="--queue",
        )


def _check_history(request: ReadRequest, *, is_in_group: bool, is_snapshot: bool) -> None:
    if is_in_group:
        raise typer.BadParameter("a group reads the log alone.", param_hint="--include-deleted")
    is_placed = request.offset not in (None, "beginning") or request.from_ms is not None
    if is_snapshot and (is_placed or request.to_ms is not None):
        raise typer.BadParameter(
            "a snapshot begins with the first message and ends at its time.",
            param_hint="--from-snapshot",
        )


def _writer(text: str, *, as_json: bool) -> Writer:
    if as_json:
        return json_line
    try:
        return compile_format(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--format") from None
