"""Events in flight, failed proposals, failover, and the list of groups."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import GroupNotFound, NotCoordinator, Unavailable, UnknownMember
from penstock.groups import (
    Alive,
    DescribeConsumerGroup,
    DescribeGroup,
    GroupDescribed,
    GroupLimits,
    GroupShard,
    GroupState,
    GroupType,
    Joined,
    LeaveGroup,
    Leaver,
    ListGroups,
    Now,
    OffsetsCommitted,
    OffsetToCommit,
    Reconciled,
    Reply,
    Synced,
)
from penstock.groups.classic import ClassicGroup
from penstock.groups.incremental import ConsumerGroup

from .driver import GROUP, LIMITS, Driver, replayed, topics

ENTRY = OffsetToCommit("t1", 0, 7)
LOST = Unavailable("no quorum")


def test_an_assignment_is_handed_out_when_it_is_durable() -> None:
    driver = Driver()
    driver.join()
    driver.is_holding = True

    sync = driver.sync("m1", 1, {"m1": b"all"})
    assert sync not in driver.answers
    driver.commit_one()

    assert driver.answers[sync] == Synced("consumer", "range", b"all")


def test_an_answer_waits_for_changes_that_an_earlier_command_made() -> None:
    driver = Driver(catalog=topics(2))
    driver.is_holding = True

    first = driver.beat("a", 0)
    second = driver.beat("a", 0)
    assert driver.answers == {}
    driver.commit_one()

    assert isinstance(driver.answers[first], Reconciled)
    assert isinstance(driver.answers[second], Reconciled)


def test_later_commands_see_what_is_still_in_flight() -> None:
    driver = Driver(catalog=topics(2))
    driver.is_holding = True
    driver.beat("a", 0)

    joining = driver.beat("b", 0)
    driver.commit_all()

    answer = driver.answers[joining]
    assert isinstance(answer, Reconciled)
    assert (answer.member_epoch, answer.assignment) == (2, {})


def test_a_commit_in_flight_holds_up_nobody() -> None:
    driver = Driver()
    driver.join()
    driver.sync("m1", 1)
    driver.is_holding = True
    commit = driver.send(driver.commit_command(ENTRY, member_id="m1", generation=1))

    assert driver.heartbeat("m1", 1) == Alive()
    assert commit not in driver.answers
    driver.commit_one()
    assert driver.answers[commit] == OffsetsCommitted({})


def test_a_failed_proposal_takes_its_changes_and_those_above_it_back() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.is_holding = True
    joining = [driver.beat("b", 0), driver.beat("c", 0)]

    driver.abandon(LOST)

    assert [driver.answers[ticket] for ticket in joining] == [LOST, LOST]
    driver.is_holding = False
    assert isinstance(driver.answers[driver.beat("b", 2)], UnknownMember)
    answer = driver.answers[driver.beat("a", 1)]
    assert isinstance(answer, Reconciled)
    assert answer.member_epoch == 1


def test_an_event_that_fell_with_an_earlier_one_is_no_longer_expected() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.beat("b", 0)
    driver.is_holding = True
    driver.advance(LIMITS.consumer_session_ms)
    first, second = driver.in_flight

    assert driver.shard.expects(first)
    assert driver.shard.expects(second)
    driver.abandon(LOST)

    assert not driver.shard.expects(first)
    assert not driver.shard.expects(second)


def test_a_failed_proposal_leaves_those_below_it_alone() -> None:
    driver = Driver(catalog=topics(2))
    driver.is_holding = True
    first, second = driver.beat("a", 0), driver.beat("b", 0)

    driver.abandon(LOST, position=1)
    assert driver.answers == {second: LOST}
    heartbeat = driver.beat("a", 1)
    driver.commit_all()

    assert isinstance(driver.answers[first], Reconciled)
    assert isinstance(driver.answers[heartbeat], Reconciled)


def test_a_failed_assignment_brings_the_former_generation_back() -> None:
    driver = Driver()
    driver.join()
    driver.sync("m1", 1, {"m1": b"old"})
    driver.join("m1")
    driver.is_holding = True
    sync = driver.sync("m1", 2, {"m1": b"new"})

    driver.abandon(LOST)

    assert driver.answers[sync] is LOST
    assert driver.heartbeat("m1", 1) == Alive()


def test_those_who_wait_in_a_group_are_told_when_it_is_taken_back() -> None:
    driver = Driver()
    driver.join()
    driver.is_holding = True
    driver.sync("m1", 1)
    waiting = driver.join()

    driver.abandon(LOST)

    assert driver.answers[waiting] is LOST


def test_a_failed_offset_commit_disturbs_no_member() -> None:
    driver = Driver()
    driver.join()
    driver.sync("m1", 1)
    driver.is_holding = True
    commit = driver.send(driver.commit_command(ENTRY, member_id="m1", generation=1))

    driver.abandon(LOST)

    assert driver.answers[commit] is LOST
    assert driver.heartbeat("m1", 1) == Alive()


def test_a_node_that_does_not_lead_sends_callers_away() -> None:
    shard = GroupShard(LIMITS)

    effects = shard.step(ListGroups(ticket=5), Now(0, 0))

    assert isinstance(effects[0], Reply)
    assert isinstance(effects[0].answer, NotCoordinator)
    assert shard.tick(Now(0, 0)) == []
    assert shard.next_deadline_ms() is None


def test_a_node_that_resigns_answers_everyone_who_waits() -> None:
    driver = Driver(catalog=topics(1))
    driver.join()
    driver.sync("m1", 1)
    parked = driver.join()
    driver.is_holding = True
    commit = driver.send(driver.commit_command(ENTRY, member_id="m1", generation=1))

    driver.carry_out(driver.shard.resigned())

    assert isinstance(driver.answers[parked], NotCoordinator)
    assert isinstance(driver.answers[commit], NotCoordinator)


def test_a_classic_generation_goes_on_after_failover_without_a_rebalance() -> None:
    driver = Driver()
    driver.join(instance_id="one")
    driver.sync("m1", 1, {"m1": b"all"}, "one")
    driver.commit(ENTRY, member_id="m1", generation=1)
    driver.advance(9_000)

    driver.fail_over()
    driver.advance(9_000)

    assert driver.heartbeat("m1", 1, "one") == Alive()
    assert driver.answers[driver.sync("m1", 1, None, "one")] == Synced("consumer", "range", b"all")
    assert driver.commit(ENTRY, member_id="m1", generation=1) == OffsetsCommitted({})
    driver.advance(10_000)
    assert isinstance(driver.heartbeat("m1", 1, "one"), UnknownMember)


def test_groups_are_listed_by_state_and_type() -> None:
    driver = Driver(catalog=topics(1))
    driver.commit(ENTRY)
    driver.join(group_id="classic")
    driver.beat("a", 0, group_id="incremental")

    def names(**filters: frozenset[str]) -> list[str]:
        answer = driver.ask(ListGroups(ticket=driver.ticket(), **filters))
        return [group.group_id for group in answer.groups]

    assert names() == ["classic", "incremental", GROUP]
    assert names(states=frozenset({"stable", "Empty"})) == ["incremental", GROUP]
    assert names(types=frozenset({"Consumer"})) == ["incremental"]
    listed = driver.ask(ListGroups(ticket=driver.ticket())).groups[0]
    assert (listed.state, listed.group_type) == (GroupState.COMPLETING, GroupType.CLASSIC)


def test_a_group_is_described_in_the_terms_of_its_own_protocol() -> None:
    driver = Driver(catalog=topics(1))
    driver.join()
    driver.sync("m1", 1, {"m1": b"all"})
    driver.beat("a", 0, group_id="incremental")

    group = driver.ask(DescribeGroup(ticket=driver.ticket(), group_id=GROUP))
    assert isinstance(group, GroupDescribed)
    assert (group.protocol, group.members[0].assignment) == ("range", b"all")
    for command in (
        DescribeGroup(ticket=driver.ticket(), group_id="incremental"),
        DescribeConsumerGroup(ticket=driver.ticket(), group_id=GROUP),
        DescribeGroup(ticket=driver.ticket(), group_id="nobody"),
    ):
        assert isinstance(driver.ask(command), GroupNotFound)


CLASSIC, INCREMENTAL = "classic", "incremental"
members = st.sampled_from("abc")
actions = st.one_of(
    st.tuples(st.just("join"), members),
    st.tuples(st.just("static join"), members),
    st.tuples(st.just("sync"), members),
    st.tuples(st.just("leave"), members),
    st.tuples(st.just("beat"), members),
    st.tuples(st.just("depart"), members),
    st.tuples(st.just("commit"), members),
    st.tuples(st.just("topics"), st.integers(0, 4)),
    st.tuples(st.just("wait"), st.sampled_from([50, 7_000, 50_000])),
    st.tuples(st.just("land"), st.just(0)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("fail over"), st.just(0)),
)


class Crowd:
    """Clients that remember what they were told and act on it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.tickets: dict[str, int] = {}

    def act(self, action: str, value: str | int) -> None:
        driver = self.driver
        match action:
            case "join" | "static join":
                known = self._last(value, Joined)
                static = {"instance_id": str(value)} if action == "static join" else {}
                member_id = known.member_id if known and not static else ""
                self.tickets[f"join {value}"] = driver.join(member_id, group_id=CLASSIC, **static)
            case "sync":
                self._sync(value)
            case "leave":
                known = self._last(value, Joined)
                leavers = (Leaver(known.member_id if known else "stranger"),)
                ticket = driver.ticket()
                driver.send(LeaveGroup(ticket=ticket, group_id=CLASSIC, leavers=leavers))
            case "beat":
                told = self._told(value)
                epoch, owned = (told.member_epoch, told.assignment) if told else (0, {})
                said = {"topics": ("t1",), "rebalance_ms": 9_000, "owned": owned}
                ticket = driver.beat(str(value), epoch, group_id=INCREMENTAL, **said)
                self.tickets[f"beat {value}"] = ticket
            case "depart":
                self.tickets[f"beat {value}"] = driver.beat(str(value), -1, group_id=INCREMENTAL)
            case "commit":
                driver.send(driver.commit_command(OffsetToCommit("t1", 0, driver.now_ms)))
            case "topics":
                driver.change_topics(topics(int(value), 1))
            case "wait":
                driver.advance(int(value))
            case "land" if driver.in_flight:
                driver.commit_one()
            case "fail" if driver.in_flight:
                driver.abandon(LOST, position=int(value) % len(driver.in_flight))
            case "fail over":
                driver.fail_over()

    def _last(self, value: str | int, kind: type[Joined]) -> Joined | None:
        answer = self.driver.answers.get(self.tickets.get(f"join {value}", 0))
        return answer if isinstance(answer, kind) else None

    def _told(self, value: str | int) -> Reconciled | None:
        answer = self.driver.answers.get(self.tickets.get(f"beat {value}", 0))
        is_member = isinstance(answer, Reconciled) and answer.member_epoch >= 0
        return answer if is_member else None

    def _sync(self, value: str | int) -> None:
        known = self._last(value, Joined)
        if known is not None:
            shares = {member.member_id: b"share" for member in known.members}
            self.driver.sync(known.member_id, known.generation, shares, group_id=CLASSIC)


