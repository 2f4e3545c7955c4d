"""Takes the fenced blocks out of a page and runs them as a reader would.

`sh` and `python` must succeed; `console` holds commands after `$ ` and what they print, where `...`
stands for anything; `yaml` is a configuration file of a node. `text`, `ini` and `json` are shown
and not run. A page's blocks run in order, in one directory, against a node of its own whose data
is in `./data`: the addresses of a node that was started by `make run` are replaced by its.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.config import load_options
from tests.processes import NodeProcess

ROOT = Path(__file__).parents[2]
SHOWN_ONLY = {"text", "ini", "json"}
RUNNABLE = {"sh", "python", "console", "yaml"}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WAIT_S = 120
_END_WAIT_S = 120
_CURL = """\
import argparse, urllib.request
parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("-X", dest="method")
parser.add_argument("-d", dest="data", type=str.encode)
parser.add_argument("-s", action="store_true")
given = parser.parse_args()
url = given.url if "://" in given.url else f"http://{given.url}"
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, given.data, method=given.method))
except urllib.error.HTTPError as error:
    answer = error
print(answer.read().decode(), end="")
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block and the line that it begins in."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    text = page.read_text()
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]


class Reader:
    """Types what a page says."""

    def __init__(
        self, node: NodeProcess, *, wait_s: float = _WAIT_S, environ: dict[str, str] | None = None
    ) -> None:
        self._node = node
        self._wait_s = wait_s
        self._environ = environ or {}
        self._directory = node.directory
        self._has_killed = False
        # Pages call the program as the README has installed it.
        (self._directory / ".venv").symlink_to(sys.prefix)
        self._path = [str(Path(sys.prefix) / "bin"), os.environ["PATH"]]
        if shutil.which("curl") is None:
            self._path.append(self._stand_in_for_curl())

    def _stand_in_for_curl(self) -> str:
        """A machine may have none; `make test` needs nothing beside Python and make."""
        program = self._directory / "bin" / "curl"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n{_CURL}")
        program.chmod(0o755)
        return str(program.parent)

    def follow(self, block: Block) -> None:
        """Run one block, or fail with what went wrong."""
        match block.language:
            case "sh":
                self._run_shell(block.text)
            case "console":
                self._check_console(block.text)
            case "python":
                self._run([sys.executable, "-c", self._with_ports(block.text)])
            case "yaml":
                file = self._directory / "penstock.yaml"
                file.write_text(block.text)
                load_options({}, {}, file)

    def _run_shell(self, text: str) -> str:
        command = text.partition("#")[0].strip()
        if command == "make run":
            self._make_run()
            return ""
        if command == "make test":
            # This is a part of `make test`.
            return self._run(["make", "--dry-run", "-C", str(ROOT), "test"])
        self._has_killed |= command.startswith("kill ")
        return self._run(["sh", "-euc", self._with_ports(text)])

    def _make_run(self) -> None:
        """Start the node again when the page has killed it; otherwise it runs already."""
        if self._has_killed:
            process = self._node._process
            assert process is not None
            process.wait(_END_WAIT_S)
            self._node.start()
            self._has_killed = False

    def _check_console(self, text: str) -> None:
        parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
        assert not parts[0].strip(), "a console block begins with `$ `"
        for part in parts[1:]:
            command, _, expected = part.partition("\n")
            printed = self._without_ports(self._run_shell(command))
            assert _matches(expected, printed), (
                f"{command}\nshould print:\n{expected}\nbut prints:\n{printed}"
            )

    def _run(self, arguments: list[str]) -> str:
        # Help is as wide as the terminal; pages show it at a fixed width.
        environ = {
            "PATH": ":".join(self._path),
            "HOME": str(self._directory),
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
            **self._environ,
        }
        environ["PENSTOCK_BOOTSTRAP"] = self._node.bootstrap
        environ["PENSTOCK_URL"] = self._node.http_url
        # Readers run the sources that the tests run.
        environ["PYTHONPATH"] = str(ROOT / "src")
        done = subprocess.run(
            arguments,
            cwd=self._directory,
            env=environ,
            capture_output=True,
            text=True,
            timeout=self._wait_s,
        )
        assert done.returncode == 0, (
            f"{arguments[-1]}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def _with_ports(self, text: str) -> str:
        http = self._node.http_url.removeprefix("http://")
        return text.replace("localhost:9092", self._node.bootstrap).replace("localhost:8080", http)

    def _without_ports(self, text: str) -> str:
        http = self._node.http_url.removeprefix("http://")
        return text.replace(self._node.bootstrap, "localhost:9092").replace(http, "localhost:8080")


def _matches(expected: str, printed: str) -> bool:
    """Compare what is said, not how wide the columns are; `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in _stripped(expected).split("..."))
    return re.fullmatch(pattern, _stripped(printed), re.DOTALL) is not None


def _stripped(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.strip().splitlines())
    return "\n".join(line for line in lines if line.strip("─"))
