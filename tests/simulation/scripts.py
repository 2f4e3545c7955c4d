"""Histories that random search reaches rarely, step by step.

A script decides who is cut off, who campaigns and when a machine stops; everything else is the same
world, with the same referee looking on.
"""

import asyncio
from typing import Any

from penstock.cluster.topic_machine import encode_start_moved
from penstock.delivery import GroupSettings
from penstock.errors import Conflict, PenstockError, StorageFailed
from penstock.ids import EntryIndex, NodeId, Offset, Term
from penstock.log import LogSettings
from penstock.raft import Append, Membership, Message, Role, VoteRequest
from penstock.record import Record, RecordBatch, encode_batch, read_header
from tests.simulation.node import LOG, RAFT, TICK_US, Node, WatchedLog
from tests.simulation.referee import require
from tests.simulation.workloads import Workload
from tests.simulation.world import World

_PATIENCE_TICKS = 400


class Stage:
    """A quiet world, moved by hand."""

    def __init__(
        self,
        nodes: int,
        voters: int | None = None,
        *,
        seed: int = 1,
        settings: LogSettings = LOG,
        workload: Workload = Workload.RECORDS,
        groups: dict[str, GroupSettings] | None = None,
    ) -> None:
        self.world = World(seed, nodes=nodes, settings=settings, workload=workload, groups=groups)
        self.world.faults.end()
        if voters is not None:
            self._found_again(voters)
        self.network = self.world.network
        self.acked: dict[int, bytes] = {}

    def _found_again(self, voters: int) -> None:
        """Begin with fewer voters; the other nodes belong to no group yet."""
        world = self.world
        for name in list(world.nodes):
            world.nodes[name].machine.stop()
            world.new_node(name)
        members = [world.nodes[name].member for name in range(1, voters + 1)]
        for name, node in world.nodes.items():
            node.founders = Membership.of(members) if name <= voters else None
            node.start()

    def __getitem__(self, name: int) -> Node:
        return self.world.nodes[name]

    def log(self, name: int) -> WatchedLog:
        log = self[name].log
        assert log is not None
        return log

    def tick(self, ticks: int = 1) -> None:
        """Let time pass."""
        self.world.advance(ticks * TICK_US)

    def until(self, *names: int, leads: int) -> None:
        """Let time pass until a node leads and the named ones have applied all that it has."""
        for _ in range(_PATIENCE_TICKS):
            log = self.log(leads)
            if log.is_serving and all(
                self.log(name).applied_index == log.raft.last_index for name in names
            ):
                return
            self.tick()
        raise AssertionError(f"node {leads} does not lead, or {names} do not follow")

    def elect(self, name: int) -> None:
        """Let a node campaign while nobody protects an old leader."""
        for node in self.world.nodes.values():
            if node.log is not None:
                node.log.wake()
                node.log.raft._elapsed = RAFT.election_ticks
        self[name].soon(self._campaign, name)
        self.tick()

    def win(self, name: int) -> None:
        """Let a node campaign until it leads; the first attempt may only teach it the term."""
        for _ in range(4):
            if self.log(name).raft.role is Role.LEADER:
                return
            self.elect(name)
        raise AssertionError(f"node {name} is not elected")

    def _campaign(self, name: int) -> None:
        log = self.log(name)
        log.raft._hold_trial()
        log._pump()

    def cut(self, *groups: set[int]) -> None:
        """Cut the network into groups; whoever is in none is alone."""
        names = list(self.world.nodes)
        together = {(a, b) for group in groups for a in group for b in group}
        self.network.cuts = {(a, b) for a in names for b in names if (a, b) not in together}

    def heal(self) -> None:
        """Join everyone again."""
        self.network.cuts = set()
        self.network.passes = None

    def publish(
        self, name: int, value: bytes, sequence: int | None = None, *, key: bytes | None = None
    ) -> "asyncio.Future[Offset]":
        """Publish one record through a node and remember it when it is acknowledged.

        With a sequence it comes from an idempotent producer.
        """
        producer = (
            {}
            if sequence is None
            else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        )
        data = encode_batch([Record(0, 0, key, value)], **producer)
        batch = RecordBatch(read_header(data), memoryview(data))
        answers: list[asyncio.Future[Offset]] = []

        def publish() -> None:
            partition = self[name].partition
            assert partition is not None
            try:
                future = partition.publish(batch)
            except PenstockError as refusal:
                future = partition.log._workplace.loop.create_future()
                future.set_exception(refusal)
            future.add_done_callback(lambda done: self._note(done, value))
            answers.append(future)

        self[name].soon(publish)
        self.world.advance(1)
        return answers[0]

    def _note(self, done: "asyncio.Future[Offset]", value: bytes) -> None:
        if done.exception() is None:
            self.acked[done.result()] = value

    def propose_membership(self, name: int, membership: Membership) -> bool:
        """Change the members through a node; False when consensus refuses."""
        outcome: list[bool] = []

        def propose() -> None:
            log = self.log(name)
            try:
                log.raft.propose_membership(membership)
            except Conflict:
                outcome.append(False)
                return
            outcome.append(True)
            log._pump()

        self[name].soon(propose)
        self.world.advance(1)
        return outcome[0]

    def power_off(self, name: int) -> None:
        """Cut a node's power."""
        self[name].cuts_power = True
        self[name].stop()

    def wipe(self, name: int) -> None:
        """Put a machine with an empty disk in a node's place."""
        self.world.faults._replace(self[name])

    def settle(self) -> None:
        """Join everyone, let them agree, and look for all that was acknowledged."""
        self.heal()
        for node in self.world.nodes.values():
            node.disk.run_on()
            node.start()
        self.tick(150)
        referee = self.world.referee
        leader = self.world.leader()
        assert leader is not None, "nobody leads in the end"
        self.publish(leader.name, b"the end")
        self.tick(20)
        for offset, value in self.acked.items():
            assert value in referee.batches[offset], f"{value!r} is not at {offset}"
        assert b"the end" in self.acked.values(), "no progress in the end"


