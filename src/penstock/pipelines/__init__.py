"""Files that describe pipelines: what they say, what is wrong with them, how far they are.

A file names sources, steps and sinks. This room reads it into plain values and finds all mistakes
at once, each with its line: unknown keys, missing views, bad durations, functions that are not
there. It tells from a checkpoint how far a pipeline has come. It never imports Spark, so that files
can be checked where Spark is not; running a pipeline is left to `penstock.spark`.
"""

from penstock.pipelines.documents import Problem
from penstock.pipelines.model import (
    RECORD_COLUMNS,
    FrameStep,
    FunctionName,
    OutputMode,
    Pipeline,
    RowStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
    Watermark,
)
from penstock.pipelines.reading import load_pipeline, read_pipeline
from penstock.pipelines.states import (
    DEAD_LETTERS,
    PipelineState,
    QueryState,
    pipeline_states,
    query_path,
    running,
)

__all__ = [
    "DEAD_LETTERS",
    "RECORD_COLUMNS",
    "FrameStep",
    "FunctionName",
    "OutputMode",
    "Pipeline",
    "PipelineState",
    "Problem",
    "QueryState",
    "RowStep",
    "Sink",
    "Source",
    "SqlStep",
    "Step",
    "TableSink",
    "TableSource",
    "TopicSink",
    "TopicSource",
    "Watermark",
    "load_pipeline",
    "pipeline_states",
    "query_path",
    "read_pipeline",
    "running",
]
