"""Why links do not come about: what is told of it, and how often."""

import ssl

import pytest

from penstock.cluster.link_faults import LinkFaults, LinkRefused
from penstock.errors import Conflict
from penstock.testing import SimClock

PEER = "queue-2:9191"


def untrusted() -> ssl.SSLError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "certificate has expired"
    return error


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "level", "told"),
    [
        (untrusted(), "WARNING", "not accepted here: certificate has expired"),
        (tls_error("WRONG_VERSION_NUMBER"), "WARNING", "it does not speak TLS"),
        (
            tls_error("TLSV1_ALERT_UNKNOWN_CA"),
            "WARNING",
            "does not accept the certificate of this node: tlsv1 alert unknown ca",
        ),
        (tls_error("NO_SHARED_CIPHER"), "WARNING", "TLS failed: NO_SHARED_CIPHER"),
        (ConnectionRefusedError(111, "Connection refused"), "INFO", "Connection refused"),
        (ConnectionResetError("the peer has closed"), "INFO", "only one of both uses TLS"),
        (TimeoutError(), "INFO", "it does not answer"),
    ],
)
def test_a_peer_that_cannot_be_reached_is_told_with_the_reason(
    caplog: pytest.LogCaptureFixture, error: OSError, level: str, told: str
) -> None:
    with caplog.at_level("INFO"):
        LinkFaults(SimClock().steady_s).unreached(PEER, error)

    (record,) = caplog.records
    assert (record.levelname, record.message) == (level, "peer is out of reach")
    assert vars(record)["peer"] == PEER
    assert told in vars(record)["reason"]


def test_a_reason_is_told_once_a_minute_for_each_peer(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    faults = LinkFaults(clock.steady_s)

    def fail_for(seconds: int, peer: str) -> int:
        caplog.clear()
        for _ in range(seconds):
            faults.turned_away(peer, Conflict("node 3 belongs to another cluster"))
            clock.advance(1_000)
        return len(caplog.records)

    assert fail_for(60, PEER) == 1
    assert fail_for(61, PEER) == 2
    assert fail_for(1, "queue-3:9191") == 1
    faults.refused(PEER, LinkRefused("node 2 says: go away"))
    assert caplog.records[-1].message == "turned away by a peer"


def test_what_was_told_of_many_peers_is_forgotten_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = LinkFaults(SimClock().steady_s)
    for number in range(1_002):
        faults.turned_away(f"10.0.0.{number}", Conflict("no"))

    caplog.clear()
    faults.turned_away("10.0.0.1001", Conflict("no"))
    assert caplog.records == []
    faults.turned_away("10.0.0.0", Conflict("no"))
    assert len(caplog.records) == 1