def figure_8() -> None:
    """An entry of an old term is on a majority and is still replaced (section 5.4.2)."""
    stage = Stage(5)
    stage.elect(1)
    stage.until(1, 2, 3, 4, 5, leads=1)
    # (a) The leader has an entry on two nodes. It is large, so that it travels alone.
    stage.cut({1, 2})
    stage.publish(1, bytes(RAFT.append_bytes_max))
    stage.tick(3)
    stage.power_off(1)
    # (b) Another leader, elected by the rest, has an entry of its own and stops.
    stage.cut({3, 4, 5})
    stage.network.passes = lambda message: not isinstance(message, Append)
    stage.elect(5)
    stage.tick(2)
    assert stage.log(5).raft.role is Role.LEADER
    stage.power_off(5)
    # (c) The first leads again and brings its old entry to a majority, and nothing newer.
    stage[1].start()
    stage.cut({1, 2, 3, 4})
    stage.network.passes = _nothing_above(stage, stage.log(1).raft.last_index)
    stage.win(1)
    stage.tick(6)
    assert stage.log(3).raft.last_index == stage.log(1).raft.last_index - 1
    stage.power_off(1)
    # (d) The other one comes back and replaces it.
    stage[5].start()
    stage.heal()
    stage.cut({2, 3, 4, 5})
    stage.win(5)
    stage.until(3, 4, 5, leads=5)
    stage.settle()


def _nothing_above(stage: Stage, index: int) -> Any:
    """Let newer entries pass only where they are refused because older ones are missing."""

    def passes(message: Message) -> bool:
        if not isinstance(message, Append) or all(one.index <= index for one in message.entries):
            return True
        return stage.log(message.to).raft.last_index < message.prev_index

    return passes


