"""Regular expressions over topic names, matched in time that grows with the name only.

Clients send these expressions and the coordinator matches them against every topic, so a hostile
or unlucky one must not be able to stop it. Like RE2, which Kafka uses, the matcher follows all
alternatives at once instead of trying them in turn: there is no back-tracking, and there are no
back-references and no look-around.

Understood are literals, `.`, classes, `\\d \\w \\s` and their opposites, groups (also named or not
captured), `|`, `* + ? {m} {m,} {m,n}` (greedy or not, which makes no difference here),
`^ $ \\A \\z`, and a leading `(?i)`. The whole name has to match.
"""

import re
from collections.abc import Callable

from penstock.errors import InvalidSubscription

_STATES_MAX = 2_000
_DEPTH_MAX = 50
_GROUP = re.compile(r"\((\?:|\?P?<\w+>)?(?!\?)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_ESCAPES = "dDwWsS"

Accepts = Callable[[str], object]


class Pattern:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        ignores_case = text.startswith("(?i)")
        self._flags = re.IGNORECASE if ignores_case else re.NOFLAG
        self._text = text
        self._position = 4 if ignores_case else 0
        # A state consumes a character (`_accepts`), requires an edge of the name (`_edges`), or
        # does neither; then it goes on to each state in `_next`. The last state is the end.
        self._accepts: list[Accepts | None] = []
        self._edges: list[str] = []
        self._next: list[list[int]] = []
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._start, self._end = self._alternatives(0)
        if self._position < len(text):
            raise self._invalid("unexpected )")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        states = self._reachable([self._start], "^" if name else "^$")
        for position, char in enumerate(name, start=1):
            if (states, char) not in self._steps:
                self._steps[states, char] = self._after(states, char)
            states = self._steps[states, char]
            if position == len(name):
                states = self._reachable(states, "$")
        return self._end in states

    def _after(self, states: frozenset[int], char: str) -> frozenset[int]:
        following = []
        for state in states:
            accepts = self._accepts[state]
            if accepts is not None and accepts(char):
                following += self._next[state]
        return self._reachable(following, "")

    def _reachable(self, states: "frozenset[int] | list[int]", edges: str) -> frozenset[int]:
        """The states that can be reached without a character, at these edges of the name."""
        reached = set(states)
        todo = list(states)
        while todo:
            state = todo.pop()
            is_open = self._accepts[state] is None and self._edges[state] in edges
            for following in self._next[state] if is_open else ():
                if following not in reached:
                    reached.add(following)
                    todo.append(following)
        return frozenset(reached)

    def _alternatives(self, depth: int) -> tuple[int, int]:
        if depth > _DEPTH_MAX:
            raise self._invalid("groups are nested too deeply")
        start, end = self._state(), self._state()
        while True:
            first, last = self._sequence(depth)
            self._next[start].append(first)
            self._next[last].append(end)
            if not self._take("|"):
                return start, end

    def _sequence(self, depth: int) -> tuple[int, int]:
        first = last = self._state()
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            start, end = self._repeated(depth)
            self._next[last].append(start)
            last = end
        return first, last

    def _repeated(self, depth: int) -> tuple[int, int]:
        """An atom and how often it occurs; each occurrence is compiled from the text anew."""
        begin = self._position
        start, end = self._atom(depth)
        bounds = self._bounds()
        if bounds is None:
            return start, end
        resume = self._position
        low, high = bounds
        if high is not None and high < low:
            raise self._invalid("bad repetition")
        first = last = self._state()
        exits = []
        for occurrence in range(max(low, high or 0, 1)):
            if occurrence:
                self._position = begin
                start, end = self._atom(depth)
            if occurrence >= low:
                exits.append(last)
            self._next[last].append(start)
            last = end
        if high is None:
            self._next[last].append(start)
        goal = self._state()
        for state in (*exits, last) if high != 0 else (first,):
            self._next[state].append(goal)
        self._position = resume
        return first, goal

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often the atom before occurs, None when nothing is said about it."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        mark = self._text[self._position : self._position + 1]
        counted = _COUNT.match(self._text, self._position)
        bounds: tuple[int, int | None]
        if mark in simple:
            bounds = simple[mark]
            self._position += 1
        elif counted:
            low, comma, high = counted.groups()
            bounds = (int(low), int(high) if high else None if comma else int(low))
            self._position = counted.end()
        else:
            return None
        self._take("?")
        if self._text[self._position : self._position + 1] in ("*", "+", "?"):
            raise self._invalid("multiple repeat")
        return bounds

    def _atom(self, depth: int) -> tuple[int, int]:
        char = self._text[self._position]
        group = _GROUP.match(self._text, self._position)
        if group:
            self._position = group.end()
            inner = self._alternatives(depth + 1)
            if not self._take(")"):
                raise self._invalid("missing )")
            return inner
        if char in "(*+?":
            raise self._invalid(f"unsupported or misplaced {char}")
        if char in "^$":
            self._position += 1
            return self._edge(char)
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        self._position += 1
        return self._consuming("." if char == "." else re.escape(char))

    def _class(self) -> tuple[int, int]:
        found = _CLASS.match(self._text, self._position)
        if not found:
            raise self._invalid("missing ]")
        self._position = found.end()
        return self._consuming(found.group())

    def _escape(self) -> tuple[int, int]:
        escaped = self._text[self._position + 1 : self._position + 2]
        self._position += 2
        if escaped in ("A", "z"):
            return self._edge("^" if escaped == "A" else "$")
        if not escaped or (escaped.isalnum() and escaped not in _ESCAPES):
            raise self._invalid(f"unsupported escape \\{escaped}")
        return self._consuming(f"\\{escaped}")

    def _consuming(self, one_char: str) -> tuple[int, int]:
        try:
            accepts = re.compile(one_char, self._flags).fullmatch
        except re.error as error:
            raise self._invalid(str(error)) from error
        start, end = self._state(), self._state()
        self._accepts[start] = accepts
        self._next[start].append(end)
        return start, end

    def _edge(self, edge: str) -> tuple[int, int]:
        start, end = self._state(), self._state()
        self._edges[start] = edge
        self._next[start].append(end)
        return start, end

    def _state(self) -> int:
        if len(self._next) >= _STATES_MAX:
            raise self._invalid("the expression is too large")
        self._accepts.append(None)
        self._edges.append("")
        self._next.append([])
        return len(self._next) - 1

    def _take(self, char: str) -> bool:
        is_there = self._text.startswith(char, self._position)
        self._position += is_there
        return is_there

    def _invalid(self, reason: str) -> InvalidSubscription:
        return InvalidSubscription(f"{self._text!r}: {reason} at {self._position}")
