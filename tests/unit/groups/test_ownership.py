"""No partition of an incremental group has two owners, whatever happens on the way."""

from itertools import combinations
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FencedMemberEpoch, Unavailable, UnknownMember
from penstock.groups import Assignment, GroupLimits, GroupState, Reconciled
from penstock.groups.assignment import NOTHING, each

from .driver import GROUP, Driver, topics

LIMITS = GroupLimits(consumer_session_ms=10**9)


class Client:
    """A consumer that reads a partition from when it is told to until it is told not to."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver = driver
        self.name = name
        self.lives = 0
        self.epoch = 0
        self.owned: Assignment = NOTHING
        self.waiting_for: int | None = None

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.lives}"

    def send(self, wish: tuple[str, ...] = ("t1", "t2")) -> None:
        """Send a full heartbeat, as clients do that may have missed an answer."""
        if self.waiting_for is None:
            self.waiting_for = self.driver.beat(
                self.member_id, self.epoch, topics=wish, owned=self.owned, rebalance_ms=10**9
            )

    def receive(self) -> None:
        answer = self.driver.answers.get(self.waiting_for or 0)
        if answer is None:
            return
        self.waiting_for = None
        if isinstance(answer, Reconciled):
            self.epoch = answer.member_epoch
            self.owned = self.owned if answer.assignment is None else answer.assignment
        elif isinstance(answer, FencedMemberEpoch | UnknownMember):
            self.epoch, self.owned = 0, NOTHING
        else:
            assert isinstance(answer, Unavailable), answer

    def lose(self) -> None:
        """Let the connection break while an answer is awaited."""
        self.waiting_for = None

    def leave(self) -> None:
        if self.epoch > 0:
            self.driver.beat(self.member_id, -1)
        self.restart()

    def restart(self) -> None:
        """Begin anew as another member; the former one is silent from now on."""
        self.lives += 1
        self.epoch, self.owned, self.waiting_for = 0, NOTHING, None

    def pairs(self) -> set[tuple[UUID, int]]:
        return set(each(self.owned))


client_steps = st.tuples(
    st.sampled_from(["send", "send", "send", "receive", "receive", "lose", "leave", "narrow"]),
    st.integers(0, 3),
)
cluster_steps = st.tuples(
    st.sampled_from(["land", "land all", "land all", "fail", "fail over", "topics"]),
    st.integers(0, 5),
)


def play(driver: Driver, clients: list[Client], action: str, value: int) -> None:
    client = clients[value % len(clients)]
    match action:
        case "send":
            client.send()
        case "narrow":
            client.send(("t2",))
        case "receive":
            client.receive()
        case "lose":
            client.lose()
        case "leave":
            client.leave()
        case "land" if driver.in_flight:
            driver.commit_one()
        case "land all":
            driver.commit_all()
        case "fail" if driver.in_flight:
            driver.abandon(Unavailable("no quorum"), position=value % len(driver.in_flight))
        case "fail over":
            driver.fail_over()
        case "topics":
            driver.change_topics(topics(value, 3))


def check_owners(clients: list[Client]) -> None:
    for one, other in combinations(clients, 2):
        assert not one.pairs() & other.pairs(), (one.name, other.name)


@settings(max_examples=120, deadline=None)
@given(
    script=st.lists(st.one_of(client_steps, client_steps, cluster_steps), min_size=60, max_size=90)
)
def test_no_partition_has_two_owners_and_the_group_settles_in_the_end(
    script: list[tuple[str, int]],
) -> None:
    driver = Driver(LIMITS, topics(4, 3))
    driver.is_holding = True
    clients = [Client(driver, name) for name in "abcd"]

    for action, value in script:
        play(driver, clients, action, value)
        check_owners(clients)

    driver.is_holding = False
    driver.commit_all()
    settle(driver, clients)
    owned = [pair for client in clients for pair in client.pairs()]
    expected = sum(info.partitions for info in driver.catalog.values())
    assert len(owned) == len(set(owned)) == expected
    sizes = [len(client.pairs()) for client in clients]
    assert max(sizes) - min(sizes) <= 1


def settle(driver: Driver, clients: list[Client]) -> None:
    """Everyone sends and receives until nothing changes; silent members lose their session."""
    for client in clients:
        client.receive()
        client.lose()
    for client in clients:
        client.send()
        client.receive()
        check_owners(clients)
    driver.advance(LIMITS.consumer_session_ms - 1)
    for _ in range(12):
        for client in clients:
            client.send()
            client.receive()
            check_owners(clients)
        driver.advance(1)
    assert driver.shard._coordinator.groups[GROUP].state is GroupState.STABLE
