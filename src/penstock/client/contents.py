"""Keys, values and headers as nodes write them in JSON: text, or base64 where bytes are no text."""

from base64 import b64decode

import msgspec

from penstock.client.messages import Header


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message in an answer."""

    key: str | None
    value: str | None
    headers: dict[str, str | None]
    encoding: str = "text"
    key_encoding: str = "text"
    raw_headers: list[tuple[str, str | None]] | None = None

    def read_key(self) -> bytes | None:
        """Return the key as it is stored."""
        return _bytes(self.key, self.key_encoding)

    def read_value(self) -> bytes | None:
        """Return the value as it is stored."""
        return _bytes(self.value, self.encoding)

    def read_headers(self) -> tuple[Header, ...]:
        """Return the headers as they are stored, with those that repeat."""
        if self.raw_headers is not None:
            return tuple(Header(name, _bytes(text, "base64")) for name, text in self.raw_headers)
        if not self.headers:
            return ()
        return tuple(Header(name, _bytes(text, "text")) for name, text in self.headers.items())


def _bytes(content: str | None, encoding: str) -> bytes | None:
    if content is None:
        return None
    return b64decode(content) if encoding == "base64" else content.encode()
