"""Reads a file of a pipeline and notes everything that is wrong with it, without Spark."""

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import InvalidRequest
from penstock.pipelines.documents import Problem, Section, load_document
from penstock.pipelines.durations import parse_duration_ms
from penstock.pipelines.model import (
    Pipeline,
    Sink,
    Source,
    Step,
    TableSink,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.places import check_topic, check_view_name, located
from penstock.pipelines.sinks import read_sink
from penstock.pipelines.sources import read_source
from penstock.pipelines.steps import read_step

AVAILABLE_NOW = "available-now"
TRIGGER_DEFAULT_MS = 1000
_KEYS = (
    "name", "bootstrap", "url", "checkpoint", "trigger", "dead_letters", "spark", "sources",
    "steps", "sinks",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def read_pipeline(file: Path) -> tuple[Pipeline | None, list[Problem]]:
    """Return what a file says, and all problems in the order of its lines.

    With any problem the pipeline cannot be run; what could be read is returned all the same.
    """
    problems: list[Problem] = []
    file = file.absolute()
    document = load_document(file, problems)
    pipeline = None if document is None else _pipeline(document, file)
    # Some sections are looked at more than once, and note the same again.
    return pipeline, sorted(set(problems))


def load_pipeline(file: Path) -> Pipeline:
    """Return a pipeline that can be run; all problems together are one error."""
    pipeline, problems = read_pipeline(file)
    if pipeline is None or problems:
        raise InvalidRequest("\n".join(f"{file}, {each}" for each in problems))
    return pipeline


def _pipeline(document: Section, file: Path) -> Pipeline:
    document.expect(_KEYS)
    name = document.text("name") or file.stem
    if not _NAME.fullmatch(name):
        document.problem(
            f"it is {name!r}, not letters, digits, dots, dashes and underscores", "name"
        )
    pipeline = Pipeline(
        name=name,
        file=file,
        bootstrap=document.text("bootstrap"),
        url=document.text("url"),
        checkpoint=located(document.required("checkpoint"), file.parent),
        trigger_ms=_trigger_ms(document),
        dead_letters=document.read("dead_letters", check_topic) or f"{name}.dlq",
        spark=document.mapping("spark"),
        sources=_sources(document, file.parent),
        steps=_steps(document, file.parent),
        sinks=_sinks(document, file.parent),
    )
    _check_topics(document, pipeline)
    return pipeline


def _trigger_ms(document: Section) -> int | None:
    if document.text("trigger") == AVAILABLE_NOW:
        return None
    given = document.read("trigger", parse_duration_ms)
    return TRIGGER_DEFAULT_MS if given is None else given


def _sources(document: Section, directory: Path) -> Mapping[str, Source]:
    sections = document.sections("sources")
    if not sections:
        document.problem("it has no sources")
    for name, section in sections.items():
        check_view_name(section, name)
    found = {name: read_source(section, directory) for name, section in sections.items()}
    return {name: source for name, source in found.items() if source is not None}


def _steps(document: Section, directory: Path) -> Mapping[str, Step]:
    sources, sections = document.sections("sources"), document.sections("steps")
    views = list(sources)
    steps: dict[str, Step] = {}
    for name, section in sections.items():
        check_view_name(section, name)
        if name in sources:
            section.problem(f"a source is called {name} as well")
        step = read_step(section, directory, views=views, later=list(sections))
        views.append(name)
        if step is not None:
            steps[name] = step
    return steps


def _sinks(document: Section, directory: Path) -> Mapping[str, Sink]:
    sections = document.sections("sinks")
    if not sections:
        document.problem("it has no sinks")
    views = [*document.sections("sources"), *document.sections("steps")]
    sinks: dict[str, Sink] = {}
    for name, section in sections.items():
        if not _NAME.fullmatch(name) or name == "dead_letters":
            section.problem("this is not a name for a sink: letters, digits, dots, dashes")
        sink = read_sink(section, directory, views=views)
        if sink is not None:
            sinks[name] = sink
    return sinks


def _check_topics(document: Section, pipeline: Pipeline) -> None:
    """Note what would go round in circles, and files that two sinks would write."""
    topics = [each for each in pipeline.sources.values() if isinstance(each, TopicSource)]
    read = {topic for source in topics for topic in source.topics}
    sections = document.sections("sinks")
    written: dict[str, str] = {}
    for name, sink in pipeline.sinks.items():
        section = sections[name]
        if isinstance(sink, TopicSink) and sink.topic in read:
            section.problem(f"the pipeline reads {sink.topic}: it would go round for ever", "topic")
        if isinstance(sink, TopicSink) and sink.topic == pipeline.dead_letters:
            section.problem(f"{sink.topic} is where the dead letters go", "topic")
        if isinstance(sink, TableSink) and (other := written.setdefault(sink.path, name)) != name:
            section.problem(f"{sink.path} is written by the sink {other} already", sink.format)
    if pipeline.dead_letters in read:
        document.problem(f"the pipeline reads {pipeline.dead_letters} itself", "dead_letters")
