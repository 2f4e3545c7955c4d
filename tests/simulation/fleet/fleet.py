"""A fleet of whole nodes, those who use it, and how it all ends."""

import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from penstock.broker import Broker
from penstock.cluster import housekeeping
from penstock.cluster.described import Replicas
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import TopicMachine
from penstock.testing import Schedule, SimMachine, SimWires
from tests.simulation.fleet.actors import Actor, Founder, Operator, Writer
from tests.simulation.fleet.committers import Committer
from tests.simulation.fleet.consumers import Consumers
from tests.simulation.fleet.crews import Crew
from tests.simulation.fleet.filling import Filling, draw_filling
from tests.simulation.fleet.gazettes import Gazette
from tests.simulation.fleet.node import FleetNode
from tests.simulation.fleet.planners import Planner
from tests.simulation.fleet.referee import FleetReferee, content_of
from tests.simulation.fleet.stagers import Stager
from tests.simulation.fleet.weather import Weather
from tests.simulation.members import GroupsBooks
from tests.simulation.referee import Violation, require
from tests.simulation.world import Outcome, outcome_of

EVENTS_DEFAULT = 60_000
_FOREVER = 1 << 60
_PEACE_US = 500_000
_PEACE_ROUNDS = 240
_PEACE_ROUNDS_SLOW = 1_000
# Nodes that have nothing to do are quiet.
_PEACE_EVENTS_MAX = 20_000
# As few entries as make snapshots part of every history.
_REPLAYED_ENTRIES_MAX = 15


