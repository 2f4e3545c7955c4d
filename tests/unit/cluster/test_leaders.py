"""Who leads, as far as a node has heard."""

from penstock.cluster.leaders import LeaderTable
from penstock.cluster.links import Leader


def test_the_leader_of_the_newest_term_is_believed_in_any_order() -> None:
    for order in ([1, 2, 3], [3, 1, 2], [2, 3, 1]):
        table = LeaderTable()
        table.learn(Leader(7, term, node=10 + term) for term in order)

        assert table.leader_of(7) == Leader(7, 3, 13)
        assert table.leader_of(8) is None


def test_the_version_changes_with_every_change_and_not_without() -> None:
    table = LeaderTable()
    table.learn([Leader(7, 2, 1)])
    version = table.version

    table.learn([Leader(7, 2, 1), Leader(7, 1, 3)])
    assert table.version == version
    table.learn([Leader(7, 3, 1)])
    assert table.version > version


def test_what_a_lost_node_led_has_no_leader_until_one_is_announced() -> None:
    table = LeaderTable()
    table.learn([Leader(7, 2, 1), Leader(8, 5, 1), Leader(9, 4, 2)])
    version = table.version

    table.lost(1)
    assert table.led_by(1) == []
    assert [table.leader_of(group) for group in (7, 8, 9)] == [
        Leader(7, 2, -1),
        Leader(8, 5, -1),
        Leader(9, 4, 2),
    ]
    assert table.version > version

    # An older announcement that was under way is not believed; the node itself is, when it is back.
    table.learn([Leader(7, 1, 3)])
    assert table.leader_of(7) == Leader(7, 2, -1)
    table.learn([Leader(7, 2, 1), Leader(8, 6, 2)])
    assert table.led_by(1) == [Leader(7, 2, 1)]
    assert table.led_by(2) == [Leader(8, 6, 2), Leader(9, 4, 2)]


def test_a_leader_that_steps_down_is_forgotten_and_its_successor_is_not() -> None:
    table = LeaderTable()
    table.learn([Leader(7, 2, 1)])

    table.deposed(7, 1)
    table.deposed(8, 1)
    assert table.leader_of(7) == Leader(7, 2, -1)
    assert table.leader_of(8) is None

    table.learn([Leader(7, 3, 2)])
    table.deposed(7, 1)
    assert table.leader_of(7) == Leader(7, 3, 2)
