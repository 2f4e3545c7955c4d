"""All views of a pipeline, in the order of its file, under their names in the session."""

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockError
from penstock.pipelines import (
    FrameStep,
    Pipeline,
    RowStep,
    Source,
    Step,
    TopicSource,
    Watermark,
)
from penstock.spark.pipelines.functions import transform_frames, transform_rows
from penstock.spark.pipelines.tables import read_table
from penstock.spark.pipelines.topics import Decoded, read_topics


class Views:
    """The data frames of a pipeline, those of its failures, and what Spark has against them.

    A view that cannot be built is a problem under its path in the file; others are built all the
    same, so that one look finds all problems.
    """

    def __init__(self, session: SparkSession, pipeline: Pipeline, bootstrap: str) -> None:
        self._session = session
        self._pipeline = pipeline
        self._bootstrap = bootstrap
        self.frames: dict[str, DataFrame] = {}
        self.failures: list[DataFrame] = []
        self.problems: dict[str, str] = {}
        for name, source in pipeline.sources.items():
            make = self._source_maker(source)
            self._add(name, f"sources.{name}", make, source.watermark)
        for name, step in pipeline.steps.items():
            self._add(name, f"steps.{name}", self._step_maker(step), step.watermark)

    def drop(self) -> None:
        """Take the views out of the session."""
        for name in self.frames:
            self._session.catalog.dropTempView(name)

    def attempt(self, path: str, make: Callable[[], DataFrame]) -> DataFrame | None:
        """Return what `make` returns; what Spark has against it becomes a problem."""
        try:
            return make()
        except PySparkException as error:
            self.problems[path] = str(error).strip().split("\n")[0]
        except PenstockError as error:
            self.problems[path] = str(error)
        return None

    def _add(
        self,
        name: str,
        path: str,
        make: Callable[[], Decoded | DataFrame],
        watermark: Watermark | None,
    ) -> None:
        frame = self.attempt(path, lambda: self._watermarked(make(), watermark))
        if frame is not None:
            frame.createOrReplaceTempView(name)
            self.frames[name] = frame

    def _watermarked(self, made: Decoded | DataFrame, watermark: Watermark | None) -> DataFrame:
        rows = made.rows if isinstance(made, Decoded) else made
        if watermark is not None:
            rows = rows.withWatermark(watermark.column, f"{watermark.delay_ms} milliseconds")
        # Spark looks at most of a frame as soon as it is made, at the rest when it is asked.
        assert rows.schema is not None
        if isinstance(made, Decoded) and made.failures is not None:
            self.failures.append(made.failures)
        return rows

    def _source_maker(self, source: Source) -> Callable[[], Decoded | DataFrame]:
        if isinstance(source, TopicSource):
            return lambda: read_topics(self._session, source, self._bootstrap)
        return lambda: read_table(self._session, source)

    def _step_maker(self, step: Step) -> Callable[[], Decoded | DataFrame]:
        directory = self._pipeline.file.parent
        if isinstance(step, FrameStep):
            return lambda: transform_frames(step, self.frames, directory)
        if isinstance(step, RowStep):
            return lambda: transform_rows(step, self.frames[step.input], directory)
        return lambda: self._session.sql(step.sql)