def check_live_state(driver: Driver) -> None:
    """Live groups are what the ledger will say when all in flight has committed."""
    shard = driver.shard
    for group_id, group in shard._coordinator.groups.items():
        rows = shard._expected(group_id)
        if isinstance(group, ConsumerGroup):
            assert rows.groups[group_id] == group.row
            assert rows.members.get(group_id, {}) == group.members
        elif isinstance(group, ClassicGroup) and group.state in ("Stable", "Empty"):
            row = rows.groups.get(group_id)
            is_classic = row is not None and hasattr(row, "generation")
            assert not is_classic or row == group.to_row()


@settings(max_examples=120, deadline=None)
@given(script=st.lists(actions, min_size=30, max_size=50))
def test_replay_leads_to_the_live_state_whatever_fails_on_the_way(
    script: list[tuple[str, str | int]],
) -> None:
    driver = Driver(GroupLimits(initial_rebalance_ms=0), topics(2))
    driver.is_holding = True
    crowd = Crowd(driver)

    for action, value in script:
        crowd.act(action, value)
        check_live_state(driver)
    driver.commit_all()

    check_live_state(driver)
    ledger = driver.shard._ledger
    again = replayed(driver.log)
    restored = GroupShard.restore(LIMITS, driver.shard.snapshot())
    for other in (again._ledger, restored._ledger):
        assert other.groups == ledger.groups
        assert other.members == ledger.members
        assert other.offsets == ledger.offsets
