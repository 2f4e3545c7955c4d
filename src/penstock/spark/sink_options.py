"""The options of the sink, read once on the driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client import check_url
from penstock.errors import InvalidRequest
from penstock.record import Codec
from penstock.spark.connection import addresses_of
from penstock.spark.given_options import GivenOptions, Option

HTTP_PORT_DEFAULT = 8080
HOME_DEFAULT = "penstock-writes"
EXACTLY_ONCE = "exactly_once"
AT_LEAST_ONCE = "at_least_once"
BATCH_BYTES_MAX = 1 << 20

SINK_OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "addresses of brokers, `host:port`, by commas"),
    Option("topic", "", "where all rows go, whatever a column `topic` says"),
    Option(
        "mode",
        "`exactly_once`",
        "`exactly_once`: rows are staged by the executors and published together when the driver"
        " commits; `at_least_once`: executors publish at once, and a task that is repeated does so"
        " again",
    ),
    Option(
        "url",
        "port 8080 of the brokers",
        "HTTP addresses of nodes, `http://host:port`, by commas, for `exactly_once`. Where they are"
        " given no others are asked; name all nodes, so that executors reach leaders directly",
    ),
    Option(
        "commitTopic",
        "`topic`, else `penstock-writes`",
        "the topic whose partition 0 keeps what is committed, in `exactly_once`; it must stay the"
        " same as long as a query lives. `penstock-writes` is created where it is missing",
    ),
    Option("kafka.compression.type", "`none`", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
    Option(
        "kafka.batch.size",
        "`1048576`",
        "bytes of a record batch, within `max.message.bytes`",
    ),
    Option("kafka.request.timeout.ms", "`30000`", "how long one request may take"),
    Option(
        "kafka.delivery.timeout.ms",
        "`120000`",
        "give up when a broker has taken nothing for so long",
    ),
    Option("includeHeaders", "", "taken for the sake of Kafka jobs: a column `headers` is written"),
    Option("checkpointLocation", "", "Spark's own"),
    Option("path", "", "Spark's own"),
    Option("queryName", "", "Spark's own"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything that a writer was told."""

    bootstrap: str
    urls: tuple[str, ...]
    topic: str | None
    home: str
    is_exactly_once: bool
    codec: Codec
    batch_bytes: int
    request_wait_ms: int
    patience_ms: int
    are_urls_given: bool = False
    nodes: Mapping[str, str] = field(default_factory=dict)
    """HTTP addresses of nodes by their Kafka addresses, to ask leaders directly."""

    def allows(self, url: str) -> bool:
        """True when a node may be asked at this address."""
        return not self.are_urls_given or url in self.urls


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options of a writer, or raise what is wrong with them."""
    options = GivenOptions(given, SINK_OPTIONS, "sink")
    bootstrap = options.bootstrap()
    codecs = [codec.name.lower() for codec in Codec]
    topic = options.text("topic")
    if topic is not None and not topic.strip():
        raise InvalidRequest("topic is empty; leave it out to write to those of a column topic")
    return SinkOptions(
        bootstrap=bootstrap,
        urls=_urls(options.text("url"), bootstrap),
        topic=topic,
        home=options.text("commitTopic") or topic or HOME_DEFAULT,
        is_exactly_once=options.word("mode", (EXACTLY_ONCE, AT_LEAST_ONCE)) == EXACTLY_ONCE,
        codec=Codec[options.word("kafka.compression.type", codecs).upper()],
        batch_bytes=options.count("kafka.batch.size") or BATCH_BYTES_MAX,
        request_wait_ms=options.count("kafka.request.timeout.ms") or 30_000,
        patience_ms=options.count("kafka.delivery.timeout.ms") or 120_000,
        are_urls_given=bool(options.text("url")),
    )


def _urls(text: str | None, bootstrap: str) -> tuple[str, ...]:
    if text:
        urls = tuple(filter(None, map(str.strip, text.split(","))))
        for url in urls:
            check_url(url)
        return urls
    return tuple(
        f"http://{f'[{each.host}]' if ':' in each.host else each.host}:{HTTP_PORT_DEFAULT}"
        for each in addresses_of(bootstrap)
    )