def aba_appends() -> None:
    """A follower's slow disk is given A, then B, then A once more, at the same place.

    The first leader has forgotten its second entry, and its next term opens there.
    """
    stage = Stage(5)
    stage.win(1)
    stage.until(1, 2, 3, 4, 5, leads=1)
    stage.cut({1, 5})
    stage[5].disk_us = 300_000
    stage.publish(1, b"A")
    stage.tick()
    stage[1].disk_us = 1_000_000
    stage.publish(1, b"forgotten")
    stage.tick()
    stage.power_off(1)
    stage[1].disk_us = 300
    stage[1].start()
    # B: the opening entry of another leader, which reaches the slow follower only.
    stage.cut({2, 3, 4, 5})
    stage.network.passes = lambda message: not isinstance(message, Append) or message.to == 5
    stage.win(3)
    stage.tick(2)
    # A once more, and the opening entry of the first leader's new term.
    stage.cut({1, 2, 4, 5})
    stage.network.passes = _no_appends_to(4)
    stage.win(1)
    stage.tick(60)
    stage[5].disk_us = 300
    stage.settle()


def _resting_stage() -> Stage:
    """A group of three that rests under its first node."""
    stage = Stage(3)
    stage.elect(1)
    stage.until(1, 2, 3, leads=1)
    stage.publish(1, b"before")
    stage.tick(5 * RAFT.election_ticks)
    assert all(stage.log(name).rest is not None for name in (1, 2, 3)), "nobody rests"
    return stage


def _expect_another_leader(stage: Stage) -> None:
    """Within twice the longest election timeout somebody else serves."""
    for _ in range(4 * RAFT.election_ticks):
        stage.tick()
        if any(node.log and node.log.is_serving for node in stage.world.nodes.values()):
            break
    leader = stage.world.leader()
    assert leader is not None, "nobody leads"
    stage.publish(leader.name, b"after")
    stage.settle()


def resting_leader_loses_power() -> None:
    """No link breaks: the followers have nothing but the silence."""
    stage = _resting_stage()
    stage.power_off(1)
    _expect_another_leader(stage)


def resting_leader_restarts_at_once() -> None:
    """The node is heard of all the time, and has forgotten that it led."""
    stage = _resting_stage()
    stage.power_off(1)
    stage[1].start()
    _expect_another_leader(stage)


def resting_leader_closes_its_replica() -> None:
    """Its node is heard of all the time, and no longer names the group."""
    stage = _resting_stage()
    stage[1].soon(stage.log(1).fail, StorageFailed("the disk failed"))
    _expect_another_leader(stage)


def resting_leader_is_cut_off() -> None:
    """It still runs, and stops leading when it has not heard from a majority."""
    stage = _resting_stage()
    stage.cut({2, 3})
    stage.tick(4 * RAFT.election_ticks)
    assert stage.log(1).raft.role is not Role.LEADER
    _expect_another_leader(stage)


def resting_follower_is_gone_for_a_while() -> None:
    """The leader wakes, and goes on with the other one."""
    stage = _resting_stage()
    stage.power_off(3)
    stage.tick(3 * RAFT.election_ticks)
    assert stage.log(1).rest is None
    assert stage.log(1).is_serving
    stage[3].start()
    stage.tick(5 * RAFT.election_ticks)
    assert all(stage.log(name).rest is not None for name in (1, 2, 3)), "nobody rests again"
    stage.publish(1, b"after")
    stage.settle()


def membership_change_in_a_partition() -> None:
    """A leader that is cut off changes the members; so does the one that replaces it."""
    stage = Stage(3)
    stage.elect(1)
    stage.until(1, 2, 3, leads=1)
    membership = stage.log(1).raft.membership
    stage.cut({2, 3})
    assert stage.propose_membership(1, membership.without(NodeId(2)))
    stage.elect(2)
    stage.until(3, leads=2)
    assert stage.propose_membership(2, membership.without(NodeId(1)))
    stage.until(3, leads=2)
    stage.publish(2, b"kept")
    stage.tick(10)
    assert b"kept" in stage.acked.values()
    stage.settle()


