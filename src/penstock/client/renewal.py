"""Which leases to extend when, without a clock or a connection.

A lease is extended after a third of its length, so that two attempts may fail. Leases that are due
at about the same time are extended together.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.deliveries import Leased


@dataclass(slots=True)
class _Held:
    message: Leased
    lease_s: float
    due_s: float
    owner: object


class Renewal:
    """The messages that are being worked on."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: Leased) -> bool:
        return _key(message) in self._held

    def hold(
        self, messages: Iterable[Leased], *, lease_s: float, now_s: float, owner: object = None
    ) -> None:
        """Keep messages out from now on, each for `lease_s` at a time, on behalf of `owner`."""
        for message in messages:
            self._held[_key(message)] = _Held(message, lease_s, now_s + lease_s / 3, owner)

    def drop(self, messages: Iterable[Leased]) -> None:
        """Let go of messages, which are settled or refused; those not held are ignored."""
        for message in messages:
            self._held.pop(_key(message), None)

    def drop_all_of(self, owner: object) -> None:
        """Let go of everything that is held on behalf of `owner`."""
        self._held = {key: each for key, each in self._held.items() if each.owner is not owner}

    def next_due_s(self) -> float | None:
        """Return when something is to be extended, or None when nothing is held."""
        return min((each.due_s for each in self._held.values()), default=None)

    def take_due(self, now_s: float) -> dict[float, list[Leased]]:
        """Return the messages to extend by the length of their leases, due within a moment."""
        due: dict[float, list[Leased]] = {}
        for each in self._held.values():
            if each.due_s <= now_s + each.lease_s / 20:
                each.due_s = now_s + each.lease_s / 3
                due.setdefault(each.lease_s, []).append(each.message)
        return due


def _key(message: Leased) -> tuple[str, str, str]:
    return message.topic, message.group, message.receipt
