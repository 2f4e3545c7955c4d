"""Every planted bug is noticed, by a script or by a random history."""

import pytest

from tests.simulation import (
    group_scripts,
    message_scripts,
    planted_cluster,
    planted_delivery,
    planted_fleet,
    removal_scripts,
    scripts,
)
from tests.simulation.fleet import fleet, queue_scripts
from tests.simulation.fleet import scripts as fleet_scripts
from tests.simulation.planted import BUGS, planted
from tests.simulation.referee import Violation
from tests.simulation.workloads import Workload
from tests.simulation.world import play

# Bugs are registered by the modules that hold them.
assert planted_cluster
assert planted_delivery
assert planted_fleet
EVENTS = 20_000
# The history that noticed a bug may take another course after a change of the code; then one of
# these does. What fewer than a quarter of all histories notice has a script.
SEEDS = range(40)
BY_SCRIPT = {
    "a_replica_that_comes_back_is_taken_for_its_former_self": (
        fleet_scripts.two_that_come_back_are_cut_off_while_they_are_filled
    ),
    "a_node_that_starts_looks_for_those_alone_whom_it_was_told_of": (
        fleet_scripts.all_nodes_restart_after_the_first_have_left
    ),
    "first_members_are_not_named_by_the_log": (
        fleet_scripts.first_member_is_down_until_its_partition_has_been_moved
    ),
    "founders_are_forgotten_when_a_change_is_asked_for": (
        fleet_scripts.all_first_members_are_down_until_their_partition_has_been_moved
    ),
    "only_the_node_with_the_smaller_number_dials": (
        fleet_scripts.node_that_lost_its_disk_does_not_know_who_leads
    ),
    "receipts_are_numbered_alike_in_all_topics": queue_scripts.receipt_outlives_its_topic,
    "a_dead_letter_is_copied_by_two_leaders": (
        message_scripts.leader_is_lost_between_a_copy_and_its_settlement
    ),
    "a_message_is_released_while_its_cancellation_is_under_way": (
        message_scripts.message_becomes_due_while_it_is_being_cancelled
    ),
    "a_message_is_released_that_was_read_in_an_older_reign": (
        message_scripts.message_is_released_elsewhere_while_it_is_read
    ),
    "a_receipt_of_an_older_lease_is_honoured": message_scripts.receipt_outlives_its_lease,
    "a_shard_is_led_on_although_its_events_may_still_come_true": (
        group_scripts.disk_of_a_shard_leader_is_full
    ),
    "an_extended_lease_ends_with_the_others": message_scripts.lease_of_one_of_two_is_extended,
    "changes_members_while_a_change_is_open": scripts.change_before_the_first_commit,
    "commits_old_terms_by_counting": scripts.figure_8,
    "compaction_counts_what_is_not_committed": (
        removal_scripts.compaction_beside_what_is_not_committed
    ),
    "compaction_keeps_the_oldest_of_a_key": removal_scripts.compaction_of_replaced_records,
    "copy_of_a_snapshot_is_not_synced": removal_scripts.power_cut_after_a_copied_snapshot,
    "copy_of_a_snapshot_takes_the_vote_away": removal_scripts.election_after_a_copied_snapshot,
    "counts_a_wiped_node_for_its_former_self": scripts.wiped_node_acknowledges,
    "counts_on_what_a_follower_has_lost": scripts.rot_in_a_followers_last_flush,
    "cut_does_not_reach_the_files": scripts.conflicting_entries_are_cut_before_a_restart,
    "damaged_entries_are_sent_to_followers": scripts.rot_in_what_a_follower_lacks,
    "entries_outlive_the_snapshot_that_replaces_them": (
        removal_scripts.deposed_leader_copies_a_snapshot
    ),
    "forgets_what_it_may_have_lost": scripts.rot_in_the_last_flush,
    "keeps_conflicting_entries": scripts.figure_8,
    "keys_in_flight_are_not_waited_for": (
        message_scripts.key_is_published_again_while_it_is_in_flight
    ),
    "recovery_trusts_the_page_cache": scripts.vote_in_the_page_cache,
    "reports_the_mark_of_a_write_that_is_only_begun": scripts.records_behind_state_on_a_slow_disk,
    "rests_on_while_the_leader_is_silent": scripts.resting_leader_loses_power,
    "rests_on_while_the_leader_no_longer_says_so": scripts.resting_leader_closes_its_replica,
    "retention_does_not_wait_for_a_snapshot": removal_scripts.retention_of_old_segments,
    "retention_takes_one_segment_too_many": removal_scripts.retention_of_old_segments,
    "snapshot_is_installed_without_its_state": removal_scripts.election_after_a_copied_snapshot,
    "vote_that_was_saved_ahead_is_taken_back": scripts.vote_while_the_disk_is_full,
    "votes_for_shorter_logs": scripts.rot_in_the_last_flush,
    "votes_twice_in_a_term": scripts.figure_8,
    "what_is_read_is_not_confirmed_by_a_majority": (
        queue_scripts.message_is_acked_while_the_first_leader_is_suspended
    ),
    "wiped_node_votes_as_its_former_self": scripts.wiped_node_is_asked_for_its_vote,
}
BY_SEED = {
    "acknowledges_appends_before_the_sync": 0,
    "acknowledges_publishes_before_they_commit": 0,
    "applies_what_is_not_committed": 0,
    "checkpoint_is_written_before_its_sync": 1,
    "cuts_what_an_append_does_not_mention": 0,
    "deletion_is_forgotten_on_a_restart": 1,
    "deletion_is_known_to_one_replica": 0,
    "high_watermark_follows_the_log_and_falls_back": 0,
    "leader_counts_its_own_copy_before_the_sync": 3,
    "producers_are_forgotten_on_a_restart": 1,
    "producers_are_known_to_the_leader_alone": 0,
    "records_are_not_synced": 0,
    "reports_a_write_before_it_is_on_disk": 0,
    "reveals_votes_before_they_are_saved": 0,
    "segment_names_are_not_synced": 0,
    "serves_after_it_was_deposed": 0,
    "serves_before_it_knows_what_is_committed": 3,
    "snapshot_claims_one_entry_too_many": 1,
    "vote_is_not_saved": 0,
    "vote_is_not_synced": 0,
}
# These are planted in the delivery of messages, and noticed by histories that have consumers.
MESSAGES_BY_SEED = {
    "a_cancelled_message_stays_in_the_stage": 0,
    "a_dying_message_is_settled_before_its_copy_is_there": 0,
    "a_lease_that_was_not_committed_is_handed_out_again": 0,
    "a_released_message_stays_in_the_stage": 0,
    "acks_are_confirmed_before_they_commit": 0,
    "attempts_are_lost_on_a_failover": 1,
    "idempotency_keys_are_lost_on_a_restart": 0,
    "leases_are_lost_on_a_failover": 0,
    "messages_are_released_early": 0,
    "segments_go_with_the_messages_that_wait_in_them": 0,
    "strict_order_does_not_wait_for_a_message_that_rests": 1,
    "the_next_of_a_key_does_not_wait_after_a_failover": 0,
}

