"""Changes of membership, step by step, as the leader of a group takes them."""

from penstock.cluster.described import Node
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.steward import Change, GroupView, HandOver, Settled, Step, next_step
from penstock.cluster.stewardship import metadata_members, metadata_voter_count
from penstock.ids import EntryIndex, NodeId
from penstock.raft import FollowerStatus, Incarnation, Member, Membership, ProgressState


def member(node: int, incarnation: int = 1) -> Member:
    return Member(NodeId(node), Incarnation(incarnation))


ONE, TWO, THREE, FOUR = (member(node) for node in (1, 2, 3, 4))


def follower(node: int, match: int, *, is_active: bool = True) -> FollowerStatus:
    state = ProgressState.REPLICATE
    return FollowerStatus(NodeId(node), True, is_active, EntryIndex(match), state)


def step(
    voters: list[Member],
    learners: list[Member],
    *followers: FollowerStatus,
    wanted: list[Member],
    followed_by: list[Member] | None = None,
    last_index: int = 5_000,
) -> Step | None:
    """Ask for the next step; when nothing is said about followers, all of them are in step."""
    others = [each for each in (*voters, *learners) if each != ONE]
    known = followers or [follower(each.node, last_index) for each in others]
    view = GroupView(ONE, Membership.of(voters, learners), known, last_index)
    return next_step(view, wanted, followed_by or [])


def test_a_newcomer_learns_before_it_votes() -> None:
    assert step([ONE, TWO, THREE], [], wanted=[ONE, TWO, FOUR]) == Change(
        Membership.of([ONE, TWO, THREE], [FOUR])
    )


def test_a_newcomer_waits_for_its_turn_and_one_that_learns_goes_on() -> None:
    def waiting(*learners: Member) -> Step | None:
        membership = Membership.of([ONE, TWO, THREE], learners)
        view = GroupView(ONE, membership, [follower(4, 5_000)], 5_000, may_admit=False)
        return next_step(view, [ONE, TWO, FOUR])

    assert waiting() is None
    assert waiting(FOUR) == Change(Membership.of([ONE, TWO, THREE, FOUR]))


def test_members_whom_nothing_names_any_more_are_named_by_the_log() -> None:
    def settling(*, is_told: bool) -> Step | None:
        membership = Membership.of([ONE, TWO, THREE])
        return next_step(
            GroupView(ONE, membership, [], 5_000, is_membership_told=is_told), [THREE, TWO, ONE]
        )

    assert settling(is_told=True) == Settled()
    assert settling(is_told=False) == Change(Membership.of([ONE, TWO, THREE]))


def test_a_newcomer_votes_when_it_has_caught_up() -> None:
    lagging = step([ONE, TWO, THREE], [FOUR], follower(4, 3_999), wanted=[ONE, TWO, FOUR])
    caught_up = step([ONE, TWO, THREE], [FOUR], follower(4, 4_000), wanted=[ONE, TWO, FOUR])

    assert lagging is None
    assert caught_up == Change(Membership.of([ONE, TWO, THREE, FOUR]))


def test_a_newcomer_that_was_never_heard_does_not_vote_even_on_a_short_log() -> None:
    waiting = step([ONE, TWO, THREE], [FOUR], follower(4, 0), wanted=[ONE, TWO, FOUR], last_index=3)

    assert waiting is None


def test_a_newcomer_that_fell_silent_does_not_vote() -> None:
    silent = follower(4, 5_000, is_active=False)

    assert step([ONE, TWO, THREE], [FOUR], silent, wanted=[ONE, TWO, FOUR]) is None


def test_who_is_to_go_leaves_when_all_others_vote() -> None:
    left = step([ONE, TWO, THREE, FOUR], [], wanted=[ONE, TWO, FOUR])

    assert left == Change(Membership.of([ONE, TWO, FOUR]))


