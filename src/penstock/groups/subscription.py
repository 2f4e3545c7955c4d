"""Which topics members subscribe to: by name, by regular expression, or inside classic metadata."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from penstock.errors import InvalidSubscription
from penstock.groups.pattern import Pattern


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What groups need to know of a topic."""

    topic_id: UUID
    partitions: int
    era: int = 0
    """Since when the topic has its name; see `inheritance`."""
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Where groups go on that knew another topic under the name."""

    def replaces(self, earlier: "TopicInfo") -> bool:
        """Whether nothing that was known of the earlier topic of this name holds any more."""
        return self.topic_id != earlier.topic_id and self.era <= earlier.era


class Catalog:
    """The topics of the cluster at one moment, and what subscriptions mean at that moment."""

    def __init__(self, topics: Mapping[str, TopicInfo]) -> None:
        self.topics = dict(topics)
        self._matches: dict[str, frozenset[str]] = {}
        self.era = max((info.era for info in self.topics.values()), default=0)

    def resolve(self, names: tuple[str, ...], regex: str | None) -> frozenset[str]:
        """The existing topics among `names`, and those whose whole name matches `regex`."""
        found = self.topics.keys() & names
        return frozenset(found | self._matching(regex)) if regex else frozenset(found)

    def digest(self, names: frozenset[str]) -> int:
        """A number that changes when one of the topics changes."""
        digest = blake2b(digest_size=7)
        for name in sorted(names):
            info = self.topics[name]
            digest.update(f"{name}/{info.topic_id}/{info.partitions};".encode())
        return int.from_bytes(digest.digest())

    def gone_since(self, earlier: "Catalog") -> list[str]:
        """Topics of `earlier` that were deleted, including those created anew under their name.

        A topic whose copy took its place is not gone: groups go on with the copy.
        """
        return sorted(
            name
            for name, info in earlier.topics.items()
            if name not in self.topics or self.topics[name].replaces(info)
        )

    def newer_than(self, era: int) -> list[str]:
        """Topics that came to their name after that era."""
        return [name for name, info in self.topics.items() if info.era > era]

    def _matching(self, regex: str) -> frozenset[str]:
        if regex not in self._matches:
            self._matches[regex] = frozenset(filter(Pattern(regex).matches, self.topics))
        return self._matches[regex]


def check_regex(regex: str, chars_max: int) -> None:
    """Refuse an expression that cannot be compiled."""
    if len(regex) > chars_max:
        raise InvalidSubscription(f"the expression has {len(regex)} characters, not {chars_max}")
    Pattern(regex)


def classic_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a ConsumerProtocolSubscription, or None when the bytes are something else.

    All versions begin alike: version (int16), count of topics (int32), then for each its length
    (int16) and its name.
    """
    try:
        _version, count = struct.unpack_from(">hi", metadata)
        topics, position = [], 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + size]
            if size < 0 or len(name) != size:
                return None
            topics.append(name.decode())
            position += 2 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