# And these in the metadata and in consumer groups.
CLUSTER_BY_SEED = {
    "a_command_is_confirmed_before_this_node_has_applied_it": (Workload.METADATA, 0),
    "a_topic_that_was_deleted_is_created_by_a_late_repetition": (Workload.METADATA, 1),
    "offsets_are_confirmed_before_they_commit": (Workload.GROUPS, 0),
    "offsets_are_lost_on_a_restart": (Workload.GROUPS, 1),
    "producer_ids_are_given_again_after_a_restart": (Workload.METADATA, 0),
}

# And these in how nodes follow the metadata and in what users do there, noticed by fleets.
FLEET_BY_SEED = {
    "a_cancelled_message_stays_in_the_stage": 0,
    "a_later_run_takes_the_place_of_one_that_counts": 0,
    "a_node_that_starts_goes_by_its_old_metadata": 9,
    "a_partition_is_given_away_before_its_owner_has_let_go": 2,
    "acks_are_confirmed_before_they_commit": 0,
    "members_that_have_gone_keep_their_partitions": 0,
    "messages_are_released_early": 2,
    "offsets_are_confirmed_before_they_commit": 0,
    "offsets_are_lost_on_a_restart": 4,
    "positions_outlive_their_topic": 4,
    "staged_writes_are_not_in_snapshots": 7,
    "what_a_group_has_settled_is_not_in_snapshots": 4,
    "what_share_consumers_accept_is_confirmed_although_it_failed": 1,
    "what_waits_is_not_in_snapshots": 9,
}
FLEET_EVENTS = 30_000


def test_every_planted_bug_has_its_catcher() -> None:
    catchers = (BY_SCRIPT, BY_SEED, MESSAGES_BY_SEED, CLUSTER_BY_SEED, FLEET_BY_SEED)

    assert BUGS.keys() == {name for each in catchers for name in each}


@pytest.mark.parametrize("name", BY_SCRIPT)
def test_a_script_notices_a_planted_bug(name: str) -> None:
    with planted(name), pytest.raises(Violation):
        BY_SCRIPT[name]()


@pytest.mark.parametrize("name", BY_SEED)
def test_a_random_history_notices_a_planted_bug(name: str) -> None:
    with planted(name):
        assert is_noticed(BY_SEED[name], Workload.RECORDS)


@pytest.mark.parametrize("name", MESSAGES_BY_SEED)
def test_a_history_with_consumers_notices_a_bug_in_delivery(name: str) -> None:
    with planted(name):
        assert is_noticed(MESSAGES_BY_SEED[name], Workload.MESSAGES)


@pytest.mark.parametrize("name", CLUSTER_BY_SEED)
def test_a_history_of_metadata_or_groups_notices_a_bug_there(name: str) -> None:
    workload, first = CLUSTER_BY_SEED[name]
    with planted(name):
        assert is_noticed(first, workload)


@pytest.mark.parametrize("name", FLEET_BY_SEED)
def test_a_history_of_a_fleet_notices_a_bug_in_how_nodes_follow(name: str) -> None:
    with planted(name):
        seeds = (FLEET_BY_SEED[name], *SEEDS)
        assert any(fleet.play(seed, events=FLEET_EVENTS).violation for seed in seeds)


def is_noticed(first: int, workload: Workload) -> bool:
    """Whether one of a few histories breaks an invariant."""
    seeds = (first, *SEEDS)
    return any(play(seed, events=EVENTS, workload=workload).violation for seed in seeds)
