"""How links between nodes are encrypted.

Both sides show a certificate of the same authorities. Files that were replaced are read again
before the next dial, so certificates are renewed without starting all nodes at once: both nodes of
a pair without a link dial, each with what is in its files by then, and accept by that, too. A new
authority is trusted beside the old one until the node is started again.
"""

import logging
import ssl
from pathlib import Path

from penstock.errors import InvalidConfiguration

logger = logging.getLogger(__name__)

_Files = dict[str, str]
_Signature = list[tuple[int, int, int]]


class LinkTls:
    """The two contexts of a node, and the files that they were made of."""

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._signature = _signature_of(files)
        self.accepting = _context(ssl.Purpose.CLIENT_AUTH, files)
        self.dialling = _context(ssl.Purpose.SERVER_AUTH, files)

    def follow_files(self) -> None:
        """Go by the files as they are now; by those of before while the new ones are no use."""
        try:
            signature = _signature_of(self._files)
            if signature == self._signature:
                return
            # One that cannot be loaded would leave a context that is in use without a key.
            dialling = _context(ssl.Purpose.SERVER_AUTH, self._files)
            self.accepting.load_verify_locations(self._files["authority"])
            self.accepting.load_cert_chain(self._files["certificate"], self._files["key"])
        except (OSError, InvalidConfiguration) as error:
            logger.debug("certificates cannot be read again", extra={"reason": str(error)})
            return
        self.dialling = dialling
        self._signature = signature
        logger.info("certificates read again", extra={"path": self._files["certificate"]})


def load_link_tls(*, certificate: str, key: str, authority: str) -> LinkTls | None:
    """Read the files that the options name; all three are given, or none."""
    given = {"certificate": certificate, "key": key, "authority": authority}
    if not any(given.values()):
        return None
    missing = [f"peer_tls_{name}" for name, path in given.items() if not path]
    if missing:
        raise InvalidConfiguration(f"links with TLS also need {', '.join(missing)}")
    for name, path in given.items():
        _check_readable(f"peer_tls_{name}", path)
    return LinkTls(given)


def _context(purpose: ssl.Purpose, files: _Files) -> ssl.SSLContext:
    certificate, key, authority = files["certificate"], files["key"], files["authority"]
    try:
        context = ssl.create_default_context(purpose, cafile=authority)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise InvalidConfiguration(
            f"peer_tls_certificate {certificate}, peer_tls_key {key} and peer_tls_authority"
            f" {authority} cannot be used together: {error}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED
    # Nodes are told apart by their hello; the certificate says that they belong here.
    context.check_hostname = False
    return context


def _signature_of(files: _Files) -> _Signature:
    """What changes when one of the files is replaced or written to."""
    found = [Path(path).stat() for path in files.values()]
    return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found]


def _check_readable(option: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise InvalidConfiguration(f"{option}: {path} cannot be read: {error.strerror}") from error
