"""Receives messages of a queue group for `penstock consume --queue`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.connection import open_client
from penstock.cli.formats import Writer
from penstock.cli.interruption import Interruption
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.client import Client, LeasedMessage

# Short enough for Ctrl-C to feel immediate.
_WAIT_S = 0.5
_COUNT_MAX = 500


@dataclass(frozen=True, slots=True)
class Receiving:
    """Where messages come from and go to, and when that ends."""

    url: str
    writer: Writer
    output: Output
    count_max: int | None = None
    exit_at_end: bool = False


def receive(topic: str, group: str, receiving: Receiving) -> None:
    """Write messages out and ack those that were, until Ctrl-C or a limit is reached."""
    left = receiving.count_max
    with open_client(receiving.url) as client, Interruption() as interruption:
        # A group would begin on a topic that a person mistyped.
        client.topic(topic)
        while not interruption.is_requested and left != 0:
            count_max = _COUNT_MAX if left is None else min(left, _COUNT_MAX)
            messages = client.receive(topic, group, wait_s=_WAIT_S, count_max=count_max)
            if not messages and receiving.exit_at_end:
                break
            _write_out(client, messages, receiving)
            left = None if left is None else left - len(messages)
    if interruption.is_requested:
        raise KeyboardInterrupt


def _write_out(client: "Client", messages: "list[LeasedMessage]", receiving: Receiving) -> None:
    try:
        for message in messages:
            receiving.output.write(receiving.writer(message))
        receiving.output.flush()
    except OSError:
        # Whoever read along has gone; others may have the messages at once.
        client.give_back_batch(messages, reason="could not be written out")
        raise
    for refusal in client.ack_batch(messages):
        receiving.output.note(f"penstock: {refusal.error}; it will be delivered again")
