"""What the figures were measured on."""

import os
import platform
import subprocess
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK_BYTES = 4096
_SYNC_WINDOW_S = 0.7
_TOUCH_BLOCK_BYTES = 1024 * 1024
_CALLS = 50_000


def disk_syncs_per_s(
    directory: Path,
    seconds: float = _SYNC_WINDOW_S,
    sync: Callable[[int], None] = os.fdatasync,
) -> float:
    """Return D: how often per second 4 KiB can be appended to a file and synced."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "syncs"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    block = os.urandom(_BLOCK_BYTES)
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        os.write(fd, block)
        sync(fd)
        count += 1
    rate = count / (time.perf_counter() - begin)
    os.close(fd)
    path.unlink()
    return rate


def touch_memory(directory: Path, size_bytes: int) -> None:
    """Fill the page cache and empty it again.

    A virtual machine gets its memory when it first touches it, which makes the first write to a
    page ten times as slow as the next; without this the host would be measured.
    """
    path = directory / "memory"
    block = bytes(_TOUCH_BLOCK_BYTES)
    with path.open("wb") as file:
        for _ in range(size_bytes // len(block)):
            file.write(block)
    path.unlink()


def machine_facts() -> dict[str, Any]:
    """Return what may explain a figure."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_call_ns": round(_call_ns()),
    }


def _call_ns() -> float:
    """Return what a call costs: builds of one version of Python differ by a fifth and more."""

    def called(number: int) -> int:
        return number + 1

    def calls() -> None:
        for number in range(_CALLS):
            called(number)

    return 1e9 * min(timeit.repeat(calls, number=1, repeat=9)) / _CALLS


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


@dataclass(frozen=True, slots=True)
class GitState:
    """Which code was measured; `is_changed` when the sources differ from the commit."""

    commit: str
    is_changed: bool


def git_state() -> GitState:
    """Return the commit of the working tree."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    return GitState(commit, bool(_git("status", "--porcelain", "--", "src")))


def _git(*arguments: str) -> str:
    directory = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True)
    return done.stdout.strip() or ("unknown" if done.returncode else "")
