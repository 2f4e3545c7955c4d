"""A disk whose syncs take longer than those of this machine.

How much of a figure is the disk's and how much the processors' depends on how quick the disk is.
To compare machines with quick and slow disks on one of them, a sync waits until its time is over;
meanwhile the processor is free for others, as it is while a real disk works.

`python -m benchmarks.slow_disk MICROSECONDS MODULE [ARGUMENT ...]` runs a module under it.
"""

import os
import runpy
import sys
import time
from collections.abc import Callable

# So much later than asked for a sleeper wakes up.
_OVERSLEPT_S = 60e-6


def slow_sync(sync_us: int) -> Callable[[int], None]:
    """Return an fdatasync that takes at least so long."""
    quick_sync = os.fdatasync

    def sync(fd: int) -> None:
        end = time.perf_counter() + sync_us / 1e6
        quick_sync(fd)
        missing_s = end - time.perf_counter() - _OVERSLEPT_S
        if missing_s > 0:
            time.sleep(missing_s)

    return sync


def under_slow_disk(sync_us: int) -> tuple[str, ...]:
    """Return what stands before the name of a module to run it under such a disk."""
    return ("benchmarks.slow_disk", str(sync_us)) if sync_us else ()


if __name__ == "__main__":
    os.fdatasync = slow_sync(int(sys.argv[1]))  # type: ignore[assignment]
    module = sys.argv[2]
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
