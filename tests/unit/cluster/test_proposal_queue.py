"""In which order proposals become entries."""

import asyncio
from collections.abc import Iterable

import pytest

from penstock.cluster import proposal_queue
from penstock.cluster.proposal import Proposal
from penstock.cluster.proposal_queue import ProposalQueue
from penstock.errors import NotLeader
from penstock.record import Record, encode_batch, split_batches


class Scene:
    """A queue, and proposals that are known by their names."""

    def __init__(self) -> None:
        self.queue = ProposalQueue()
        self._loop = asyncio.new_event_loop()
        self._names: dict[Proposal, str] = {}

    def records(self, name: str, *, producer_id: int = -1) -> Proposal:
        numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        sequence = numbers if producer_id >= 0 else {}
        batch = split_batches(encode_batch([Record(0, 0, None, name.encode(), ())], **sequence))[0]
        proposal = Proposal(self._loop.create_future(), batch, b"", len(batch.data))
        self.queue.add_records(self._named(name, proposal))
        return proposal

    def state(self, name: str, *, is_sequenced: bool = False, may_share: bool = False) -> Proposal:
        proposal = Proposal(
            self._loop.create_future(), None, name.encode(), len(name), may_share=may_share
        )
        self.queue.add_state(self._named(name, proposal), is_sequenced=is_sequenced)
        return proposal

    def _named(self, name: str, proposal: Proposal) -> Proposal:
        self._names[proposal] = name
        return proposal

    def taken(self) -> list[str]:
        return self._names_of(self.queue.take())

    def taken_sharing(self) -> list[str]:
        return self._names_of(self.queue.take_sharing())

    def _names_of(self, proposals: Iterable[Proposal]) -> list[str]:
        return [self._names[proposal] for proposal in proposals]

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def scene() -> Iterable[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def test_records_go_before_states(scene: Scene) -> None:
    scene.state("ack")
    scene.records("first")
    scene.records("second", producer_id=7)

    assert scene.taken() == ["first", "second", "ack"]
    assert not scene.queue
    assert scene.queue.size_bytes == 0


def test_no_batch_of_a_producer_overtakes_one_that_travels_as_a_state(scene: Scene) -> None:
    scene.records("before", producer_id=7)
    scene.state("scheduled", is_sequenced=True)
    scene.records("behind", producer_id=7)
    scene.records("without producer")
    scene.state("scheduled too", is_sequenced=True)
    scene.records("last", producer_id=7)

    assert scene.taken() == [
        "before", "without producer", "scheduled", "behind", "scheduled too", "last",
    ]  # fmt: skip


def test_once_they_are_taken_records_go_first_again(scene: Scene) -> None:
    scene.state("scheduled", is_sequenced=True)
    scene.taken()
    scene.state("ack")
    scene.records("behind", producer_id=7)

    assert scene.taken() == ["behind", "ack"]


def test_a_flush_takes_so_many_bytes_and_at_least_one_proposal(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = scene.records("a").size_bytes
    scene.records("b")
    scene.state("ack")
    monkeypatch.setattr(proposal_queue, "TAKEN_BYTES_MAX", size_bytes + 10)

    assert scene.taken() == ["a", "ack"]
    assert scene.queue.size_bytes == size_bytes
    monkeypatch.setattr(proposal_queue, "TAKEN_BYTES_MAX", 1)
    assert scene.taken() == ["b"]


def test_what_is_sequenced_waits_for_records_that_came_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = scene.records("a", producer_id=7).size_bytes
    scene.records("b", producer_id=7)
    scene.state("s", is_sequenced=True)
    monkeypatch.setattr(proposal_queue, "TAKEN_BYTES_MAX", size_bytes + 10)

    assert scene.taken() == ["a"]
    assert scene.taken() == ["b", "s"]


def test_states_that_may_share_an_entry_are_taken_without_what_came_before(scene: Scene) -> None:
    scene.records("first", producer_id=7)
    scene.state("scheduled", is_sequenced=True)
    scene.state("lease", may_share=True)
    scene.records("behind", producer_id=7)
    scene.state("ack", may_share=True)

    assert scene.taken_sharing() == ["lease", "ack"]
    assert scene.taken_sharing() == []
    assert scene.taken() == ["first", "scheduled", "behind"]
    assert scene.queue.size_bytes == 0


def test_everything_that_waits_is_refused(scene: Scene) -> None:
    waiting = [scene.records("a"), scene.state("s", is_sequenced=True)]
    error = NotLeader("another node leads")

    scene.queue.fail(error)

    assert [proposal.waiter.exception() for proposal in waiting] == [error, error]
    assert not scene.queue
