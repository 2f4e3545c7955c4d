"""The process from which Spark forks its Python workers, with this room loaded beforehand.

Spark starts one such process for each kind of worker and lets it fork a worker whenever no idle one
is left. A worker of Spark's own daemon begins empty and loads numpy, Arrow, compiled loops and this
room by itself, which takes longer than most micro-batches; a worker that is forked from here has
them. `open_session` sets `spark.python.daemon.module` to this module.

A fork copies only the thread that forks, so nothing that is loaded here may start another one:
the variables below keep OpenBLAS and jemalloc from it. Workers inherit them, and Spark gives each
worker one core anyway. What is loaded is also frozen, as workers collect garbage after every task
and would go through all of it each time.

A worker frees as much as it reads. The C library would give that back to the kernel, which clears
every page before it hands it out again; so workers keep what they freed for what they read next.
"""

import ctypes
import gc
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
RECORD_WORKER = "pyspark.worker"
# What a worker returns that is not to be used again.
HUNG_UP = 1
# Of glibc's malloc.h. Blocks below the first limit come from the heap; of the heap, what is free at
# its end is kept up to the second one.
_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 32 << 20
_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES = -1, 256 << 20
# What a worker that reads or writes records loads with its first task.
FIRST_TASK = (
    "pandas",
    "penstock.spark.fetching",
    "penstock.spark.sink",
    "pyarrow.compute",
    "pyspark.sql.worker.plan_data_source_read",
)


def main() -> None:
    """Load what workers need, then do as Spark's daemon does."""
    for name, value in THREADLESS.items():
        os.environ.setdefault(name, value)
    keep_freed_memory()
    load(sys.argv[1] if len(sys.argv) > 1 else RECORD_WORKER)
    daemon: Any = importlib.import_module("pyspark.daemon")
    daemon.worker = leaving_quietly(daemon.worker)
    daemon.manager()


def leaving_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Let a worker end without a word when Spark has hung up.

    Spark does so when it has heard of a task's failure, which it tells by itself. The trace of a
    worker that notices would be what people see on their terminal first.
    """

    def work(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return HUNG_UP

    return work


def keep_freed_memory() -> None:
    """Let the C library keep what is freed, if it is one that can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)


def load(worker: str) -> None:
    """Load a kind of worker and its part of this room; only one kind handles records."""
    for name in (worker, "pyarrow", "penstock.spark.source"):
        importlib.import_module(name)
    if worker == RECORD_WORKER:
        for name in FIRST_TASK:
            importlib.import_module(name)
        importlib.import_module("penstock.spark.decoding").load_loops()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
