"""Writes the pages of docs/reference that follow from the code: `python -m tests.docs.generate`.

Each function returns one page. The tests compare the pages in git with what these return.
"""

import asyncio
import inspect
import json
import re
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

import httpx
import typer
from confluent_kafka import Consumer, KafkaError, Producer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from typer.models import ArgumentInfo, OptionInfo

from penstock import errors
from penstock.broker import Statistics
from penstock.cli.addresses import BOOTSTRAP_DEFAULT, URL_DEFAULT
from penstock.cli.exits import exit_code
from penstock.cli.main import EXIT_CODES, app
from penstock.client import Client
from penstock.cluster import DEFINITIONS
from penstock.config import NodeOptions, reference_markdown
from penstock.protocols.http import create_app
from penstock.protocols.http.endpoints import JSON
from penstock.protocols.http.failures import ERROR_STATUSES
from penstock.protocols.http.schemas import meaning_of, type_of
from penstock.protocols.kafka.apis import all_apis
from penstock.protocols.kafka.errors import code_of
from penstock.spark import OPTIONS as SPARK_OPTIONS
from penstock.spark import SINK_OPTIONS as SPARK_SINK_OPTIONS
from tests.processes import NodeProcess

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def topic_settings() -> str:
    """The settings of topics, with the defaults of a node that was told nothing."""
    defaults = NodeOptions()
    rows = [
        (f"`{each.name}`", each.type.value, f"`{each.default(defaults)}`", f"{each.meaning}.")
        for each in DEFINITIONS.values()
    ]
    return _page(
        "Settings of a topic",
        """Settings have the names that Kafka's tools use. They are given when a topic is created
or changed with any Kafka client or with `penstock topic create|alter --set NAME=VALUE`, where
durations and sizes may carry units (`retention.ms=7d`, `segment.bytes=64MiB`). An unknown
name or a value outside its limits is refused and changes nothing. Running partitions follow
a change at once. A setting that nobody gave follows the node's [options](options.md).""",
        _table(("Setting", "Type", "Default", "Meaning"), rows),
    )


def kafka_apis() -> str:
    """The APIs of the Kafka protocol and their versions."""
    apis = sorted(all_apis().values(), key=lambda api: api.key)
    rows = [(api.key, api.name, f"{api.version_min} to {api.version_max}") for api in apis]
    return _page(
        "APIs of the Kafka protocol",
        """A node tells its clients this list in ApiVersions. A request outside of it closes its
connection with a line in the log. Produce is listed from version 0 because old clients look
for it there; only versions 3 and up, with record batches of version 2, are accepted.

Transactions (AddPartitionsToTxn, EndTxn, ...), SASL and ACLs are not
there.""",
        _table(("Key", "API", "Versions"), rows),
    )


def error_codes() -> str:
    """Every error, and what it is called in each protocol."""
    rows = []
    for kind in _error_kinds():
        error = kind("", "") if kind is errors.MemberIdRequired else kind("")
        status = next(status for base, status in ERROR_STATUSES if isinstance(error, base))
        code = code_of(error)
        rows.append(
            (
                f"`{kind.__name__}`",
                (inspect.getdoc(kind) or "").partition("\n")[0],
                "yes" if kind.retryable else "no",
                f"{code.name.upper()} ({code.value})",
                status,
                exit_code(error),
            )
        )
    columns = ("Error", "Meaning", "Retry", "Kafka", "HTTP", "Exit")
    return _page(
        "Error codes",
        f"""Errors have one name inside Penstock (`penstock.errors`), and each protocol translates
it by one table. *Retry* says whether the same request may succeed later. *Exit* is the code of
the `penstock` command when this error ends it. {EXIT_CODES}""",
        _table(columns, rows),
    )


def _error_kinds() -> Iterator[type[errors.PenstockError]]:
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.PenstockError):
            yield value


def http_endpoints() -> str:
    """The endpoints of the HTTP port, read off the document that it serves."""
    document = asyncio.run(_openapi())
    parts = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += [
                f"## {method.upper()} {path}",
                f"{_sentence(operation['summary'])} {operation['description']}",
                *_query(operation.get("parameters", [])),
                *_request_body(operation.get("requestBody", {}).get("content", {})),
                _answers(operation["responses"]),
            ]
    parts.append("## Types")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += [f"### {name}", schema["description"], *_fields(schema)]
    return _page(
        "HTTP endpoints",
        """The HTTP port answers these, and describes itself: `/openapi.json` is an OpenAPI 3.1
document for programs, `/docs` a page for people. A failure is JSON,
`{"error": {"type": ..., "message": ..., "retryable": ...}}`.""",
        *parts,
    )


