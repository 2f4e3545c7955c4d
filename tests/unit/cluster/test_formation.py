"""How nodes come to belong to one cluster, whoever crashes or loses its disk on the way."""

import itertools
from random import Random

import pytest

from penstock.cluster import formation as formation_module
from penstock.cluster.formation import Formation
from penstock.cluster.links import Hello
from penstock.errors import Conflict
from penstock.ids import NodeId
from penstock.raft import Incarnation, Member, Membership

FIRST = frozenset({1, 2, 3})


class Node:
    """A node with a disk for what it has written down, and a memory that a crash empties."""

    def __init__(self, number: int, first_nodes: frozenset[int] = FIRST) -> None:
        self.first_nodes = first_nodes
        self.lives = itertools.count(1)
        self.number = number
        self.wipe()

    def wipe(self) -> None:
        """Lose the disk and come back with another incarnation."""
        incarnation = Incarnation(100 * self.number + next(self.lives))
        self.member = Member(NodeId(self.number), incarnation)
        self.written: tuple[str, Membership] | None = None
        self.restart()

    def restart(self) -> None:
        self.formation = Formation(self.member, self.first_nodes)
        if self.written is not None:
            self.formation.adopt(*self.written)

    def hear(self, hello: Hello) -> None:
        """Take in a hello and act on it, as `Cluster` does."""
        self.formation.heard(hello)
        if self.formation.founding is None:
            decision = self.formation.decide()
            if decision is not None:
                self.written = decision
                self.formation.adopt(*decision)

    @property
    def founding(self) -> Membership | None:
        return self.formation.founding


def nodes(numbers: frozenset[int] = FIRST) -> dict[int, Node]:
    return {number: Node(number, numbers) for number in sorted(numbers)}


def talk(*speakers: Node) -> None:
    """Let everyone hear everyone until there is nothing new to say."""
    for _ in range(3):
        for listener, speaker in itertools.permutations(speakers, 2):
            listener.hear(speaker.formation.hello())


def members(*group: Node) -> Membership:
    return Membership.of([node.member for node in group])


def test_the_smallest_founds_when_it_has_heard_from_all_and_the_others_adopt() -> None:
    one, two, three = nodes().values()
    talk(one, two)
    talk(one, three)
    assert one.founding is not None

    one, two, three = nodes().values()
    talk(one, two)
    talk(two, three)
    assert [one.founding, two.founding, three.founding] == [None, None, None]
    assert one.formation.missing == [3]
    talk(one, three)
    talk(one, two)

    assert one.founding == two.founding == three.founding == members(one, two, three)
    assert len({node.formation.cluster_id for node in (one, two, three)}) == 1


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_all_agree_in_whatever_order_they_meet(order: tuple[int, ...]) -> None:
    group = nodes()
    random = Random(str(order))
    meetings = [pair for pair in itertools.permutations(order, 2) for _ in range(4)]
    random.shuffle(meetings)
    for listener, speaker in meetings:
        group[listener].hear(group[speaker].formation.hello())
    talk(*group.values())

    assert {node.formation.cluster_id for node in group.values()} == {group[1].formation.cluster_id}
    assert all(node.founding == members(*group.values()) for node in group.values())


def test_a_node_without_peers_is_alone_and_founds_by_itself() -> None:
    alone = Formation(Member(NodeId(4), Incarnation(1)), frozenset())

    assert alone.is_alone
    assert alone.missing == []
    assert not Formation(Member(NodeId(4), Incarnation(1)), frozenset({5})).is_alone


def test_a_founder_that_crashes_before_the_membership_is_durable_has_told_nobody() -> None:
    one, two, three = nodes().values()
    one.formation.heard(two.formation.hello())
    one.formation.heard(three.formation.hello())
    decision = one.formation.decide()
    assert decision is not None
    told = one.formation.hello()
    assert (told.cluster_id, told.founding) == (None, None)

    one.restart()
    two.wipe()
    talk(one, two, three)

    assert one.founding == two.founding == three.founding == members(one, two, three)
    assert one.formation.cluster_id != decision[0]