def change_before_the_first_commit() -> None:
    """A new leader changes the members before it has committed anything (correction of 2015)."""
    stage = Stage(5, voters=4)
    stage.elect(1)
    stage.until(1, 2, 3, 4, leads=1)
    four = stage.log(1).raft.membership
    assert stage.propose_membership(1, four.with_learner(stage[5].member))
    stage.until(1, 2, 3, 4, 5, leads=1)
    five = stage.log(1).raft.membership.with_voter(stage[5].member)
    stage.cut({1, 5})
    assert stage.propose_membership(1, five)
    stage.tick(2)
    # The second leads by the votes of the third and the fourth, and reaches the third only.
    stage.network.cuts -= {(2, 3), (3, 2), (2, 4), (4, 2)}
    stage.network.passes = _no_appends_to(4)
    stage.elect(2)
    stage.tick(2)
    stage.propose_membership(2, stage.log(2).raft.membership.without(NodeId(1)))
    publish_quietly(stage, 2, b"committed by two")
    stage.tick(10)
    # The first comes back with its own idea of the members.
    stage.cut({1, 4, 5})
    stage.network.passes = None
    stage.elect(1)
    stage.tick(30)
    stage.settle()


def _no_appends_to(name: int) -> Any:
    def passes(message: Message) -> bool:
        return not (isinstance(message, Append) and message.to == name)

    return passes


def vote_in_the_page_cache() -> None:
    """A killed process has written a vote and not synced it; the next one acts on it."""
    stage = Stage(3)
    stage.tick(1)
    voter = stage[2]
    request = VoteRequest(
        NodeId(1), NodeId(2), Term(1), EntryIndex(0), Term(0), is_trial=False, is_transfer=False
    )
    stage.cut()
    voter.disk.stop_before(1)
    voter.soon(voter._receive, 7, request)
    stage.tick(1)
    assert not voter.is_on
    voter.start()
    voter.soon(voter._receive, 7, request)
    stage.tick(1)
    stage.settle()


def vote_while_the_disk_is_full() -> None:
    """A node whose entries find no room votes, tries its entries again, and is killed."""
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    voter = stage[3]
    voter.disk.capacity_bytes = voter.disk.used_bytes()
    # The term comes with its first entry, and the records behind that wait for another flush.
    stage.network.passes = lambda message: (
        not (isinstance(message, VoteRequest) and message.to == 3)
    )
    stage.win(2)
    term = stage.log(2).term
    stage.publish(2, b"no room")
    stage.tick(5)
    assert stage.log(3).raft.last_index == stage.log(2).raft.last_index
    stage.cut({1, 3})
    stage.network.passes = None
    stage.win(1)
    assert stage.log(3).raft.vote == 1
    # A disk that was full is tried again after a while.
    stage.tick(60)
    assert stage.log(3).log.last_term < term
    voter.stop()
    voter.disk.capacity_bytes = None
    voter.start()
    stage.settle()


def wiped_node_is_asked_for_its_vote() -> None:
    """A committed entry is on a leader that is cut off and on a node that loses its disk."""
    stage = Stage(3)
    stage.elect(1)
    stage.until(1, 2, 3, leads=1)
    stage.cut({1, 2})
    stage.publish(1, b"committed")
    stage.tick(10)
    assert b"committed" in stage.acked.values()
    stage.wipe(2)
    stage.cut({2, 3})
    stage.elect(3)
    stage.tick(60)
    assert stage.log(3).raft.role is not Role.LEADER
    stage.settle()


def wiped_node_acknowledges() -> None:
    """A node with an empty disk stores what its leader sends, and is not counted."""
    stage = Stage(3)
    stage.elect(1)
    stage.until(1, 2, 3, leads=1)
    stage.wipe(2)
    stage.power_off(1)
    stage[1].start()
    stage.elect(1)
    stage.until(1, 3, leads=1)
    stage.cut({1, 2})
    stage.publish(1, b"on one disk that counts")
    stage.tick(8)
    assert stage.acked == {}
    stage.settle()


