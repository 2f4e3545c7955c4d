"""The scripts end well with the real code."""

from collections.abc import Callable

import pytest

from tests.simulation import group_scripts, message_scripts, removal_scripts, scripts

SCRIPTS = [
    scripts.figure_8,
    scripts.aba_appends,
    scripts.resting_leader_loses_power,
    scripts.resting_leader_restarts_at_once,
    scripts.resting_leader_closes_its_replica,
    scripts.resting_leader_is_cut_off,
    scripts.resting_follower_is_gone_for_a_while,
    scripts.membership_change_in_a_partition,
    scripts.change_before_the_first_commit,
    scripts.vote_in_the_page_cache,
    scripts.vote_while_the_disk_is_full,
    scripts.wiped_node_is_asked_for_its_vote,
    scripts.wiped_node_acknowledges,
    scripts.page_cache_of_a_failed_sync,
    scripts.handover_that_is_given_up,
    scripts.records_behind_state_on_a_slow_disk,
    removal_scripts.compaction_of_replaced_records,
    removal_scripts.compaction_beside_what_is_not_committed,
    removal_scripts.retention_of_old_segments,
    removal_scripts.power_cut_after_a_copied_snapshot,
    removal_scripts.election_after_a_copied_snapshot,
    removal_scripts.deposed_leader_copies_a_snapshot,
    scripts.conflicting_entries_are_cut_before_a_restart,
    scripts.rot_in_a_followers_last_flush,
    scripts.rot_in_the_last_flush,
    scripts.rot_in_what_a_follower_lacks,
    group_scripts.disk_of_a_shard_leader_is_full,
    message_scripts.key_is_published_again_while_it_is_in_flight,
    message_scripts.message_becomes_due_while_it_is_being_cancelled,
    message_scripts.message_is_released_elsewhere_while_it_is_read,
    message_scripts.receipt_outlives_its_lease,
    message_scripts.lease_of_one_of_two_is_extended,
    message_scripts.leader_is_lost_between_a_copy_and_its_settlement,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.__name__))
def test_nothing_is_lost_in_a_hard_case(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("operation", range(14))
def test_a_leader_may_stop_between_any_two_disk_operations_of_a_publish(operation: int) -> None:
    scripts.leader_stops_before(operation)


@pytest.mark.parametrize("operation", range(20))
def test_everyone_may_stop_between_any_two_disk_operations_of_an_election(operation: int) -> None:
    scripts.everyone_stops_before(operation)


@pytest.mark.parametrize("are_answers_lost", [False, True])
def test_a_node_that_hands_over_and_ends_leaves_every_batch_once(are_answers_lost: bool) -> None:
    for events in range(48):
        scripts.node_stops_in_order_after(events, are_answers_lost=are_answers_lost)