def test_a_leader_that_is_to_go_hands_over_to_whoever_has_most() -> None:
    handed = step([ONE, TWO, FOUR], [], follower(2, 4_990), follower(4, 4_995), wanted=[TWO, FOUR])

    assert handed == HandOver(NodeId(4))


def test_a_cancelled_move_takes_the_learner_out_again() -> None:
    back = step([ONE, TWO, THREE], [FOUR], wanted=[ONE, TWO, THREE])

    assert back == Change(Membership.of([ONE, TWO, THREE]))


def test_a_lost_memory_makes_room_for_the_new_one_of_its_node() -> None:
    anew = member(3, incarnation=2)

    first = step([ONE, TWO, THREE], [], wanted=[ONE, TWO, anew])

    assert first == Change(Membership.of([ONE, TWO], [anew]))


def test_a_voter_that_is_to_follow_only_loses_its_vote_and_stays() -> None:
    demoted = step([ONE, TWO, THREE, FOUR], [], wanted=[ONE, TWO, FOUR], followed_by=[THREE])

    assert demoted == Change(Membership.of([ONE, TWO, FOUR], [THREE]))


def test_who_is_gone_is_taken_out_before_others_lose_their_vote() -> None:
    gone = step([ONE, TWO, THREE, FOUR], [], wanted=[ONE, THREE], followed_by=[TWO])

    assert gone == Change(Membership.of([ONE, TWO, THREE]))


def test_nobody_goes_whom_those_who_are_alive_need_for_a_majority() -> None:
    def without_three(*, is_four_alive: bool) -> Step | None:
        four = follower(4, 5_000, is_active=is_four_alive)
        return step([ONE, THREE, FOUR], [], four, wanted=[ONE, FOUR])

    assert without_three(is_four_alive=False) is None
    assert without_three(is_four_alive=True) == Change(Membership.of([ONE, FOUR]))


def test_nobody_loses_its_vote_whom_those_who_are_alive_need_for_a_majority() -> None:
    dead = follower(2, 5_000, is_active=False)

    assert step([ONE, TWO, THREE], [], dead, wanted=[ONE, TWO], followed_by=[THREE]) is None


def test_who_is_dead_can_be_taken_out() -> None:
    dead = follower(3, 10, is_active=False)

    assert step([ONE, TWO, THREE], [], follower(2, 5_000), dead, wanted=[ONE, TWO]) == Change(
        Membership.of([ONE, TWO])
    )


def test_a_leader_that_is_to_follow_only_hands_over() -> None:
    handed = step([ONE, TWO, FOUR], [], follower(2, 4_000), wanted=[TWO, FOUR], followed_by=[ONE])

    assert handed == HandOver(NodeId(2))


def test_nothing_is_left_to_do_when_the_membership_is_as_wanted() -> None:
    assert step([ONE, TWO], [FOUR], wanted=[TWO, ONE], followed_by=[FOUR]) == Settled()


def test_an_odd_number_of_nodes_votes_on_the_metadata() -> None:
    assert [metadata_voter_count(nodes) for nodes in range(1, 9)] == [1, 2, 3, 3, 5, 5, 5, 5]


def test_a_node_that_stays_alone_votes_alone() -> None:
    assert metadata_voter_count(2, draining=1) == 1
    assert metadata_voter_count(3, draining=2) == 1
    assert metadata_voter_count(3, draining=1) == 3
    assert metadata_voter_count(2, draining=2) == 2


def test_voters_of_the_metadata_stay_until_they_are_drained() -> None:
    metadata = ClusterMetadata()
    for node in (1, 2, 3, 4):
        metadata.nodes[node] = Node(node, 1, "host", 1, "host", 2, 3)
    membership = Membership.of([TWO, THREE, FOUR], [ONE])

    at_first = metadata_members(metadata, membership)
    metadata.draining.add(3)
    while_draining = metadata_members(metadata, membership)

    assert at_first == [TWO, THREE, FOUR, ONE]
    assert while_draining == [TWO, FOUR, ONE, THREE]