class Fleet:
    """Everything of one history; the seed decides all of it."""

    def __init__(
        self, seed: int, *, nodes: int | None = None, filling: Filling | None = None
    ) -> None:
        self.seed = seed
        self.filling = filling or draw_filling(seed)
        self.random = Random(seed)
        self.schedule = Schedule()
        self.wires = SimWires(self.schedule, self.random)
        self.referee = FleetReferee()
        self.done: Counter[str] = Counter()
        """What operators have asked for and got."""
        self.filled: Counter[str] = Counter()
        """How replicas were filled, step by step."""
        count = nodes or self.random.choice((1, 3, 3, 4, 5, 5))
        if nodes is None and self.filling.is_slow:
            # Partitions go back and forth, so there is a forth.
            count = max(count, 4)
        # Then partitions have three replicas; smaller ones are sooner led by old memberships.
        share = 0.3 if self.filling.is_slow else 0.5
        self.loses_memory = count >= 3 and self.random.random() < share
        """Whether disks are lost or damaged; then nothing is kept by one node alone."""
        self.is_quiet = False
        """Whether users are silent for a while."""
        self._first = range(1, count + 1)
        self.nodes = {name: self._new_node(name, peers=self._first) for name in self._first}
        self.removals: set[int] = set()
        """Nodes whose removal was asked for, whatever was answered."""
        self._switched_off: dict[int, FleetNode] = {}
        self.faults = Weather(self)
        self.founder = Founder(self, int(1_500_000 * (0.5 + self.random.random())))
        interval_us = int(40_000 * (1 + 4 * self.random.random()))
        self.writers = [Writer(self, interval_us) for _ in range(2)]
        self.operator = Operator(self, int(1_500_000 * (0.3 + 2 * self.random.random())))
        self.consumers = Consumers(self)
        self.committer = Committer(self, int(60_000 * (1 + 3 * self.random.random())))
        self.crew = Crew(self)
        self.planner = Planner(self, int(100_000 * (1 + 3 * self.random.random())))
        self.stagers = [
            Stager(self, int(150_000 * (1 + 3 * self.random.random())), writer)
            for writer in ("query", "other query")
        ]
        self.gazette = Gazette(self, 200_000)
        self._complaints = _Complaints()
        self._names = set(self._first)
        self._number = 0

    def _new_node(self, name: int, **whom: Any) -> FleetNode:
        return FleetNode(
            name,
            schedule=self.schedule,
            wires=self.wires,
            random=self.random,
            transfer_bytes_per_s=self.filling.transfer_bytes_per_s,
            **whom,
        )

    def add_node(self, join: int | None = None) -> None:
        """Let a machine join that nobody has heard of, by a node that it is told of."""
        name = max(*self.nodes, *self._names) + 1
        self._names.add(name)
        self.nodes[name] = self._new_node(name, join=join or self._some_other(name))
        self.nodes[name].start()

    def wipe(self, node: FleetNode) -> None:
        """Put an empty disk in the place of a machine's own, and tell it whom it can reach."""
        node.wipe()
        if not set(self._first) <= self.nodes.keys() or node.name not in self._first:
            node.tell(join=self._some_other(node.name))

    def _some_other(self, name: int) -> int:
        return self.random.choice([each for each in self.nodes if each != name])

    def switch_off(self, name: int) -> None:
        """Stop the machine of a node that was removed."""
        if name in self.nodes:
            self._switched_off[name] = self.nodes.pop(name)
            self._switched_off[name].stop()

    def follow_removals(self) -> None:
        """Switch off what was removed without an answer, and on what has joined again since."""
        for name in sorted(self.removals & self.nodes.keys()):
            others = self._known_nodes(apart_from=name)
            if others and all(name not in known for known in others):
                self.switch_off(name)
        for name in list(self._switched_off):
            if any(name in known for known in self._known_nodes(apart_from=name)):
                self.nodes[name] = self._switched_off.pop(name)
                self.nodes[name].start()

    def redirect_newcomers(self) -> None:
        """Tell nodes of another way in, where the node that they were to join has left."""
        serving = [name for name, node in self.nodes.items() if node.is_serving]
        for node in self.nodes.values():
            has_lost_way = node.joins is not None and node.joins not in self.nodes
            if has_lost_way and not node.is_serving and serving:
                node.stop()
                node.tell(join=self.random.choice(serving))

    def _known_nodes(self, *, apart_from: int) -> list[set[int]]:
        return [
            set(node.broker.metadata.nodes)
            for node in self.nodes.values()
            if node.is_serving and node.broker is not None and node.name != apart_from
        ]

    def next_number(self) -> int:
        """Return a number that nobody had before."""
        self._number += 1
        return self._number

    def is_worth_creating(self, nodes: int) -> bool:
        """Whether so many nodes are enough to keep a topic: one of them may lose its disk."""
        return nodes >= 3 or not self.loses_memory

    def draw_factor(self, nodes: int) -> int:
        """Draw how many replicas a partition is to have."""
        factors = (1, 1, 3, 3) if self.filling.is_slow else (1, 3, 3, 3)
        return min(nodes, 3 if self.loses_memory else self.random.choice(factors))

    @property
    def acked(self) -> list[bytes]:
        """All values whose publication was confirmed."""
        written = [value for writer in self.writers for value in writer.acked]
        return written + self.planner.acked

    @property
    def _actors(self) -> list[Actor]:
        return [
            self.founder,
            *self.writers,
            self.operator,
            self.committer,
            self.planner,
            *self.stagers,
            *([self.gazette] if self.filling.is_slow else ()),
        ]

    # A history.

    def run(self, events: int = EVENTS_DEFAULT) -> Outcome:
        """Let everything happen, then let it end well."""
        with self.surroundings():
            for node in self.nodes.values():
                node.start()
            for actor in self._actors:
                actor.begin()
            self.consumers.begin()
            self.crew.begin()
            if len(self.nodes) > 1:
                self.faults.begin()
            self.schedule.run(until_us=_FOREVER, events_max=events, after=self._check)
            self.conclude()
        return self.outcome()

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """Let chance come from the seed alone, and faults that nobody foresaw be seen."""
        with ExitStack() as stack:
            stack.enter_context(self.referee.watching())
            stack.enter_context(patch.object(uuid, "uuid4", self._draw_id))
            stack.enter_context(
                patch("penstock.cluster.identity._draw", lambda: self.random.getrandbits(63))
            )
            stack.enter_context(
                patch.object(housekeeping, "REPLAYED_ENTRIES_MAX", _REPLAYED_ENTRIES_MAX)
            )
            stack.enter_context(self.filling.in_force(self.filled))
            stack.enter_context(self._complaints.listening())
            yield

    def _draw_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def outcome(self, violation: str | None = None) -> Outcome:
        """What has happened so far."""
        return Outcome(
            self.seed,
            self.schedule.events,
            self.schedule.now_us / 1e6,
            self.faults.counts + self.done + self.filled + self._uses(),
            len(self.acked),
            self.consumers.acked,
            len(self.referee.leaders),
            hash((self.schedule.trace, len(self.referee.applied), len(self.acked))),
            violation,
        )

    def _uses(self) -> Counter[str]:
        """What users were told that is done, beside publishing."""
        return Counter(
            {
                "ack": self.consumers.acked,
                "commit of an offset": self.committer.confirmed,
                "cancellation": self.planner.cancelled,
                "heartbeat": self.crew.beats,
                "epoch": sum(len(stager.committed) for stager in self.stagers),
            }
        )

    def _check(self, machine: SimMachine) -> None:
        node = self.nodes.get(machine.name)
        if node is None:
            return
        if node.disk.is_stopped:
            # A task may have kept to itself that the machine is off.
            self._complaints.forget()
            node.stop()
        self._complaints.check()
        self.referee.check(node)

    def end(self) -> None:
        """End all lives, wherever they are."""
        for node in (*self.nodes.values(), *self._switched_off.values()):
            node.stop()

    # The end.

    def conclude(self) -> None:
        """Without faults the fleet becomes whole, and holds all that was ever acknowledged."""
        self.faults.end()
        for actor in self._actors:
            actor.is_stopping = True
        self.become_whole()
        self.consumers.drain()
        self.become_whole()
        self.crew.check_all()
        self.committer.check_all()
        for stager in self.stagers:
            stager.check_all()
        self._check_topics()
        self._check_acknowledged()
        self.gazette.check_all()

    def become_whole(self) -> None:
        """Let time pass until nothing is amiss any more."""
        rounds = _PEACE_ROUNDS_SLOW if self.filling.is_slow else _PEACE_ROUNDS
        for _ in range(rounds):
            if not self.what_is_missing():
                return
            self.advance(_PEACE_US)
            self.faults.repair()
        raise Violation(f"the fleet does not become whole: {self.what_is_missing()}")

    def advance(self, duration_us: int) -> None:
        """Let time pass."""
        self.schedule.run(
            until_us=self.schedule.now_us + duration_us,
            events_max=self.schedule.events + _PEACE_EVENTS_MAX,
            after=self._check,
        )

    def what_is_missing(self) -> str:
        """Say what keeps the fleet from being whole; empty when nothing does."""
        for node in self.nodes.values():
            if not node.is_serving or node.broker is None:
                return f"node {node.name} does not serve"
            if node.broker.cluster.failures:
                return f"node {node.name} has failures {node.broker.cluster.failures}"
        versions = {node.broker.metadata.snapshot() for node in self.nodes.values() if node.broker}
        if len(versions) > 1:
            return "the metadata differs"
        return next((lack for each in self._all_replicas() if (lack := self._lack(each))), "")

    def _all_replicas(self) -> list[Replicas]:
        return list(self.any_broker().metadata.all_replicas())

    def any_broker(self) -> Broker:
        """Some node, where all have the same metadata."""
        broker = next(iter(self.nodes.values())).broker
        assert broker is not None
        return broker

    def books_of_group(self, broker: Broker, group: str) -> GroupsBooks:
        """Return the books of the shard that keeps a consumer group."""
        shard = broker.metadata.shards[broker.groups.shard_of(group)]
        return self.referee.shards[shard.group]

    def _lack(self, replicas: Replicas) -> str:
        if replicas.leaving or replicas.former:
            return f"group {replicas.group} is still being moved: {replicas}"
        logs = self.logs_of(replicas)
        if len(logs) < len(replicas.members):
            return f"group {replicas.group} is open on {len(logs)} of {replicas.nodes}"
        if {log.applied_index for log in logs} != {logs[0].raft.last_index}:
            return f"group {replicas.group} has applied {[log.applied_index for log in logs]}"
        for log in logs:
            voters = {tuple(each) for each in log.raft.membership.voters}
            if voters != set(replicas.members):
                return f"{log.name} has the voters {voters}, {replicas.members} are wanted"
        if not any(log.is_serving for log in logs):
            return f"group {replicas.group} has no leader"
        return ""

    def logs_of(self, replicas: Replicas) -> list[ReplicatedLog]:
        logs = []
        for node_id in replicas.nodes:
            node = self.nodes.get(node_id)
            broker = node and node.broker
            log = broker and broker.cluster.replicas.by_group.get(replicas.group)
            if log:
                logs.append(log)
        return logs

    def open_writes(self, home: str) -> bool:
        """Whether anything is decided and not finished at the home of writers."""
        topic = self.any_broker().metadata.topics.get(home)
        logs = [] if topic is None else self.logs_of(topic.replicas[0])
        machines = [log.machine for log in logs if isinstance(log.machine, TopicMachine)]
        return any(machine.decisions.open for machine in machines)

    def contents_of(self, name: str) -> Iterator[list[bytes]]:
        """Yield all partitions of a topic, as each of their replicas holds them."""
        topic = self.any_broker().metadata.topics.get(name)
        if topic is not None:
            replicas = [self.logs_of(each) for each in topic.replicas]
            for number in range(max(map(len, replicas))):
                yield [content_of(logs[min(number, len(logs) - 1)]) for logs in replicas]

    def _check_topics(self) -> None:
        there = {topic.topic_id for topic in self.any_broker().metadata.topics.values()}
        lost = self.founder.created - self.founder.doomed - there
        require(not lost, "topics are gone that nobody deleted", lost)

    def _check_acknowledged(self) -> None:
        """Every acknowledged value is in the log of each replica, unless its topic was deleted."""
        held = {
            replicas.group: [content_of(log) for log in self.logs_of(replicas)]
            for replicas in self._all_replicas()
        }
        for value in self.acked:
            groups = self.referee.groups_of.get(value, set())
            if not groups and self._is_cancelled(value):
                continue
            require(bool(groups), "an acknowledged value was never committed", value)
            for group in groups:
                if group in held:
                    require(
                        all(content.count(value) == 1 for content in held[group]),
                        "an acknowledged value is not in every replica once",
                        value,
                        group,
                        [content.count(value) for content in held[group]],
                    )
                else:
                    require(
                        self.referee.topic_of[group] in self.founder.doomed,
                        "an acknowledged value is gone with its group",
                        value,
                        group,
                    )

    def _is_cancelled(self, value: bytes) -> bool:
        """Whether a message that waited was cancelled, or went with its topic."""
        group = self.referee.scheduled_in.get(value)
        if group is None:
            return False
        is_doomed = self.referee.topic_of[group] in self.founder.doomed
        return is_doomed or value in self.referee.shelf.by_group[group].cancelled.values()


class _Complaints(logging.Handler):
    """Notes what the nodes log as a fault of their own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._heard: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.CRITICAL:
            self._heard.append(record)

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("penstock")
        level, disabled = logger.level, logging.root.manager.disable
        logging.disable(logging.NOTSET)
        logger.setLevel(logging.ERROR)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)
            logging.disable(disabled)

    def forget(self) -> None:
        """What a machine says that goes off at this moment is nothing to go by."""
        self._heard.clear()

    def check(self) -> None:
        """Raise what was heard first."""
        if self._heard:
            record = self._heard[0]
            cause = record.exc_info[1] if record.exc_info else None
            raise Violation(f"a node complains: {record.getMessage()}: {cause!r}") from cause


def play(seed: int, *, events: int = EVENTS_DEFAULT, nodes: int | None = None) -> Outcome:
    """Play one history; a violation is part of the outcome."""
    return outcome_of(Fleet(seed, nodes=nodes), events)
