"""Opens the client for a command.

`penstock.client` is imported inside these functions: it loads librdkafka, and `penstock --help`
should not wait for that.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client import Admin, Client, ClusterAdmin, Connection, Groups


def connect(bootstrap: str) -> "Connection":
    """Name the cluster; nothing is contacted yet."""
    from penstock.client import Connection

    return Connection(bootstrap)


def open_admin(bootstrap: str) -> "Admin":
    """Contact the cluster to administer topics."""
    from penstock.client import Admin

    return Admin(connect(bootstrap))


def open_groups(admin: "Admin") -> "Groups":
    """Administer groups over the same connection."""
    from penstock.client import Groups

    return Groups(admin)


def open_cluster(url: str) -> "ClusterAdmin":
    """Name a node that carries out what operators ask; nothing is contacted yet."""
    from penstock.client import ClusterAdmin

    return ClusterAdmin(url)


def open_client(url: str) -> "Client":
    """Name one node or several that carry out what users of queues ask."""
    from penstock.client import Client

    return Client(url)