def _query(parameters: list[Any]) -> Iterator[str]:
    rows = [
        (f"`{each['name']}`", each["schema"]["type"], each["description"])
        for each in parameters
        if each["in"] == "query"
    ]
    if rows:
        yield _table(("Query", "Type", "Meaning"), rows)


def _request_body(content: dict[str, Any]) -> Iterator[str]:
    for media_type, body in content.items():
        kind = type_of(body["schema"])
        yield f"Body: {_linked(kind)}" if "example" in body else f"Body: {media_type}"
        if "example" in body:
            yield f"```json\n{json.dumps(body['example'])}\n```"


def _answers(responses: dict[str, Any]) -> str:
    rows = [
        (
            status,
            answer["description"],
            _linked(type_of(body["schema"])) if media == JSON else media,
        )
        for status, answer in responses.items()
        for media, body in answer["content"].items()
    ]
    return _table(("Status", "Meaning", "Body"), rows)


def _fields(schema: Any) -> Iterator[str]:
    required = schema.get("required", [])
    rows = [
        (
            f"`{name}`",
            _linked(type_of(about)) + ("" if name in required else ", optional"),
            meaning_of(about),
        )
        for name, about in schema.get("properties", {}).items()
    ]
    if rows:
        yield _table(("Field", "Type", "Meaning"), rows)


def _linked(kind: str) -> str:
    """Lead from the names of types to their entries."""
    return re.sub(r"<(\w+)>", lambda found: f"[{found[1]}](#{found[1].lower()})", kind)


def _sentence(text: str) -> str:
    return text if text.endswith(("?", ".")) else f"{text}."


async def _openapi() -> Any:
    view: Any = SimpleNamespace(statistics=Statistics())
    transport = httpx.ASGITransport(create_app(view))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        return (await client.get("/openapi.json")).json()


def cli() -> str:
    """Every command of `penstock` with its arguments and options."""
    return _page(
        "The `penstock` command",
        f"""`--bootstrap HOST:PORT,...` names the node to contact, `--context NAME` a cluster that
is kept under a name ([how to](../how-to/contexts.md)), `--json` prints JSON for programs; they may
stand before or after the name of a command. {EXIT_CODES}

Where the command is not on the path, `python -m penstock` is the same.

Which cluster a command asks is decided by the first of these that is given: `--bootstrap` and
`--url`; `--context`; the variables `PENSTOCK_BOOTSTRAP` and `PENSTOCK_URL`; the variable
`PENSTOCK_CONTEXT`; the current context. Where none is, it is a node on this machine:
`{BOOTSTRAP_DEFAULT}` and `{URL_DEFAULT}`.

Commands with `--url` speak HTTP. When a bootstrap is given they want a URL, too: the HTTP address
of a node does not follow from that one.

With `--json`, whatever goes wrong is one JSON object on stderr, under the same exit codes:
`{{"error": {{"type": ..., "message": ..., "retryable": ...}}}}`. The type is that of the
[error](errors.md), `UsageError` for a command that is mistyped, or `Aborted` where a person was
asked and said no.

Times are ISO 8601, epoch milliseconds, `now`, or a time ago such as `-1h`.""",
        *_commands("penstock", app),
    )


def _commands(name: str, commands: typer.Typer) -> Iterator[str]:
    for command in commands.registered_commands:
        assert command.callback is not None
        own_name = command.name or command.callback.__name__.replace("_", "-")
        yield from _command(f"{name} {own_name}", command.callback)
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(f"{name} {group.name}", group.typer_instance)


def _command(name: str, callback: Callable[..., Any]) -> Iterator[str]:
    text = inspect.cleandoc(callback.__doc__ or "")
    if name == "penstock serve":
        flags = "The flags are the [options of a node](options.md), and `--config FILE`."
        yield from (f"## {name}", text, flags)
        return
    parameters = list(_parameters(callback))
    arguments = [each.info for each in parameters if isinstance(each.info, ArgumentInfo)]
    yield f"## {' '.join([name, *(str(info.metavar) for info in arguments)])}"
    yield text
    yield from (f"`{info.metavar}`: {info.help}" for info in arguments if info.help)
    options = [each for each in parameters if isinstance(each.info, OptionInfo)]
    rows = [_option_row(each) for each in options if each.name != "bootstrap"]
    yield _table(("Option", "Meaning", "Default"), rows)


class _Parameter(NamedTuple):
    """One parameter of a command, as its signature says."""

    name: str
    type: Any
    info: ArgumentInfo | OptionInfo
    default: Any


def _parameters(callback: Callable[..., Any]) -> Iterator[_Parameter]:
    hints = get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, info = get_args(hints[name])
        yield _Parameter(name, _plain_type(kind), info, parameter.default)


