"""The process from which Spark forks its Python workers, with this room loaded beforehand.

Spark starts one such process for each kind of worker and lets it fork a worker whenever no idle one
is left. A worker of Spark's own daemon begins empty and loads numpy, Arrow, compiled loops and this
room by itself, which takes longer than most micro-batches; a worker that is forked from here has
them. `open_session` sets `spark.python.daemon.module` to this module.

A fork copies only the thread that forks, so nothing that is loaded here may start another one:
the variables below keep OpenBLAS and jemalloc from it. Workers inherit them, and Spark gives each
worker one core anyway. What is loaded is also frozen, as workers collect garbage after every task
and would go through all of it each time.
"""

import gc
import importlib
import os
import sys

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
RECORD_WORKER = "pyspark.worker"
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
    load(sys.argv[1] if len(sys.argv) > 1 else RECORD_WORKER)
    importlib.import_module("pyspark.daemon").manager()


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