def leader_stops_before(operation: int) -> None:
    """The leader's power is cut between any two disk operations of a publish."""
    stage = Stage(3)
    stage.elect(1)
    stage.until(1, 2, 3, leads=1)
    stage.publish(1, b"first")
    stage.tick(5)
    stage[1].cuts_power = True
    stage[1].disk.stop_before(operation)
    stage.publish(1, b"second")
    stage.tick(5)
    if stage[1].is_on:
        stage.power_off(1)
    stage.tick(60)
    stage.settle()
    assert b"first" in stage.acked.values()


def everyone_stops_before(operation: int) -> None:
    """All nodes lose their power at the same step of an election and of the publish after it."""
    stage = Stage(3)
    for node in stage.world.nodes.values():
        node.cuts_power = True
        node.disk.stop_before(operation)
    stage.elect(1)
    stage.tick(5)
    if stage[1].log is not None and stage.log(1).is_serving:
        stage.publish(1, b"maybe")
    stage.tick(20)
    stage.settle()


def page_cache_of_a_failed_sync() -> None:
    """A sync fails, the process is killed and started again, and then the power goes."""
    for node in (1, 2):
        stage = Stage(3)
        stage.elect(1)
        stage.until(1, 2, 3, leads=1)
        stage.cut({1, 2})
        stage[node].disk.fail_sync()
        stage.publish(1, b"maybe")
        stage.tick(5)
        stage[node].stop()
        stage[node].start()
        stage.elect(1)
        stage.tick(30)
        stage.power_off(node)
        stage[node].start()
        stage.settle()


def records_behind_state_on_a_slow_disk() -> None:
    """Slow followers are given records, state and records: one flush cannot take all of it."""
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage[2].disk_us = stage[3].disk_us = 50_000
    stage.publish(1, b"before")
    stage.tick()
    stage[1].soon(stage.log(1).propose_state, encode_start_moved(Offset(0)))
    stage.tick()
    stage.publish(1, b"behind")
    stage.tick(60)
    assert b"behind" in stage.acked.values()
    stage.settle()


def rot_in_what_a_follower_lacks() -> None:
    """A bit flips on the leader's disk in an entry that it has to read for a follower."""
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.cut({1, 2})
    stage.publish(1, b"to be damaged")
    stage.tick(5)
    stage.publish(1, b"whole")
    stage.tick(5)
    rotten = stage[1]
    (path,) = [path for path in rotten.disk.files(rotten.directory) if path.suffix == ".log"]
    rotten.is_rotten = True
    rotten.disk.flip_bit(path, rotten.disk.content(path).index(b"damaged"))
    stage.heal()
    stage.tick(60)
    assert stage.log(1).failure is not None
    assert stage.log(3).raft.last_index >= stage.log(2).raft.last_index - 1
    stage.settle()


def rot_in_the_last_flush() -> None:
    """A bit flips in the newest entry of a killed leader, and one of two followers lacks the entry.

    Recovery takes the entry for a torn write. Elected by the follower that lacks it, too, the old
    leader would replace what the other follower acknowledged with it.
    """
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.cut({1, 2})
    stage.publish(1, b"newest")
    stage.tick(5)
    assert b"newest" in stage.acked.values()
    rotten = stage[1]
    (path,) = [path for path in rotten.disk.files(rotten.directory) if path.suffix == ".log"]
    rotten.is_rotten = True
    rotten.disk.flip_bit(path, rotten.disk.content(path).index(b"newest"))
    rotten.stop()
    stage.cut({1, 3})
    rotten.start()
    for _ in range(2):
        stage.tick(3 * RAFT.election_ticks)
        # What it may have lost must not be forgotten with the next start.
        rotten.stop()
        rotten.start()
    stage.settle()


def rot_in_a_followers_last_flush() -> None:
    """A bit flips in the newest entry of a killed follower, and its leader stays in office.

    Recovery takes the entry for a torn write. The leader has counted it and must send it again,
    also when nothing else is to be sent.
    """
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.publish(1, b"newest")
    stage.until(1, 2, 3, leads=1)
    term, whole = stage.log(1).raft.term, stage.log(2).raft.last_index
    rotten = stage[2]
    (path,) = [path for path in rotten.disk.files(rotten.directory) if path.suffix == ".log"]
    rotten.is_rotten = True
    rotten.stop()
    rotten.disk.flip_bit(path, rotten.disk.content(path).index(b"newest"))
    rotten.start()
    assert stage.log(2).raft.last_index == whole - 1, "the entry is cut"
    stage.tick(2 * RAFT.election_ticks)
    require(stage.log(2).raft.last_index == whole, "a follower is never sent what it lost")
    assert stage.log(1).raft.term == term, "nobody had to be elected"
    stage.settle()


