"""Gives a topic another number of partitions under its own name.

The topic is copied in rounds while it is written to (`resharding`). When little is left, writers
are turned away by a fence, the rest is copied and compared, and the copy takes the topic's name.
The topic is kept under another one. Writers try again by themselves and go on in the copy; consumer
groups go on there at their first record that they have not read, and queue groups at their first
message that is not settled: each record at least once.

What may be killed, and what the same command finds afterwards:

- before anything is copied: the reshard's id is on disk first, and the names of both topics follow
  from it, so that the copy is found again;
- while it copies: see `resharding`;
- behind the fence: it is lifted within a minute, or by the same command when that is sooner, and
  the topic is as it was, with a copy that lacks what is written from then on. The command goes on
  copying and raises a new fence. What the node promises about that is told in its room `cluster`,
  in `resharding`;
- while queue groups are placed in the copy: nobody uses them there, and they are placed anew;
- after the switch: the former topic says that it was switched, also when the note on disk does not.
"""

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.client import Admin, Client, Connection, FencedPartition, Groups, ReshardStatus
from penstock.clock import SystemClock
from penstock.errors import Conflict, InvalidRequest, NotFound, TopicNotFound
from penstock.ids import TopicPartition
from penstock.spark.fence_keeping import FenceKeeper
from penstock.spark.planning import offsets_from_json
from penstock.spark.resharding import (
    Reshard,
    ReshardSettings,
    ReshardVerdict,
    Show,
    write_durably,
)

# What is left of a round is small enough to keep writers waiting for.
ROUND_RECORDS_SMALL = 20_000
FENCES_MAX = 5
BUSY_PAUSE_S = 2.0
_NOTE_FILE = "switch.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """Which topic is to have how many partitions; `directory` keeps what the next run needs."""

    bootstrap: str
    url: str
    topic: str
    partitions: int
    directory: Path


@dataclass(frozen=True, slots=True)
class SwitchNote:
    """What is on disk about a switch."""

    topic: str
    partitions: int
    reshard_id: str
    is_done: bool = False

    @property
    def target(self) -> str:
        """The name of the copy until it takes the topic's."""
        return f"{self.topic}.reshard-{self.reshard_id[:8]}"

    @property
    def former(self) -> str:
        """The name of the topic afterwards."""
        return f"{self.topic}.before-{self.reshard_id[:8]}"


@dataclass(frozen=True, slots=True)
class SwitchOutcome:
    """What came of it: what was compared, who goes on where, and how long writers waited."""

    is_switched: bool
    former: str
    copied: int
    verdict: ReshardVerdict
    groups: dict[str, list[int]]
    queue_groups: dict[str, list[int]]
    fenced_s: float


