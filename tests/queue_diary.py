"""Consumers of a queue group that write down what they saw, and what must hold of it.

Messages carry numbers. Their last digit says what consumers do with them: 7 is given back each
time, 8 is rejected, 9 is forgotten at its first delivery, and all others are acked.
"""

import http.client
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

LEASE_MS = 2_000
_CALL_TIMEOUT_S = 20.0
# An ack without an answer is sent again for this long, through whichever node.
_ACK_AGAIN_S = 30.0

Json = dict[str, Any]


class Delivery(NamedTuple):
    """One time that a message came to a consumer; `asked_s` is when it had asked."""

    message: str
    attempt: int
    asked_s: float
    came_s: float


@dataclass
class Diary:
    """What all consumers saw. Threads only append."""

    deliveries: list[Delivery] = field(default_factory=list)
    acked: list[tuple[str, float]] = field(default_factory=list)
    """Messages whose ack was confirmed, and when the answer came."""
    doubtful: list[str] = field(default_factory=list)
    """Messages whose ack got no answer although it was sent again and again."""
    repeats: Counter[str] = field(default_factory=Counter)
    """Why acks were sent again, and how many messages they were for."""
    lost_receives: list[float] = field(default_factory=list)

    @property
    def last_came_s(self) -> float:
        """When the last message came."""
        return self.deliveries[-1].came_s if self.deliveries else 0.0

    def check(self, published: Iterable[str], dead: Mapping[str, int], *, crashes: int) -> None:
        """Check that each message was handled once, none was lost and none came back."""
        acked_s = dict(self.acked)
        by_message: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            by_message[delivery.message].append(delivery)
        assert len(acked_s) == len(self.acked), "an ack was confirmed twice"
        back = [each for each in self.deliveries if each.asked_s > acked_s.get(each.message, 9e9)]
        assert not back, f"acked messages came back: {back[:5]}"
        handled = {*acked_s, *self.doubtful, *dead}
        missing = [message for message in published if message not in handled]
        assert not missing, f"{len(missing)} messages are lost: {missing[:10]}"
        doubled = {message: count for message, count in dead.items() if count > 1}
        assert not doubled, f"dead letters exist more than once: {doubled}"
        both = acked_s.keys() & dead.keys()
        assert not both, f"acked messages are among the dead letters: {sorted(both)[:10]}"
        self._check_attempts(by_message, crashes)

    def _check_attempts(self, by_message: dict[str, list[Delivery]], crashes: int) -> None:
        """A delivery whose answer got lost counts; one whose lease was not journalled does not."""
        unseen = len(self.lost_receives)
        for message, seen in by_message.items():
            for count, delivery in enumerate(sorted(seen, key=lambda each: each.came_s), 1):
                assert count - crashes <= delivery.attempt <= count + unseen, (
                    f"delivery {count} of message {message} says attempt {delivery.attempt}"
                )


class Caller:
    """Calls any of some nodes over HTTP, as a client behind a load balancer does."""

    def __init__(self, ports: Callable[[], list[int]], seed: int) -> None:
        self._ports = ports
        self._random = random.Random(seed)
        self.was_sent = False
        """Whether the last call may have reached a node."""
        self.failure = ""
        """Why the last call has no answer."""

    def post(self, path: str, body: Json) -> Json | None:
        """Return the answer, or None when there is none or it is an error of the server."""
        self.was_sent = False
        self.failure = "no node runs"
        ports = self._ports()
        if not ports:
            time.sleep(0.05)
            return None
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._random.choice(ports), timeout=_CALL_TIMEOUT_S
        )
        try:
            connection.connect()
            self.was_sent = True
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.failure = f"{type(error).__name__} {'after' if self.was_sent else 'before'} it"
            time.sleep(0.02)
            return None
        finally:
            connection.close()
        if response.status >= 500 or response.status == 404:
            # A node that has just started may not have heard of the topic yet.
            self.failure = f"{response.status} {content.decode()}"
            time.sleep(0.02)
            return None
        # A topic may exist because its creation got no answer.
        assert response.status in (200, 201, 409), f"{path}: {response.status} {content[:500]!r}"
        answer: Json = json.loads(content)
        return answer


