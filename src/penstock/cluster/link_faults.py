"""Says why a link to a peer does not come about: in the log, and once for each reason.

Peers are dialled several times a second for as long as it takes, so the same reason is told again
only after a while. A node that accepts a connection learns nothing of a handshake of TLS that
failed; but each side dials the other when no link comes about, so both tell what they see.
"""

import logging
import ssl
from collections.abc import Callable

from penstock.errors import PenstockError

logger = logging.getLogger(__name__)

_TOLD_AGAIN_S = 60.0
_TOLD_MAX = 1_000
_TLS_HINT = ": it may not accept the certificate of this node, or only one of both uses TLS"


class LinkRefused(PenstockError):
    """A peer wants no link to this node."""


class LinkFaults:
    """What was told of which peer, and when.

    A peer is known by the address that was dialled, or by the host that it came from.
    """

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._told: dict[tuple[str, str], float] = {}

    def unreached(self, peer: str, error: OSError) -> None:
        """Tell why a peer that was dialled has not said who it is."""
        reason = _reason_of(error)
        if self._is_due(peer, reason):
            level = logging.WARNING if isinstance(error, ssl.SSLError) else logging.INFO
            logger.log(level, "peer is out of reach", extra={"peer": peer, "reason": reason})

    def turned_away(self, peer: str, error: Exception) -> None:
        """Tell why this node wants no link to a peer."""
        reason = str(error)
        if self._is_due(peer, reason):
            logger.warning("peer turned away", extra={"peer": peer, "reason": reason})

    def refused(self, peer: str, error: LinkRefused) -> None:
        """Tell why a peer wants no link to this node."""
        reason = str(error)
        if self._is_due(peer, reason):
            logger.warning("turned away by a peer", extra={"peer": peer, "reason": reason})

    def _is_due(self, peer: str, reason: str) -> bool:
        now_s = self._time_s()
        told_s = self._told.pop((peer, reason), None)
        is_due = told_s is None or now_s - told_s >= _TOLD_AGAIN_S
        self._told[peer, reason] = now_s if told_s is None or is_due else told_s
        if len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]
        return is_due


def _reason_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted here: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return _tls_reason(error)
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "it ends the connection before it says who it is; its log may say why" + _TLS_HINT
    return error.strerror or str(error)


def _tls_reason(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if "WRONG_VERSION" in reason or "RECORD_LAYER" in reason:
        return "it does not speak TLS, and this node does"
    if "ALERT" in reason:
        told = reason.lower().replace("_", " ")
        return f"it does not accept the certificate of this node: {told}"
    return f"TLS failed: {reason}"