class Switch:
    """One topic on its way to another number of partitions."""

    def __init__(self, spark: SparkSession, settings: SwitchSettings, show: Show) -> None:
        self._spark = spark
        self._settings = settings
        self._show = show
        self._client = Client(settings.url)
        self._clock = SystemClock()
        self._groups = Groups(Admin(Connection(settings.bootstrap)))
        self.note = self._find_note()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def run(self) -> SwitchOutcome:
        """Go on where the run before was, up to the switch."""
        if self._is_switched():
            self._keep(is_done=True)
            return self._outcome(is_switched=True)
        job = self._begin()
        copied = job.copy_in_rounds(self._show, enough=ROUND_RECORDS_SMALL)
        self._show("comparing")
        verdict = job.verify()
        if not verdict.is_sound:
            return self._outcome(copied=copied, verdict=verdict)
        for attempt in range(1, FENCES_MAX + 1):
            try:
                return self._switch(job, copied)
            except _Busy as busy:
                if attempt == FENCES_MAX:
                    raise Conflict(str(busy)) from None
                self._show(str(busy))
                time.sleep(BUSY_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _begin(self) -> Reshard:
        try:
            return self._prepare()
        except TopicNotFound as error:
            self._client.topic(self.note.topic)
            raise Conflict(
                f"{error}; was the reshard cancelled? Remove {self._settings.directory} to begin"
                " anew"
            ) from None

    def _prepare(self) -> Reshard:
        settings, note = self._settings, self.note
        return Reshard(
            self._spark,
            ReshardSettings(
                bootstrap=settings.bootstrap,
                url=settings.url,
                source=note.topic,
                target=note.target,
                partitions=note.partitions,
                directory=settings.directory,
            ),
            begin=self._enter,
        )

    def _enter(self) -> None:
        """Tell the cluster, which then keeps all records of the topic and its copy."""
        note = self.note
        begun = self._client.reshards.begin(note.topic, note.reshard_id, target=note.target)
        if begun.phase == "fenced":
            # A run that was killed has left it, and reads may be closed behind it, too.
            self._client.reshards.lift(note.topic, begun.fence)

    def _switch(self, job: Reshard, copied: int) -> SwitchOutcome:
        """Do behind a fence what needs one."""
        note = self.note
        began_s = self._clock.steady_s()
        with FenceKeeper(self._client, note.topic, note.reshard_id) as fence:
            self._show(f"topic {note.topic} takes no writes; copying the rest")
            _check_idle(note.topic, fence.raised.partitions)
            copied += job.copy()
            _check_whole(job, fence.raised.partitions)
            verdict = job.verify()
            if not verdict.is_sound:
                return self._outcome(copied=copied, verdict=verdict)
            self._show("placing groups")
            groups = self._positions(job)
            queue_groups = self._place_queue_groups(job)
            self._take_name(fence, groups)
        fenced_s = self._clock.steady_s() - began_s
        self._keep(is_done=True)
        return SwitchOutcome(True, note.former, copied, verdict, groups, queue_groups, fenced_s)

    def _take_name(self, fence: FenceKeeper, positions: dict[str, list[int]]) -> None:
        try:
            fence.check()
            self._client.reshards.switch(
                self.note.topic,
                self.note.reshard_id,
                fence=fence.raised.fence,
                former_name=self.note.former,
                positions=positions,
            )
        except Conflict as error:
            raise _Busy(str(error)) from None
        fence.leave()

    def _positions(self, job: Reshard) -> dict[str, list[int]]:
        """Return where each consumer group goes on that has read something of the topic."""
        found = {}
        for group in self._groups.list():
            committed = self._groups.committed(group.name)
            read = {
                place.partition: offset
                for place, offset in committed.items()
                if place.topic == self.note.topic
            }
            if read:
                found[group.name] = job.positions_after(read)
        return found

    def _place_queue_groups(self, job: Reshard) -> dict[str, list[int]]:
        """Let the copy have the queue groups of the topic, where their unsettled messages begin."""
        client, note = self._client, self.note
        found = {}
        for summary in client.groups.list(note.topic):
            group = client.groups.get(note.topic, summary.name)
            own = {name: each.value for name, each in group.settings.items() if each.is_own}
            floors = job.positions_after({each.partition: each.floor for each in group.partitions})
            client.groups.configure(note.target, group.name, own)
            client.reshards.place_group(note.target, group.name, floors)
            found[group.name] = floors
        return found

    def _outcome(
        self,
        *,
        is_switched: bool = False,
        copied: int = 0,
        verdict: ReshardVerdict | None = None,
    ) -> SwitchOutcome:
        found = verdict or ReshardVerdict(0, 0, 0, 0)
        return SwitchOutcome(is_switched, self.note.former, copied, found, {}, {}, 0.0)

    def delete_former(self) -> None:
        """Delete the topic that was switched from; the second time there is none."""
        try:
            self._client.delete_topic(self.note.former)
        except TopicNotFound:
            self._show(f"topic {self.note.former} is deleted already")

    # What is known of an earlier run.

    def _is_switched(self) -> bool:
        if self.note.is_done:
            return True
        status = reshard_status(self._client, self.note.former)
        return status is not None and status.phase == "switched"

    def _find_note(self) -> SwitchNote:
        settings = self._settings
        path = settings.directory / _NOTE_FILE
        if not path.exists():
            self._client.topic(settings.topic)
            note = SwitchNote(settings.topic, settings.partitions, str(uuid.uuid4()))
            write_durably(path, json.dumps(asdict(note)))
            return note
        note = SwitchNote(**json.loads(path.read_text()))
        if (note.topic, note.partitions) != (settings.topic, settings.partitions):
            raise InvalidRequest(
                f"{settings.directory} holds a reshard of {note.topic} to {note.partitions}"
                f" partitions, not of {settings.topic} to {settings.partitions}"
            )
        return note

    def _keep(self, *, is_done: bool) -> None:
        note = self.note
        self.note = SwitchNote(note.topic, note.partitions, note.reshard_id, is_done)
        write_durably(self._settings.directory / _NOTE_FILE, json.dumps(asdict(self.note)))


class _Busy(Exception):
    """Something in the topic would be left behind; another fence may find it gone."""


def reshard_status(client: Client, topic: str) -> ReshardStatus | None:
    """Return how far the reshard of a topic is; None when there is no such topic or reshard."""
    try:
        return client.reshards.get(topic)
    except NotFound:
        return None


def _check_idle(topic: str, partitions: Iterable[FencedPartition]) -> None:
    held = list(partitions)
    scheduled = sum(each.scheduled for each in held)
    if scheduled:
        raise _Busy(
            f"{scheduled} scheduled messages of topic {topic} wait for their time; wait for them,"
            f" or release or cancel them (`penstock schedule list {topic}`)"
        )
    staged = sum(each.staged for each in held)
    if staged:
        raise _Busy(
            f"{staged} writes into topic {topic} are staged and not published; stop the job that"
            " writes them, or wait for it"
        )


def _check_whole(job: Reshard, partitions: Iterable[FencedPartition]) -> None:
    """Raise when the copy does not reach the ends that the partitions have confirmed."""
    copied: Mapping[TopicPartition, int] = offsets_from_json(job.copied())
    ends = {TopicPartition(job.plan.source, each.partition): each.end for each in partitions}
    if copied != ends:
        raise Conflict(f"topic {job.plan.source} is copied up to {copied}, it ends at {ends}")
