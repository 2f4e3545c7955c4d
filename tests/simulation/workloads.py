"""What clients want of the group of nodes in a history."""

from enum import StrEnum


class Workload(StrEnum):
    """Decides what the nodes replicate, and who asks them for what."""

    RECORDS = "records"
    """A partition: clients publish, read and delete records."""
    MESSAGES = "messages"
    """The same, and messages are received one by one, with all that can become of them."""
    METADATA = "metadata"
    """The metadata: topics are created, moved, changed and deleted."""
    GROUPS = "groups"
    """A shard of consumer groups: members join, and commit offsets."""


SHARES = {Workload.RECORDS: 5, Workload.MESSAGES: 3, Workload.METADATA: 1, Workload.GROUPS: 1}
"""How many histories of ten have which."""
