"""All APIs of the door, by key."""

from collections.abc import Mapping

from penstock.protocols.kafka.api import Api
from penstock.protocols.kafka.api_versions import api_versions_api
from penstock.protocols.kafka.classic_groups import classic_group_apis
from penstock.protocols.kafka.cluster import cluster_apis
from penstock.protocols.kafka.configs import config_apis
from penstock.protocols.kafka.consumer_groups import consumer_group_apis
from penstock.protocols.kafka.coordinator import find_coordinator_api
from penstock.protocols.kafka.fetch import fetch_api
from penstock.protocols.kafka.group_admin import group_admin_apis
from penstock.protocols.kafka.group_offsets_by_id import group_offset_apis
from penstock.protocols.kafka.list_offsets import list_offsets_api, offset_for_leader_epoch_api
from penstock.protocols.kafka.metadata import metadata_api
from penstock.protocols.kafka.produce import produce_api
from penstock.protocols.kafka.topics import topic_apis


def all_apis() -> Mapping[int, Api]:
    """Return a fresh set of APIs, each with its own state where it has any."""
    apis = [
        produce_api(),
        fetch_api(),
        list_offsets_api(),
        offset_for_leader_epoch_api(),
        metadata_api(),
        *topic_apis(),
        *config_apis(),
        *cluster_apis(),
        find_coordinator_api(),
        *classic_group_apis(),
        *consumer_group_apis(),
        *group_offset_apis(),
        *group_admin_apis(),
    ]
    apis.append(api_versions_api(apis))
    return {api.key: api for api in apis}
