from random import Random

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import Append, Entry, EntryKind, Message, TimeoutNow
from penstock.testing import Schedule, SimLoop, SimMachine, SimNetwork


class Pair:
    """Two nodes; what reaches the second is kept."""

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.network = SimNetwork(self.schedule, Random(1))
        self.received: list[Message] = []
        self.heard: list[tuple[NodeId, bytes, bool]] = []
        self.arrived_us = 0
        for name in (1, 2):
            machine = SimMachine(name)
            machine.start(SimLoop(self.schedule, machine, delay_us=lambda: 1))
            self.network.join(NodeId(name), machine, self._receive, self._hear)

    def _receive(self, group: int, message: Message) -> None:
        assert group == 7
        self.received.append(message)
        self.arrived_us = self.schedule.now_us

    def _hear(self, sender: NodeId, body: bytes, is_answer: bool) -> None:
        self.heard.append((sender, body, is_answer))

    def send(self, message: Message, times: int = 1) -> None:
        for _ in range(times):
            self.network.send(7, message)
        self.schedule.run(until_us=self.schedule.now_us + 1_000_000, events_max=10_000)


def timeout_now(term: int = 1) -> TimeoutNow:
    return TimeoutNow(NodeId(1), NodeId(2), Term(term))


def test_a_beat_arrives_unless_its_way_is_cut() -> None:
    pair = Pair()
    pair.network.send_beat(NodeId(1), NodeId(2), b"beat", is_answer=False)
    pair.network.cuts = {(1, 2)}
    pair.network.send_beat(NodeId(1), NodeId(2), b"lost", is_answer=False)
    pair.network.send_beat(NodeId(2), NodeId(1), b"answer", is_answer=True)
    pair.schedule.run(until_us=1_000_000, events_max=100)

    assert sorted(pair.heard) == [(1, b"beat", False), (2, b"answer", True)]
    assert pair.network.others(NodeId(1)) == [2]


def test_a_message_arrives_after_its_time_on_the_way() -> None:
    pair = Pair()
    pair.send(timeout_now())

    assert pair.received == [timeout_now()]
    assert 250 <= pair.arrived_us <= 750


def test_an_append_arrives_as_bytes_of_its_own() -> None:
    pair = Pair()
    payload = bytearray(b"payload")
    entry = Entry(EntryIndex(1), Term(1), EntryKind.STATE, len(payload), payload)
    append = Append(NodeId(1), NodeId(2), Term(1), EntryIndex(0), Term(0), EntryIndex(0), [entry])
    pair.network.send(7, append)
    payload[:] = b"changed"
    pair.send(append, times=0)

    (received,) = pair.received
    assert isinstance(received, Append)
    assert bytes(received.entries[0].payload) == b"payload"


def test_a_cut_is_one_way_and_ends() -> None:
    pair = Pair()
    pair.network.cuts = {(1, 2)}
    pair.send(timeout_now())
    pair.send(TimeoutNow(NodeId(2), NodeId(1), Term(2)))
    pair.network.cuts = set()
    pair.send(timeout_now(3))

    assert [message.term for message in pair.received] == [2, 3]
    assert pair.network.lost == 1


def test_an_isolated_node_neither_sends_nor_receives() -> None:
    pair = Pair()
    pair.network.isolate(2)
    pair.send(timeout_now())
    pair.send(TimeoutNow(NodeId(2), NodeId(1), Term(2)))

    assert pair.received == []


def test_messages_are_lost_repeated_and_reordered_at_the_chosen_rates() -> None:
    pair = Pair()
    pair.network.loss = pair.network.repetition = pair.network.slowness = 0.2
    for term in range(1000):
        pair.network.send(7, timeout_now(term))
    pair.send(timeout_now(), times=0)

    terms = [message.term for message in pair.received]
    assert 120 < pair.network.lost < 280
    assert 100 < pair.network.repeated < 240
    assert len(terms) == 1000 - pair.network.lost + pair.network.repeated
    assert terms != sorted(terms)