def _plain_type(kind: Any) -> Any:
    """Return `int` for `list[int] | None`."""
    inner = [each for each in get_args(kind) if each is not type(None)]
    return _plain_type(inner[0]) if inner else kind


def _option_row(option: _Parameter) -> tuple[str, str, str]:
    # Inside of `Annotated` typer keeps the first name in the place of the default.
    all_names = (option.info.default, *(option.info.param_decls or ()))
    names = ", ".join(f"`{name}`" for name in all_names)
    value = "" if option.type is bool else f" {option.info.metavar or _value_of(option.type)}"
    shown = option.info.show_default
    default = shown if isinstance(shown, str) else getattr(option.default, "value", option.default)
    return (
        names + value.replace("|", "\\|"),
        option.info.help or "",
        _shown_default(option, default),
    )


def _shown_default(option: _Parameter, default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    is_silent = option.type is bool or option.info.show_default is False or default is None
    return "" if is_silent else f"`{default}`"


def _value_of(kind: Any) -> str:
    if issubclass(kind, Enum):
        return "|".join(each.value for each in kind)
    return {int: "N", Path: "FILE"}.get(kind, "TEXT")


def metrics() -> str:
    """Every metric of a node that has done some of everything."""
    with tempfile.TemporaryDirectory() as directory, NodeProcess(Path(directory)) as node:
        _do_some_of_everything(node)
        with urllib.request.urlopen(f"{node.http_url}/metrics", timeout=120) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
    rows = [_metric_row(each) for each in families if each.name.startswith("penstock_")]
    prefixes = sorted({each.name.partition("_")[0] for each in families} - {"penstock"})
    return _page(
        "Metrics",
        """`/metrics` on the HTTP port answers in the text format of Prometheus. Counters begin with
0 when a node starts. [Metrics to watch](../how-to/watch-metrics.md) says which of them matter.""",
        _table(("Metric", "Type", "Labels", "Meaning"), rows),
        f"""Those that begin with {" or ".join(f"`{prefix}_`" for prefix in prefixes)} are the
standard ones of Prometheus' Python client: memory, processor time, open files, garbage
collection.""",
    )


def _metric_row(metric: Metric) -> tuple[str, str, str, str]:
    samples = [each for each in metric.samples if not each.name.endswith("_created")]
    assert samples, f"{metric.name} has no samples: nothing of that kind was done"
    names = sorted({each.name for each in samples})
    labels = sorted({label for each in samples for label in each.labels})
    shown = ", ".join(f"`{name}`" for name in names)
    shown_labels = ", ".join(f"`{label}`" for label in labels)
    return shown, metric.type, shown_labels, _sentence(metric.documentation)


def _do_some_of_everything(node: NodeProcess) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": node.bootstrap, "log_level": 0}
    producer = Producer({**settings, "message.max.bytes": 10_000_000})
    refusals: list[KafkaError] = []
    producer.produce("orders", b"small")
    # Larger than a topic allows, so that there is an error to count.
    producer.produce(
        "orders",
        bytes(2_000_000),
        on_delivery=lambda error, _: refusals.append(error),
    )
    producer.flush(120)
    assert len(refusals) == 1
    consumer = Consumer({**settings, "group.id": "docs", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(120) is not None
    consumer.close()
    with Client(node.http_url) as client:
        assert client.receive("orders", "workers", wait_s=60)


def _page(title: str, introduction: str, *parts: str) -> str:
    source = "This page is generated from the code by `python -m tests.docs.generate`."
    return "\n\n".join([f"# {title}", introduction, source, *parts]) + "\n"


def _table(columns: tuple[str, ...], rows: list[Any]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def spark_options() -> str:
    """The options of `format("penstock")`."""
    source, sink = (
        _table(
            ("Option", "Default", "Meaning"),
            [(f"`{each.name}`", each.default, f"{each.meaning}.") for each in options],
        )
        for options in (SPARK_OPTIONS, SPARK_SINK_OPTIONS)
    )
    return _page(
        "Options of the Spark source and sink",
        """`spark.read` and `spark.readStream` with `format("penstock")` take these options. Most
have the names and meanings that they have in Spark's Kafka source; upper and lower case make
no difference. An option that is not listed is refused.
[How to use them](../how-to/spark.md).""",
        source,
        "## The sink",
        "`df.write` and `writeStream` take these.",
        sink,
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "errors.md": error_codes,
    "http.md": http_endpoints,
    "kafka-apis.md": kafka_apis,
    "metrics.md": metrics,
    "options.md": reference_markdown,
    "spark-options.md": spark_options,
    "topic-settings.md": topic_settings,
}


def main() -> None:
    """Write all pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())


if __name__ == "__main__":
    main()