class Consumers:
    """Threads that receive from one group until they are stopped."""

    def __init__(
        self, topic: str, group: str, ports: Callable[[], list[int]], *, count: int, seed: int
    ) -> None:
        self.diary = Diary()
        self.failure: BaseException | None = None
        self._path = f"/v1/topics/{topic}/groups/{group}"
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._guarded, args=(f"c{number}", Caller(ports, seed + number))
            )
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_until_quiet(self, quiet_s: float, deadline_s: float) -> None:
        """Wait until nothing has come for a while."""
        deadline = time.monotonic() + deadline_s
        began = time.monotonic()
        while time.monotonic() - max(began, self.diary.last_came_s) < quiet_s:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, "messages go on coming"
            time.sleep(0.05)
        assert self.failure is None, self.failure

    def _guarded(self, name: str, caller: Caller) -> None:
        try:
            while not self._stop.is_set():
                self._round(name, caller)
        except BaseException as failure:  # noqa: BLE001 (the test reports it)
            self.failure = failure

    def _round(self, name: str, caller: Caller) -> None:
        asked_s = time.monotonic()
        body = {"max": 10, "wait": "1s", "lease": f"{LEASE_MS}ms", "consumer": name}
        answer = caller.post(f"{self._path}/receive", body)
        if answer is None:
            if caller.was_sent:
                self.diary.lost_receives.append(asked_s)
            return
        to_do: dict[str, dict[str, str]] = {"ack": {}, "nack": {}, "reject": {}}
        for message in answer["messages"]:
            number, attempt = int(message["value"]), message["attempt"]
            self.diary.deliveries.append(
                Delivery(message["id"], attempt, asked_s, time.monotonic())
            )
            if number % 10 == 9 and attempt == 1:
                continue
            verb = {7: "nack", 8: "reject"}.get(number % 10, "ack")
            to_do[verb][message["receipt"]] = message["id"]
        for verb, receipts in to_do.items():
            if receipts:
                self._answer(verb, receipts, caller)

    def _answer(self, verb: str, receipts: dict[str, str], caller: Caller) -> None:
        if verb == "ack":
            self._ack_until_known(receipts, caller)
            return
        body: Json = {"receipts": list(receipts)}
        if verb == "nack":
            body |= {"delay": "0ms", "reason": "seven"}
        caller.post(f"{self._path}/{verb}", body)

    def _ack_until_known(self, receipts: dict[str, str], caller: Caller) -> None:
        """Ack, and again through any node while the outcome is open, as clients do."""
        until_s = time.monotonic() + _ACK_AGAIN_S
        while receipts:
            answer = caller.post(f"{self._path}/ack", {"receipts": list(receipts)})
            if answer is not None:
                receipts = self._note_outcomes(receipts, answer)
            else:
                self.diary.repeats[caller.failure] += len(receipts)
            if time.monotonic() > until_s:
                self.diary.doubtful.extend(receipts.values())
                return

    def _note_outcomes(self, receipts: dict[str, str], answer: Json) -> dict[str, str]:
        """Write down what became of receipts; return those whose outcome is still open."""
        now_s = time.monotonic()
        refused = {each["receipt"]: each["error"] for each in answer["failed"]}
        unknown = {}
        for receipt, message in receipts.items():
            if receipt not in refused:
                self.diary.acked.append((message, now_s))
            elif refused[receipt]["retryable"]:
                self.diary.repeats[f"{refused[receipt]['message']} (of a receipt)"] += 1
                unknown[receipt] = message
        return unknown


def publish_numbers(caller: Caller, topic: str, numbers: range) -> list[str]:
    """Publish numbers until each is confirmed; return the ids of what was.

    One whose answer got lost may be there twice, as two messages.
    """
    ids = []
    for start in range(numbers.start, numbers.stop, 50):
        left = list(range(start, min(start + 50, numbers.stop)))
        while left:
            messages = [{"value": str(number), "partition": number % 3} for number in left]
            answer = caller.post(f"/v1/topics/{topic}/messages", {"messages": messages})
            if answer is not None:
                ids += [each["id"] for each in answer["results"] if not each.get("error")]
                left = [
                    number
                    for number, result in zip(left, answer["results"], strict=True)
                    if result.get("error")
                ]
    return ids
