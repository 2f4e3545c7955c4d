"""What groups may ask for, and how long things take when they do not ask."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The settings of the coordinator; the same for every group of a shard.

    The `consumer_` settings are the server's word in the protocol of KIP-848, where members do not
    choose their session timeout. A member that waits for partitions which another member has yet
    to release is asked to come back after `consumer_heartbeat_waiting_ms`: that bounds how long a
    partition that moves is read by nobody.

    Members learn of each other's coming and going with their next heartbeat, so small groups send
    them often: one per `consumer_heartbeat_spacing_ms` and group, each member every
    `consumer_heartbeat_ms_min` at most and every `consumer_heartbeat_ms` at least.
    """

    session_ms_min: int = 6_000
    session_ms_max: int = 1_800_000
    initial_rebalance_ms: int = 100
    members_max: int = 10_000
    consumer_session_ms: int = 45_000
    consumer_heartbeat_ms: int = 5_000
    consumer_heartbeat_ms_min: int = 500
    consumer_heartbeat_spacing_ms: int = 50
    consumer_heartbeat_waiting_ms: int = 300
    regex_chars_max: int = 256
    offset_note_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_sweep_ms: int = 600_000
