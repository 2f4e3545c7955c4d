"""ApiVersions: which APIs this node speaks, and in which versions.

Clients send it first, perhaps in a version that is newer than ours. Such a request is answered in
version 0 with UNSUPPORTED_VERSION and the list, from which the client picks a version and asks
again.
"""

from collections.abc import Iterable
from functools import cache

from kio.schema.api_versions.v4 import response as wire
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from penstock.errors import UnsupportedVersion
from penstock.protocols.kafka.api import Api, Reply, Request
from penstock.protocols.kafka.codec import API_VERSIONS_KEY, NO_THROTTLE, encode_body, frame_bytes
from penstock.protocols.kafka.errors import error_code

VERSIONS = range(5)


def api_versions_api(others: Iterable[Api]) -> Api:
    """Return the API that lists itself and all others."""
    listed: list[Api] = []

    @cache
    def body(version: int, error: ErrorCode) -> bytes:
        response = wire.ApiVersionsResponse(
            error_code=error,
            api_keys=tuple(
                wire.ApiVersion(
                    api_key=i16(api.key),
                    min_version=i16(api.version_min),
                    max_version=i16(api.version_max),
                )
                for api in sorted(listed, key=lambda api: api.key)
            ),
            throttle_time=NO_THROTTLE,
        )
        return encode_body(API_VERSIONS_KEY, version, response)

    def start(request: Request, reply: Reply) -> None:
        version = request.header.version
        if version in VERSIONS:
            reply([frame_bytes(request.header, body(version, ErrorCode.none))])
        else:
            error = UnsupportedVersion(f"ApiVersions version {version} is not supported")
            code = error_code(error, request.context.broker)
            reply([frame_bytes(request.header, body(0, code))])

    api = Api(API_VERSIONS_KEY, "ApiVersions", VERSIONS[0], VERSIONS[-1], start)
    listed.extend((*others, api))
    return api
