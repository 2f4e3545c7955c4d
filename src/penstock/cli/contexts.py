"""Contexts: clusters under names of the user's own, kept in a file.

The file is `penstock/contexts.json` in `XDG_CONFIG_HOME` or `~/.config`, and only its owner can
read it. It is replaced as a whole: a crash leaves the old one or the new one.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.errors import InvalidContext

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Context(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a cluster is: for commands that speak the Kafka protocol, and for those of HTTP."""

    bootstrap: str | None = None
    url: str | None = None


class Contexts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """All contexts by name, and the one that is used where nothing else is said."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    def find(self, name: str) -> Context:
        """Return a context, or raise `InvalidContext` with the names that there are."""
        found = self.contexts.get(name)
        if found is None:
            known = ", ".join(sorted(self.contexts)) or "there are none"
            raise InvalidContext(f"there is no context {name!r} in {contexts_path()} ({known})")
        return found

    def with_context(self, name: str, context: Context) -> "Contexts":
        """Return all contexts and this one."""
        return msgspec.structs.replace(self, contexts={**self.contexts, name: context})

    def without(self, name: str) -> "Contexts":
        """Return all contexts but one; none is current when it was that one."""
        self.find(name)
        contexts = {each: self.contexts[each] for each in self.contexts if each != name}
        return Contexts(None if self.current == name else self.current, contexts)

    def using(self, name: str) -> "Contexts":
        """Return the same contexts with another one current."""
        self.find(name)
        return msgspec.structs.replace(self, current=name)


def check_context_name(name: str) -> None:
    """Raise `InvalidContext` when no context can have this name."""
    if _NAME.fullmatch(name) is None:
        raise InvalidContext(
            f"{name[:80]!r} is no name of a context: letters, digits, dots, hyphens and"
            " underscores, 64 at most, and a letter or a digit first"
        )


def contexts_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the file is, or would be."""
    # A path that is not absolute counts for nothing, says the specification of the variable.
    directory = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not directory.is_absolute():
        try:
            directory = Path("~/.config").expanduser()
        except RuntimeError:
            raise InvalidContext(
                "contexts have no place: set HOME or XDG_CONFIG_HOME to a directory"
            ) from None
    return directory / "penstock" / "contexts.json"


def is_address_in_environment(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether variables name a cluster by its addresses."""
    return bool(environ.get("PENSTOCK_BOOTSTRAP") or environ.get("PENSTOCK_URL"))


def load_contexts() -> Contexts:
    """Read the file; there are no contexts where there is no file, or no place for one."""
    try:
        path = contexts_path()
    except InvalidContext:
        return Contexts()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise InvalidContext(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidContext(f"{path} does not hold contexts: {error}") from None


def save_contexts(contexts: Contexts) -> None:
    """Replace the file."""
    # Where it is a link, as to a directory of settings under version control, the link stays.
    path = Path(os.path.realpath(contexts_path()))
    content = msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        raise InvalidContext(f"{path} cannot be written: {error.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    # The system gives temporary files to their owner alone (0600).
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".contexts-", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink()
            raise
