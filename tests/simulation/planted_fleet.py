"""Bugs planted in how nodes follow the metadata and in what users do there, as in `planted`."""

from pathlib import Path
from typing import Any

import msgspec

from penstock.broker.share import ShareGroups
from penstock.cluster import PartitionQueue, ReplicatedLog
from penstock.cluster import metadata as metadata_module
from penstock.cluster import stewardship as stewardship_module
from penstock.cluster.cluster import Cluster
from penstock.cluster.described import Replicas
from penstock.cluster.links import Links
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.staged_writes import StagedWrites
from penstock.cluster.steward import GroupView, Step, next_step
from penstock.cluster.write_decisions import WriteDecisions
from penstock.cluster.write_events import WriteDecided
from penstock.delivery import DeliveryState, Stage
from penstock.errors import PenstockError
from penstock.groups import incremental as incremental_module
from penstock.groups import inheritance as inheritance_module
from penstock.groups.incremental import ConsumerGroup
from penstock.groups.reconciliation import reconciled
from penstock.ids import NodeId
from tests.simulation.planted import Replacements, bug


@bug
def a_node_that_starts_goes_by_its_old_metadata() -> Replacements:
    make = Cluster.__init__

    def trusting(self: Cluster, *args: Any) -> None:
        make(self, *args)
        self.metadata.is_current = True

    return [(Cluster, "__init__", trusting)]


@bug
def a_replica_that_comes_back_is_taken_for_its_former_self() -> Replacements:
    def forget_alone(self: ReplicaSet, directories: dict[int, Path], *_: Any) -> None:
        for directory in directories.values():
            self._directories.discard_replica(directory)

    return [(ReplicaSet, "_discard_replicas", forget_alone)]


@bug
def founders_are_forgotten_when_a_change_is_asked_for() -> Replacements:
    with_members = metadata_module._with_members

    def forget(replicas: Replicas, *args: Any) -> Replicas:
        return msgspec.structs.replace(with_members(replicas, *args), founders=())

    return [(metadata_module, "_with_members", forget)]


@bug
def first_members_are_not_named_by_the_log() -> Replacements:
    def silent(view: GroupView, *args: Any) -> Step | None:
        told = GroupView(
            view.leader, view.membership, view.followers, view.last_index, view.may_admit
        )
        return next_step(told, *args)

    return [(stewardship_module, "next_step", silent)]


@bug
def a_node_that_starts_looks_for_those_alone_whom_it_was_told_of() -> Replacements:
    know = Cluster._know_nodes

    def later(self: Cluster, known: set[int]) -> set[int]:
        return know(self, known) if self.metadata.is_current else known

    return [(Cluster, "_know_nodes", later)]


@bug
def only_the_node_with_the_smaller_number_dials() -> Replacements:
    keep_dialling = Links._keep_dialling

    async def dial(self: Links, node: NodeId) -> None:
        if self._node < node:
            await keep_dialling(self, node)

    return [(Links, "_keep_dialling", dial)]


@bug
def receipts_are_numbered_alike_in_all_topics() -> Replacements:
    make = PartitionQueue.__init__

    def from_zero(self: PartitionQueue, *args: Any, **rest: Any) -> None:
        make(self, *args, **rest)
        self._first_count = self._count = 0

    return [(PartitionQueue, "__init__", from_zero)]


@bug
def a_later_run_takes_the_place_of_one_that_counts() -> Replacements:
    decide = WriteDecisions._decide

    def replace(self: WriteDecisions, writer: Any, event: WriteDecided) -> Any:
        if writer.open is not None and writer.open.epoch == event.epoch:
            writer.open = self.open[event.writer] = event
        return decide(self, writer, event)

    return [(WriteDecisions, "_decide", replace)]


@bug
def staged_writes_are_not_in_snapshots() -> Replacements:
    return [(StagedWrites, "restore", lambda *_: None)]


@bug
def what_a_group_has_settled_is_not_in_snapshots() -> Replacements:
    return [(DeliveryState, "restore", lambda *_: None)]


@bug
def positions_outlive_their_topic() -> Replacements:
    return [(inheritance_module, "_is_outlived", lambda *_: False)]


@bug
def what_is_read_is_not_confirmed_by_a_majority() -> Replacements:
    async def trust(self: ReplicatedLog) -> None:
        self.check_serving()

    return [(ReplicatedLog, "wait_current", trust)]


@bug
def what_waits_is_not_in_snapshots() -> Replacements:
    return [(Stage, "restore", lambda *_: None)]


@bug
def a_partition_is_given_away_before_its_owner_has_let_go() -> Replacements:
    def hasty(member: Any, *, holder_of: Any, **rest: Any) -> Any:
        return reconciled(member, holder_of=lambda *_: None, **rest)

    return [(incremental_module, "reconciled", hasty)]


@bug
def members_that_have_gone_keep_their_partitions() -> Replacements:
    return [(ConsumerGroup, "_release", lambda *_: None)]


@bug
def what_share_consumers_accept_is_confirmed_although_it_failed() -> Replacements:
    carry_out = ShareGroups._carry_out

    async def confirm(self: ShareGroups, *args: Any) -> Any:
        try:
            return await carry_out(self, *args)
        except PenstockError:
            return []

    return [(ShareGroups, "_carry_out", confirm)]
