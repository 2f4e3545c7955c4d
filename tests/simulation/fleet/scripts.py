"""Histories of fleets that chance would seldom write."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from penstock.broker import Broker, NewMessage, NewTopic, Published
from penstock.cluster import METADATA_GROUP
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.errors import PenstockError
from penstock.ids import TopicPartition
from tests.simulation.fleet.filling import AT_ONCE, Filling
from tests.simulation.fleet.fleet import Fleet
from tests.simulation.fleet.node import DATA, FleetNode
from tests.simulation.fleet.referee import value_of
from tests.simulation.referee import require

T = TypeVar("T")

TOPIC = "apples"
PLACE = TopicPartition(TOPIC, 0)
_STEP_US = 50_000
_STEPS_MAX = 600


class Play:
    """A fleet without weather, and what a script does to it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        for node in fleet.nodes.values():
            node.start()
        fleet.become_whole()

    def do(self, node: int, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Let a node do something, and wait for its end."""
        results: list[T] = []

        async def act(broker: Broker) -> None:
            results.append(await work(broker))

        actor = self.fleet.nodes[node]
        assert actor.broker is not None
        actor.ask(act, actor.broker)
        self.wait_until(lambda: bool(results), "what was asked for is done")
        return results[0]

    def do_at_once(
        self, *deeds: tuple[int, Callable[[Broker], Awaitable[object]]]
    ) -> list[PenstockError | None]:
        """Let nodes do something in the same moment, and say what was refused."""
        refused: dict[int, PenstockError | None] = {}

        async def act(node: int, broker: Broker, work: Callable[[Broker], Awaitable[T]]) -> None:
            try:
                await work(broker)
                refused[node] = None
            except PenstockError as error:
                refused[node] = error

        for node, work in deeds:
            actor = self.fleet.nodes[node]
            assert actor.broker is not None
            actor.ask(act, node, actor.broker, work)
        self.wait_until(lambda: len(refused) == len(deeds), "what was asked for is done")
        return list(refused.values())

    def create(self, node: int, replicas: list[int]) -> None:
        """Create the topic on chosen nodes."""
        topic = self.do(node, lambda broker: broker.topics.create(
            NewTopic(TOPIC, assignments=[replicas])))  # fmt: skip
        assert topic is not None
        self.fleet.founder.created.add(topic.topic_id)

    def delete(self, node: int) -> None:
        """Delete the topic."""

        async def delete(broker: Broker) -> bool:
            self.fleet.founder.doomed.add(broker.metadata.topics[TOPIC].topic_id)
            await broker.topics.delete(TOPIC)
            return True

        self.do(node, delete)

    def move(self, node: int, replicas: list[int]) -> None:
        """Ask for other replicas of the partition."""
        self.do(node, lambda broker: broker.operations.move(PLACE, replicas))

    def publish(self, node: int, count: int) -> None:
        """Publish to the topic, and remember what was acknowledged."""
        values = [value_of(self.fleet.next_number()) for _ in range(count)]
        messages = [NewMessage(value=value) for value in values]
        answers = self.do(node, lambda broker: broker.messages.publish(TOPIC, messages))
        require(all(isinstance(each, Published) for each in answers), "publishes fail", answers)
        self.fleet.writers[0].acked += values

    def wait_until(self, is_reached: Callable[[], bool], claim: str) -> None:
        """Let time pass until something has happened."""
        for _ in range(_STEPS_MAX):
            if is_reached():
                return
            self.fleet.advance(_STEP_US)
        require(False, "never reached", claim)

    def remove(self, node: int, *, by: int) -> None:
        """Drain a node, remove it and switch it off."""
        self.do(by, lambda broker: broker.operations.drain(node))
        self.fleet.become_whole()
        self.do(by, lambda broker: broker.operations.remove_node(node))
        self.fleet.switch_off(node)

    def log_of(self, node: int) -> ReplicatedLog | None:
        """Return the replica of the partition that a node has, if it has one."""
        broker = self.fleet.nodes[node].broker
        if broker is None or TOPIC not in broker.metadata.topics:
            return None
        return broker.cluster.replicas.by_group.get(broker.metadata.topics[TOPIC].replicas[0].group)

    def wait_until_gone(self, node: int) -> None:
        """Wait until a node has given its replica up, files and all."""
        disk = self.fleet.nodes[node].disk
        directory = DATA / "topics" / TOPIC / "0"
        self.wait_until(lambda: not disk.files(directory), f"node {node} has no files of {PLACE}")


def play(script: Callable[[Play], None], *, nodes: int, filling: Filling = AT_ONCE) -> None:
    """Play a script, and let it end well."""
    fleet = Fleet(0, nodes=nodes, filling=filling)
    try:
        with fleet.surroundings():
            script(Play(fleet))
            fleet.conclude()
    finally:
        fleet.end()


def first_member_is_down_until_its_partition_has_been_moved() -> None:
    """The move comes to nothing but another order, so it takes no change of members."""

    def script(play: Play) -> None:
        play.fleet.nodes[2].stop()
        play.create(1, [1, 2, 3])
        play.move(1, [3, 1, 2])
        play.publish(1, 3)
        play.fleet.advance(3_000_000)

    play(script, nodes=3)


def all_first_members_are_down_until_their_partition_has_been_moved() -> None:
    """The move is asked for before anybody has begun the group."""

    def script(play: Play) -> None:
        for node in (4, 5):
            play.fleet.nodes[node].stop()
        play.create(1, [4, 5])
        play.move(1, [5, 4])
        play.fleet.become_whole()
        play.publish(1, 3)

    play(script, nodes=5)


def partition_moves_away_and_back() -> None:
    """Its only replica is given up, files and all, before it comes back."""

    def script(play: Play) -> None:
        play.create(1, [1])
        play.publish(1, 3)
        play.move(1, [2])
        play.wait_until_gone(1)
        play.move(1, [1])
        play.wait_until_gone(2)
        play.publish(2, 3)

    play(script, nodes=3)


def partition_moves_away_from_a_node_that_is_down() -> None:
    """Its next start finds files of a replica that is not to be there; it may come back without."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        play.publish(1, 3)
        play.fleet.nodes[3].stop()
        play.move(1, [1, 2])
        play.fleet.become_whole()
        play.wait_until_gone(3)
        play.publish(2, 3)
        play.move(1, [3, 2])
        play.wait_until_gone(1)
        play.publish(3, 3)

    play(script, nodes=3)


def disk_of_one_after_the_other_is_lost() -> None:
    """Each comes back as a stranger, and learns all that the others have kept."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        for lost in (1, 2, 3):
            play.publish(lost, 3)
            play.fleet.nodes[lost].wipe()
            play.fleet.become_whole()

    play(script, nodes=3)


def all_nodes_restart_after_the_first_have_left() -> None:
    """Whom they were told to join is gone; what is left is what they have written down."""

    def script(play: Play) -> None:
        for _ in range(3):
            play.fleet.add_node(join=1)
        play.fleet.become_whole()
        play.create(4, [4, 5, 6])
        play.publish(4, 3)
        for first in (1, 2, 3):
            play.remove(first, by=4)
        for node in play.fleet.nodes.values():
            node.stop()
        play.fleet.become_whole()
        play.publish(5, 3)

    play(script, nodes=3)


def node_that_lost_its_disk_does_not_know_who_leads() -> None:
    """The leader of the metadata came later than the nodes that it was told of."""

    def script(play: Play) -> None:
        play.fleet.add_node(join=1)
        # It is told of a node that does not belong to the cluster yet.
        play.fleet.add_node(join=4)
        play.fleet.become_whole()
        play.create(1, [1, 2, 3])
        play.publish(1, 3)
        play.wait_until(lambda: _votes_on_metadata(play.fleet.nodes[5]), "node 5 votes")
        play.do(1, lambda broker: broker.cluster.leadership.transfer(METADATA_GROUP, 5))
        play.wait_until(lambda: _leads_metadata(play.fleet.nodes[5]), "node 5 leads the metadata")
        play.fleet.wipe(play.fleet.nodes[2])
        play.fleet.become_whole()

    play(script, nodes=3)


def _votes_on_metadata(node: FleetNode) -> bool:
    log = _metadata_log(node)
    return log.identity.member in log.raft.membership.voters


def _leads_metadata(node: FleetNode) -> bool:
    return _metadata_log(node).is_serving


def _metadata_log(node: FleetNode) -> ReplicatedLog:
    assert node.broker is not None
    return node.broker.cluster.replicas.log_of(METADATA_GROUP)


def one_of_two_nodes_is_removed_and_switched_off() -> None:
    """The metadata must have a majority without it as soon as the removal is answered."""

    def script(play: Play) -> None:
        play.fleet.add_node(join=1)
        play.fleet.become_whole()
        play.create(1, [1, 2])
        play.publish(1, 3)
        play.do(2, lambda broker: broker.operations.drain(1, may_shrink=True))
        play.fleet.become_whole()
        play.wait_until(lambda: not _votes_on_metadata(play.fleet.nodes[1]), "node 1 has no vote")
        play.do(2, lambda broker: broker.operations.remove_node(1))
        play.fleet.switch_off(1)
        play.publish(2, 3)
        play.do(2, lambda broker: broker.topics.grow(TOPIC, 2))

    play(script, nodes=1)


def node_is_removed_while_another_loses_its_disk() -> None:
    """The one that was removed still has a vote, and is switched off."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        play.publish(1, 3)
        play.remove(5, by=1)
        play.fleet.wipe(play.fleet.nodes[3])
        play.fleet.become_whole()
        play.publish(2, 3)

    play(script, nodes=5)


def node_is_joined_before_it_has_joined_itself() -> None:
    """Whoever joins it reaches it first, which is no reason to look for the others no more."""

    def script(play: Play) -> None:
        play.fleet.wires.cuts |= {(1, 4), (4, 1)}
        play.fleet.add_node(join=1)
        play.fleet.add_node(join=4)
        play.fleet.advance(3_000_000)
        play.fleet.wires.cuts.clear()
        play.fleet.become_whole()

    play(script, nodes=3)


def disk_of_a_newcomer_fails_while_it_joins() -> None:
    """Whatever it was about to write: it says so, and joins when it is started again."""
    for syncs in range(12):
        play(partial(_join_with_a_disk_that_fails, syncs=syncs), nodes=3)


def _join_with_a_disk_that_fails(play: Play, *, syncs: int) -> None:
    play.fleet.wires.cuts |= {(1, 4), (4, 1)}
    play.fleet.add_node(join=1)
    play.fleet.advance(1_000_000)
    newcomer = play.fleet.nodes[4]
    newcomer.disk.fail_sync(syncs)
    play.fleet.wires.cuts.clear()
    play.fleet.advance(3_000_000)
    newcomer.disk._syncs_until_failure = 0
    play.fleet.become_whole()


def two_nodes_are_drained_at_once() -> None:
    """Each of them could be, if it were alone; together they would leave logs two replicas."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        play.publish(1, 3)
        refused = play.do_at_once(
            (2, lambda broker: broker.operations.drain(1)),
            (4, lambda broker: broker.operations.drain(3)),
        )
        require(any(refused), "one of the drains is refused", refused)
        play.fleet.advance(3_000_000)
        metadata = play.fleet.any_broker().metadata
        sizes = {len(replicas.members) for replicas in metadata.all_replicas()}
        require(sizes == {3}, "every log keeps its replicas", sizes)

    play(script, nodes=4)


def replica_is_to_go_while_one_that_stays_is_down() -> None:
    """Without the one that is to go there would be no majority, so it stays until there is."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        play.publish(1, 3)
        play.fleet.nodes[3].stop()
        play.move(1, [1, 3])
        play.fleet.advance(3_000_000)
        play.publish(1, 3)

    play(script, nodes=4)


def two_that_come_back_are_cut_off_while_they_are_filled() -> None:
    """What they have of the log says that they are a majority, as they once were."""

    def script(play: Play) -> None:
        fleet = play.fleet
        play.create(5, [5, 3, 4])
        play.move(5, [5, 1, 2])
        play.wait_until_gone(3)
        play.wait_until_gone(4)
        for _ in range(20):
            play.publish(5, 20)
        play.move(5, [5, 3, 4])
        play.wait_until_gone(1)
        play.wait_until_gone(2)
        play.publish(3, 20)
        play.move(5, [5, 1, 2])

        def is_filled_so_far(node: int) -> bool:
            log = play.log_of(node)
            voters = () if log is None else log.raft.membership.voters
            return [each.node for each in voters] == [1, 2, 5]

        play.wait_until(lambda: all(map(is_filled_so_far, (1, 2))), "both are being filled")
        fleet.wires.cuts |= {
            pair
            for here in (1, 2)
            for there in (3, 4, 5)
            for pair in ((here, there), (there, here))
        }
        fleet.advance(5_000_000)
        fleet.wires.cuts.clear()
        fleet.become_whole()
        play.publish(1, 3)

    play(script, nodes=5, filling=Filling(transfer_bytes_per_s=1_500, append_bytes_max=500))


SCRIPTS = (
    two_that_come_back_are_cut_off_while_they_are_filled,
    two_nodes_are_drained_at_once,
    disk_of_a_newcomer_fails_while_it_joins,
    replica_is_to_go_while_one_that_stays_is_down,
    node_is_removed_while_another_loses_its_disk,
    node_is_joined_before_it_has_joined_itself,
    one_of_two_nodes_is_removed_and_switched_off,
    all_nodes_restart_after_the_first_have_left,
    node_that_lost_its_disk_does_not_know_who_leads,
    all_first_members_are_down_until_their_partition_has_been_moved,
    disk_of_one_after_the_other_is_lost,
    first_member_is_down_until_its_partition_has_been_moved,
    partition_moves_away_and_back,
    partition_moves_away_from_a_node_that_is_down,
)