def test_a_founder_that_crashes_later_finds_the_membership_again_and_goes_on_telling_it() -> None:
    one, two, three = nodes().values()
    one.hear(two.formation.hello())
    one.hear(three.formation.hello())
    founded = one.formation.cluster_id

    one.restart()
    assert one.formation.hello().cluster_id == founded
    talk(one, two, three)

    assert {node.formation.cluster_id for node in (one, two, three)} == {founded}


@pytest.mark.parametrize("wiped", [1, 2, 3])
def test_a_wiped_node_founds_and_adopts_nothing_and_asks_to_join(wiped: int) -> None:
    group = nodes()
    talk(*group.values())
    founded = group[1].formation.cluster_id
    lost = group[wiped]
    lost.wipe()
    for number in sorted(FIRST - {wiped}):
        assert not lost.formation.must_join
        lost.hear(group[number].formation.hello())
        assert lost.founding is None
        assert lost.formation.must_join
        break

    talk(*group.values())

    assert lost.founding is None
    assert lost.formation.must_join
    assert lost.formation.decide() is None
    others = [node for node in group.values() if node is not lost]
    assert {node.formation.cluster_id for node in others} == {founded}


def test_a_founder_that_is_wiped_after_telling_one_other_does_not_found_again() -> None:
    one, two, three = nodes().values()
    one.hear(two.formation.hello())
    one.hear(three.formation.hello())
    two.hear(one.formation.hello())
    founded = two.founding
    assert founded is not None

    one.wipe()
    talk(one, two, three)

    assert two.founding == three.founding == founded
    assert one.founding is None
    assert one.formation.must_join


def test_a_node_that_is_wiped_before_it_adopts_is_not_taken_for_the_one_that_was_named() -> None:
    one, two, three = nodes().values()
    one.hear(two.formation.hello())
    one.hear(three.formation.hello())
    old = two.member

    two.wipe()
    talk(one, two, three)

    assert one.founding is not None
    assert old in one.founding.voters
    assert two.member not in one.founding.voters
    assert two.formation.must_join
    assert three.founding == one.founding


def test_a_node_that_is_wiped_before_the_founding_is_named_as_it_is_now() -> None:
    one, two, three = nodes().values()
    one.hear(two.formation.hello())
    two.wipe()
    one.hear(two.formation.hello())
    talk(one, two, three)

    assert two.founding == one.founding == members(one, two, three)


def test_a_stranger_among_those_who_say_hello_is_not_made_a_member() -> None:
    one, two, three = nodes().values()
    stranger = Node(9, frozenset({1, 9}))
    one.hear(stranger.formation.hello())
    talk(one, two, three)

    assert one.founding == members(one, two, three)


def test_nodes_of_two_clusters_refuse_each_other() -> None:
    blue, red = nodes(frozenset({1, 2})), nodes(frozenset({3, 4}))
    talk(*blue.values())
    talk(*red.values())

    with pytest.raises(Conflict, match="belongs to cluster"):
        blue[1].hear(red[3].formation.hello())


def test_a_peer_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, _ = nodes().values()
    monkeypatch.setattr(formation_module, "LINK_VERSION", 2)
    newer = two.formation.hello()
    monkeypatch.undo()

    with pytest.raises(Conflict, match="speaks version 2"):
        one.hear(newer)


def test_a_node_that_is_to_join_never_founds_a_cluster() -> None:
    newcomer = Formation(Member(NodeId(4), Incarnation(401)), frozenset(), joins=True)

    newcomer.heard(Hello(1, 5, 501, None, None))
    assert newcomer.decide() is None
    assert not newcomer.must_join

    newcomer.heard(Hello(1, 5, 501, "blue", Membership().encode()))
    assert newcomer.decide() is None
    assert newcomer.must_join
