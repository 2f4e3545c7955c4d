"""Pipelines as queries of Structured Streaming.

What a file says (`penstock.pipelines`) becomes views of one session, and each sink becomes a query
with a checkpoint of its own. Rows that fail go to the dead letters through one more query, so that
each is told once, however many sinks read the view. What this keeps is thin: offsets, state and
restarts are Spark's, and each sink's promise is that of its format.
"""

from penstock.spark.pipelines.progress import PipelineProgress
from penstock.spark.pipelines.running import ClusterAddress, check_pipeline, run_pipeline

__all__ = ["ClusterAddress", "PipelineProgress", "check_pipeline", "run_pipeline"]
