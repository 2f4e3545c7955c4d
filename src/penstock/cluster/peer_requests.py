"""What this node answers when a peer asks."""

import msgspec

from penstock.cluster.belonging import Belonging
from penstock.cluster.changes import MetadataChanges
from penstock.cluster.leadership import Leadership
from penstock.cluster.links import RequestKind
from penstock.cluster.overview import Overview
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.snapshot_exchange import SnapshotExchange
from penstock.cluster.transfer import ChunkRequest
from penstock.errors import InvalidRequest

_decode_numbers = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_chunk_request = msgspec.msgpack.Decoder(ChunkRequest).decode


class PeerRequests:
    """Answers requests, or raises what the peer is to be told."""

    def __init__(
        self,
        replicas: ReplicaSet,
        changes: MetadataChanges,
        snapshots: SnapshotExchange,
        overview: Overview,
        leadership: Leadership,
        belonging: Belonging,
    ) -> None:
        self._replicas = replicas
        self._changes = changes
        self._snapshots = snapshots
        self._overview = overview
        self._leadership = leadership
        self._belonging = belonging

    async def answer(self, kind: int, body: bytes) -> bytes:
        """Answer one request."""
        try:
            return await self._answer(kind, body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"a request of kind {kind} cannot be read by this node: {error}"
            ) from error

    async def _answer(self, kind: int, body: bytes) -> bytes:
        match kind:
            case RequestKind.PROPOSE:
                return await self._changes.propose_for_peer(body)
            case RequestKind.MANIFEST:
                group, index = _decode_numbers(body)
                return self._snapshots.offer_manifest(self._replicas.log_of(group), index)
            case RequestKind.CHUNK:
                request = _decode_chunk_request(body)
                log = self._replicas.log_of(request.group)
                return await self._snapshots.offer_chunk(log, request)
            case RequestKind.ENTRY:
                group, index = _decode_numbers(body)
                log = self._replicas.log_of(group)
                log.check_serving()
                return log.log.payload_at(index)[1]
            case RequestKind.STATUS:
                return msgspec.msgpack.encode(self._overview.led_here())
            case RequestKind.TRANSFER:
                group, to = _decode_numbers(body)
                self._leadership.transfer_here(group, to)
                return b""
            case RequestKind.PING:
                return b""
            case RequestKind.BELONGING:
                return self._belonging.answer(body)
            case _:
                raise InvalidRequest(f"requests of kind {kind} are unknown to this node")