def conflicting_entries_are_cut_before_a_restart() -> None:
    """A leader that was alone has flushed entries, one by one, and cuts them for another's one.

    What is left of them must not speak for entries that the log does not have.
    """
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.cut({2, 3})
    for number in range(3):
        stage.publish(1, b"alone %d" % number)
        stage.tick()
    stage.win(2)
    stage.until(2, 3, leads=2)
    stage.heal()
    stage.until(1, 2, 3, leads=2)
    stage[1].stop()
    stage[1].start()
    require(stage[1].is_on, "a replica that has cut entries does not open again")
    stage.settle()


def handover_that_is_given_up() -> None:
    """A leader refuses batches while it hands over; earlier ones of the producer are under way.

    When the handover is given up, the producer sends all of them again, and none is stored twice.
    """
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.network.passes = lambda message: not isinstance(message, Append)
    first = stage.publish(1, b"first", sequence=0)
    stage.tick(2)
    stage[1].soon(stage.log(1).raft.transfer_leader, NodeId(2))
    stage.tick()
    refused = stage.publish(1, b"second", sequence=1)
    assert refused.exception() is not None
    assert not first.done()
    stage.tick(RAFT.election_ticks)
    assert stage.log(1).is_serving
    stage.publish(1, b"first", sequence=0)
    stage.publish(1, b"second", sequence=1)
    stage.heal()
    stage.tick(10)
    batches = stage.world.referee.batches.values()
    assert [sum(value in batch for batch in batches) for value in (b"first", b"second")] == [1, 1]
    stage.settle()


def node_stops_in_order_after(events: int, *, are_answers_lost: bool) -> None:
    """A node hands over and ends while an idempotent producer has batches under way.

    The producer sends to the next leader, in order, whatever it has no answer for.
    """
    stage = Stage(3)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    values = [b"batch %d" % sequence for sequence in range(7)]
    answers = [stage.publish(1, values[sequence], sequence) for sequence in range(5)]
    _let_happen(stage, events)
    stage[1].soon(lambda: stage.log(1).transfer_leader(NodeId(2)))
    answers += [stage.publish(1, values[sequence], sequence) for sequence in (5, 6)]
    _let_happen(stage, events)
    stage[1].stop()

    for sequence, first in enumerate(answers):
        is_known = first.done() and first.exception() is None
        if are_answers_lost or not is_known:
            _publish_again(stage, values[sequence], sequence)

    stage.settle()
    stored = [batch for _, batch in sorted(stage.world.referee.batches.items())]
    found = [value for batch in stored for value in values if value in batch]
    assert found == values, found


def _let_happen(stage: Stage, events: int) -> None:
    schedule = stage.world.schedule
    schedule.run(
        until_us=schedule.now_us + 1_000_000,
        events_max=schedule.events + events,
        after=stage.world._check,
    )


def _publish_again(stage: Stage, value: bytes, sequence: int) -> None:
    """Publish through whoever leads until that succeeds."""
    for _ in range(_PATIENCE_TICKS):
        leader = stage.world.leader()
        if leader is not None:
            answer = stage.publish(leader.name, value, sequence)
            stage.tick(2)
            if answer.done() and answer.exception() is None:
                return
        stage.tick()
    raise AssertionError(f"{value!r} is never accepted")


def publish_quietly(stage: Stage, name: int, value: bytes) -> None:
    """Publish through a node that may not lead."""
    partition = stage[name].partition
    try:
        assert partition is not None
        partition.log.check_serving()
    except PenstockError:
        return
    stage.publish(name, value)
