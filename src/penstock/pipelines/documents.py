"""A YAML file as sections that know their lines, so that every mistake is told with its place.

Reading never stops at a mistake: it is noted, and what was asked for is taken as not given. So one
look at a file finds all that is wrong with it.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from penstock.errors import InvalidRequest

SIZE_BYTES_MAX = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake: the line in the file, the path of keys to it, and what is wrong."""

    line: int
    path: str
    text: str

    def __str__(self) -> str:
        place = f"line {self.line}: {self.path}" if self.path else f"line {self.line}"
        return f"{place}: {self.text}"


class Section:
    """One mapping of a file. Notes what is wrong with it in a list that all sections share."""

    def __init__(self, node: yaml.MappingNode, path: str, problems: list[Problem]) -> None:
        self.path = path
        self.line = node.start_mark.line + 1
        self._problems = problems
        self._nodes: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in self._nodes:
                self._note(key, self._path_of(name), "it is given twice")
            self._nodes[name] = value

    @property
    def names(self) -> list[str]:
        """The keys, in the order of the file."""
        return list(self._nodes)

    def expect(self, known: Iterable[str]) -> None:
        """Note the keys that mean nothing here."""
        known = list(known)
        for name, node in self._nodes.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
                self._note(node, self._path_of(name), f"unknown key; {advice}")

    def problem(self, text: str, name: str | None = None) -> None:
        """Note a mistake of the section, or of one of its keys."""
        node = self._nodes.get(name) if name is not None else None
        line = self.line if node is None else node.start_mark.line + 1
        path = self.path if name is None else self._path_of(name)
        self._problems.append(Problem(line, path, text))

    def text(self, name: str) -> str | None:
        """Return a word, a number or a text, None when it is not given."""
        node = self._nodes.get(name)
        if node is None:
            return None
        return self._text_of(node, self._path_of(name))

    def required(self, name: str) -> str:
        """Return a text that must be there; the empty text, when it is not, has been noted."""
        if name not in self._nodes:
            self.problem(f"{name} is missing")
        return self.text(name) or ""

    def read(self, name: str, reader: Callable[[str], T]) -> T | None:
        """Return what `reader` makes of a text; its `ValueError` is noted."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return reader(text)
        except ValueError as error:
            self.problem(f"it is {text!r}, {error}", name)
            return None

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """Return one of the words that are allowed."""
        text = self.text(name)
        if text is None or text in allowed:
            return text or default
        self.problem(f"it is {text!r}, not {', '.join(allowed[:-1])} or {allowed[-1]}", name)
        return default

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; a single one stands for a list of one."""
        node = self._nodes.get(name)
        if node is None:
            return ()
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found = (self._text_of(each, self._path_of(name)) for each in nodes)
        return tuple(each for each in found if each)

    def mapping(self, name: str) -> dict[str, str]:
        """Return names with texts."""
        section = self.section(name)
        if section is None:
            return {}
        return {each: section.text(each) or "" for each in section.names}

    def section(self, name: str) -> "Section | None":
        """Return a mapping inside this one, None when it is not given."""
        node = self._nodes.get(name)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self._note(node, self._path_of(name), "it is not a mapping of names to values")
            return None
        return Section(node, self._path_of(name), self._problems)

    def sections(self, name: str) -> dict[str, "Section"]:
        """Return named mappings inside this one."""
        outer = self.section(name)
        if outer is None:
            return {}
        found = {each: outer.section(each) for each in outer.names}
        return {each: section for each, section in found.items() if section is not None}

    def _text_of(self, node: yaml.Node, path: str) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._note(node, path, "it is not a single value")
            return None
        if node.tag == "tag:yaml.org,2002:null":
            self._note(node, path, "it is empty")
            return None
        return str(node.value)

    def _path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _note(self, node: yaml.Node, path: str, text: str) -> None:
        self._problems.append(Problem(node.start_mark.line + 1, path, text))


def load_document(file: Path, problems: list[Problem]) -> Section | None:
    """Return the whole file as one section; None when it is no mapping, which has been noted."""
    try:
        size = file.stat().st_size
        if size > SIZE_BYTES_MAX:
            raise InvalidRequest(f"{file} has {size} bytes, more than {SIZE_BYTES_MAX}")
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        problems.append(Problem(line, "", f"this is not YAML: {error.problem or error.context}"))
        return None
    except yaml.YAMLError as error:
        problems.append(Problem(1, "", f"this is not YAML: {error}"))
        return None
    if not isinstance(node, yaml.MappingNode):
        problems.append(Problem(1, "", "the file holds no mapping of names to values"))
        return None
    return Section(node, "", problems)
