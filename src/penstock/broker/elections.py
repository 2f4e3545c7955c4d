"""Elections that clients ask for: the replica that stands first is to lead its partition again.

A leader is never chosen from outside. The one that leads brings the other up to date and hands over
to it, so what is acknowledged stays, and a partition that nobody leads gets no leader this way.
"""

import asyncio
from collections.abc import Mapping, Sequence

from penstock.cluster import Cluster, Leader, PartitionStatus, Replicas
from penstock.errors import (
    AlreadyLed,
    EligibleLeadersUnavailable,
    PenstockError,
    PreferredLeaderUnavailable,
    TimedOut,
)
from penstock.ids import TopicPartition

# Consensus gives up on a leader that does not take over long before; then nothing will come.
_WAIT_MS_MAX = 10_000
_LOOK_AGAIN_S = 0.02


class Elections:
    """Hands partitions over, wherever they are led."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def elect_preferred(
        self, places: Sequence[TopicPartition], *, wait_ms: int
    ) -> dict[TopicPartition, PenstockError | None]:
        """Let the first replica of each partition lead; tell of each why it does not."""
        deadline_s = asyncio.get_running_loop().time() + min(wait_ms, _WAIT_MS_MAX) / 1000
        found = await self._survey()
        outcomes: dict[TopicPartition, PenstockError | None] = {}
        for place in places:
            try:
                await self._hand_over(place, found.get(place))
            except PenstockError as error:
                outcomes[place] = error
            else:
                outcomes[place] = None
        late = await self._wait_led([each for each in outcomes if not outcomes[each]], deadline_s)
        for place in late:
            outcomes[place] = TimedOut(
                f"{place} was handed to another leader, which had not taken over in time"
            )
        return outcomes

    async def _survey(self) -> dict[TopicPartition, PartitionStatus]:
        """Ask all nodes what they lead; this one has heard of no older leaders then."""
        partitions = (await self._cluster.overview.survey()).partitions
        self._cluster.leaders.learn(
            Leader(each.group, each.term, each.leader) for each in partitions if each.leader >= 0
        )
        return {TopicPartition(each.topic, each.partition): each for each in partitions}

    async def _hand_over(self, place: TopicPartition, status: PartitionStatus | None) -> None:
        replicas = self._cluster.replicas_of(place)
        preferred = replicas.nodes[0]
        if status is None or status.leader < 0:
            raise PreferredLeaderUnavailable(f"nobody leads {place} who could hand it over")
        if status.leader == preferred:
            raise AlreadyLed(f"{place} is led by node {preferred}, its first replica, already")
        in_step = {each.node for each in status.followers if each.is_voter and each.is_in_step}
        # A leader takes a node for one that is in step until it has been silent for a while.
        if preferred not in in_step.intersection(self._cluster.reachable):
            raise PreferredLeaderUnavailable(
                f"node {preferred}, the first replica of {place}, is down or not in step with node"
                f" {status.leader}, which leads"
            )
        await self._cluster.leadership.transfer(replicas.group, preferred)

    async def _wait_led(
        self, places: list[TopicPartition], deadline_s: float
    ) -> list[TopicPartition]:
        """Wait until the first replicas lead; return the partitions where they do not.

        A leader is heard of when it is elected, and can be used when it knows what is committed. So
        the nodes are asked when all are heard of, and not before: an answer is long.
        """
        loop = asyncio.get_running_loop()
        while places:
            if all(map(self._is_heard_of, places)):
                found = await self._survey()
                places = [place for place in places if not self._is_led_as_meant(place, found)]
            if loop.time() >= deadline_s:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        return places

    def _is_heard_of(self, place: TopicPartition) -> bool:
        replicas = self._replicas_of(place)
        leader = self._cluster.leaders.leader_of(replicas.group) if replicas else None
        return replicas is None or (leader is not None and leader.node == replicas.nodes[0])

    def _is_led_as_meant(
        self, place: TopicPartition, found: Mapping[TopicPartition, PartitionStatus]
    ) -> bool:
        replicas = self._replicas_of(place)
        return replicas is None or (place in found and found[place].leader == replicas.nodes[0])

    def _replicas_of(self, place: TopicPartition) -> Replicas | None:
        """None for a partition that was deleted meanwhile: there is nothing left to wait for."""
        topic = self._cluster.metadata.topics.get(place.topic)
        if topic is None or place.partition >= topic.partitions:
            return None
        return topic.replicas[place.partition]

    def refuse_unclean(self, place: TopicPartition) -> PenstockError:
        """Return why no replica is made leader that may lack acknowledged records."""
        try:
            replicas = self._cluster.replicas_of(place)
        except PenstockError as error:
            return error
        leader = self._cluster.leaders.leader_of(replicas.group)
        if leader is not None and leader.node >= 0:
            return AlreadyLed(f"{place} is led by node {leader.node}")
        return EligibleLeadersUnavailable(
            f"{place} is led again when a majority of nodes {list(replicas.nodes)} is back; a"
            " replica that may lack acknowledged records is never elected"
        )
