"""The timing and the limits of one group."""

from dataclasses import dataclass, fields

from penstock.errors import InvalidConfiguration


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Time is counted in ticks; what a tick is in milliseconds is up to the caller."""

    election_ticks: int = 10
    """Silence of a leader that lets others campaign; each waits a random 1 to 2 times this."""
    heartbeat_ticks: int = 1
    """Ticks between two heartbeats of a leader."""
    append_bytes_max: int = 1 << 20
    """Payload of one append; a larger entry travels alone."""
    inflight_messages_max: int = 64
    """Appends that a follower may not have answered yet."""
    inflight_bytes_max: int = 16 << 20
    """Payload of those appends; reaching it stops further ones."""
    tail_bytes_max: int = 64 << 20
    """Payload that is appended and not yet persisted; reaching it refuses proposals."""
    reads_max: int = 10_000
    """Reads that wait for the leader to prove itself; reaching it refuses further ones."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InvalidConfiguration(f"{field.name} is {getattr(self, field.name)}, not > 0")
        if self.heartbeat_ticks >= self.election_ticks:
            raise InvalidConfiguration(
                f"heartbeat_ticks is {self.heartbeat_ticks}, not below election_ticks,"
                f" which is {self.election_ticks}"
            )
