"""Every option of a node, with its unit, default, limits and meaning.

`NodeOptions` is the only list of options: the flags of `penstock serve`, the `PENSTOCK_*`
variables, the keys of the YAML file and the reference page are all read off its fields. A flag
beats a variable, a variable beats the file, the file beats the default. `load_options` reports
every mistake of all three sources at once, and no node starts with a mistake in any of them.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import InvalidConfiguration

VARIABLE_PREFIX = "PENSTOCK_"
# Variables that the command line reads for itself; a node started in the same shell ignores them.
COMMAND_VARIABLES = frozenset(
    {"PENSTOCK_BOOTSTRAP", "PENSTOCK_CONFIG", "PENSTOCK_CONTEXT", "PENSTOCK_URL"}
)

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_UNITS = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::([0-9]{1,5}))?", re.ASCII)
_WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104 (compared with, never bound)


def parse_duration_ms(text: str) -> int:
    """Read `5s`, `1.5h`, `7d` or plain milliseconds; anything else is a `ValueError`."""
    return _parse_quantity(text, _DURATION_UNITS, example="5s, 7d or plain milliseconds")


def parse_size_bytes(text: str) -> int:
    """Read `512MiB`, `1GB` or plain bytes; anything else is a `ValueError`."""
    return _parse_quantity(text, _SIZE_UNITS, example="512MiB, 1GB or plain bytes")


def _parse_quantity(text: str, units: Mapping[str, int], *, example: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    factor = units.get(match[2]) if match and match[2] else 1
    if match is None or factor is None:
        raise ValueError(f"not a value like {example}")
    quantity = Decimal(match[1]) * factor
    if quantity != int(quantity):
        raise ValueError("not a whole number of its smallest unit")
    return int(quantity)


def _parse_integer(text: str) -> int:
    if re.fullmatch(r"-?[0-9]+", text.strip(), re.ASCII) is None:
        raise ValueError("not a whole number")
    return int(text)


def _parse_switch(text: str) -> bool:
    word = text.strip().lower()
    if word in {"true", "yes", "on", "1"}:
        return True
    if word in {"false", "no", "off", "0"}:
        return False
    raise ValueError("not true or false")


def _parse_host(text: str) -> str:
    if not text or re.search(r"[\s/]", text):
        raise ValueError("not a host name or address")
    return text.strip("[]")


def _parse_path(text: str) -> Path:
    if not text:
        raise ValueError("not a path")
    return Path(text)


def _parse_address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if match is None or (match[2] is not None and not 1 <= int(match[2]) <= 65535):
        raise ValueError("not HOST or HOST:PORT with a port in 1..65535")
    return text


def _parse_account(text: str) -> str:
    if len(text) != 12 or not text.isdecimal():
        raise ValueError("not 12 digits")
    return text


def _read_address(text: str, default: "Address") -> "Address":
    """Read HOST or HOST:PORT, taking from `default` what is missing."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return default
    return Address(match[1].strip("[]"), int(match[2] or default.port))


def _parse_peers(text: str) -> str:
    read_peers(text)
    return text


def read_peers(text: str) -> dict[int, "Address"]:
    """Read `1=host:port,2=host:port`; anything else is a `ValueError`."""
    peers: dict[int, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        number, _, address = part.partition("=")
        match = _ADDRESS.fullmatch(address)
        if not number.isdigit() or match is None or match[2] is None:
            raise ValueError(f"{part!r} is not ID=HOST:PORT")
        if int(number) in peers:
            raise ValueError(f"node {number} is listed twice")
        peers[int(number)] = Address(match[1].strip("[]"), int(match[2]))
    return peers


@dataclass(frozen=True, slots=True)
class Option:
    """How one option is read from text, and what a reader must know about it."""

    name: str
    section: str
    meaning: str
    limits: str
    default: str
    parse: Callable[[str], Any]

    @property
    def flag(self) -> str:
        """The flag of `penstock serve`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return VARIABLE_PREFIX + self.name.upper()


class Address(NamedTuple):
    """Where clients connect to."""

    host: str
    port: int


def _field(default: object, meaning: str, **reading: object) -> Any:
    return dataclasses.field(default=default, metadata={"meaning": meaning, **reading})


def _text(default: str, meaning: str, *, limits: str, parse: Callable[[str], str]) -> Any:
    return _field(default, meaning, limits=limits, parse=parse, shown=default)


def _path(default: str, meaning: str) -> Any:
    return _field(Path(default), meaning, limits="a path", parse=_parse_path, shown=default)


def _switch(default: bool, meaning: str) -> Any:
    shown = str(default).lower()
    return _field(default, meaning, limits="true or false", parse=_parse_switch, shown=shown)


def _choice(default: str, meaning: str, *, choices: tuple[str, ...]) -> Any:
    limits = " or ".join(choices)

    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(f"not {limits}")
        return text.strip().lower()

    return _text(default, meaning, limits=limits, parse=parse)


def _integer(default: int, meaning: str, *, least: int = 0, most: int = _INT32_MAX) -> Any:
    return _number(default, meaning, bounds=(least, most), parse=_parse_integer)


def _duration(default: int, meaning: str, *, least: int = 0) -> Any:
    bounds = (least, _INT64_MAX)
    return _number(default, meaning, bounds=bounds, parse=parse_duration_ms, unit=" ms")


def _size(default: int, meaning: str, *, least: int = 0, most: int = _INT64_MAX) -> Any:
    bounds = (least, most)
    return _number(default, meaning, bounds=bounds, parse=parse_size_bytes, unit=" bytes")


def _number(
    default: int,
    meaning: str,
    *,
    bounds: tuple[int, int],
    parse: Callable[[str], int],
    unit: str = "",
) -> Any:
    least, most = bounds
    limits = f"at least {least}{unit}" if most == _INT64_MAX else f"{least}..{most}{unit}"

    def parse_bounded(text: str) -> int:
        value = parse(text)
        if not least <= value <= most:
            raise ValueError(f"not {limits}")
        return value

    shown = _readable(default, parse)
    return _field(default, meaning, limits=limits, parse=parse_bounded, shown=shown)


def _readable(value: int, parse: Callable[[str], int]) -> str:
    """Show `604800000` as `604800000 (7d)` where a unit divides it exactly."""
    units: Mapping[str, int] = {}
    if parse is parse_duration_ms:
        units = _DURATION_UNITS
    elif parse is parse_size_bytes:
        units = _SIZE_UNITS
    fits = [(factor, unit) for unit, factor in units.items() if factor > 1 and value % factor == 0]
    if value <= 0 or not fits:
        return str(value)
    factor, unit = max(fits)
    return f"{value} ({value // factor}{unit})"


# Each section of the reference page and of the help begins with the field named here.
_SECTION_STARTS = {
    "data_dir": "Process",
    "host": "Network",
    "peers": "Cluster",
    "auto_create_topics": "Topics",
    "disk_free_bytes_min": "Storage",
    "group_shards": "Consumer groups",
    "producer_expiry_ms": "Producers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Everything that a node can be told when it starts."""

    data_dir: Path = _path(  # noqa: RUF009 (a dataclass field like its neighbours)
        "./data", "Directory of everything that the node stores; made when it is missing."
    )
    node_id: int = _integer(1, "Number of this node, unique in its cluster.")
    log_level: str = _choice(
        "info",
        "Least severe log lines that are written.",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = _choice(
        "text",
        "Log lines for people (text) or for programs (json).",
        choices=("text", "json"),
    )
    shutdown_grace_ms: int = _duration(
        10_000, "How long a stopping node waits for requests in flight."
    )

    host: str = _text(
        "127.0.0.1",
        "Address that all ports are bound to; 0.0.0.0 is every interface.",
        limits="a host name or address",
        parse=_parse_host,
    )
    advertise: str = _text(
        "",
        "Address that clients are told to connect to. Empty: the host, or this machine's name"
        " when the host is 0.0.0.0.",
        limits="HOST or HOST:PORT",
        parse=_parse_address,
    )
    kafka_port: int = _integer(
        9092, "Port of the Kafka protocol; 0 takes any free port.", most=65535
    )
    http_port: int = _integer(
        8080,
        "Port of messages, health, metrics and documentation over HTTP; 0 takes any free port.",
        most=65535,
    )
    http_body_bytes_max: int = _integer(
        64 * 1024 * 1024,
        "Largest body of a request that publishes over HTTP, in bytes.",
        least=1024,
        most=1024 * 1024 * 1024,
    )
    write_stage_bytes_max: int = _size(
        8 * 1024**3,
        "Bytes that writers such as Spark's may have staged in one partition and not committed.",
        least=1024,
    )
    write_stage_expiry_ms: int = _duration(
        24 * 3600 * 1000,
        "What a writer has staged and not committed is dropped after this time without news.",
        least=1000,
    )
    writer_expiry_ms: int = _duration(
        7 * 24 * 3600 * 1000,
        "A writer that commits nothing is forgotten after this time; until then an epoch that it"
        " repeats is known again.",
        least=1000,
    )
    sqs_account: str = _text(
        "000000000000",
        "Account number in the addresses of queues.",
        limits="12 digits",
        parse=_parse_account,
    )
    sqs_region: str = _text(
        "us-east-1", "Region in the arns of queues.", limits="a name", parse=str
    )
    sqs_access_keys_file: str = _text(
        "",
        "File with lines of access key, ':' and secret: requests of SQS clients must be signed with"
        " one of them. Without it signatures are not looked at.",
        limits="a path",
        parse=str,
    )
    sqs_purge_interval_ms: int = _duration(
        60_000, "A queue can be purged once in this time; 0 allows it always."
    )
    connections_max: int = _integer(
        10_000,
        "Open connections of Kafka clients; one more is closed at once.",
        least=1,
    )
    requests_in_flight_max: int = _integer(
        100,
        "Unanswered requests of one connection; at the limit the node stops reading from it.",
        least=1,
    )
    frame_bytes_max: int = _size(
        104_857_600,
        "Largest request; a larger one closes its connection before it is buffered.",
        least=1024,
        most=_INT32_MAX,
    )

    peers: str = _text(
        "",
        "All nodes of a new cluster, this one included, as 1=HOST:PORT,2=HOST:PORT,...;"
        " empty for a cluster of one.",
        limits="ID=HOST:PORT, comma-separated",
        parse=_parse_peers,
    )
    join: str = _text(
        "",
        "Any node of a running cluster that this new node is to join.",
        limits="HOST:PORT",
        parse=_parse_address,
    )
    peer_port: int = _integer(
        9191,
        "Port for the other nodes of the cluster; 0 takes any free port. Ignored when peers names"
        " this node's.",
        most=65535,
    )
    peer_advertise: str = _text(
        "",
        "Address that the other nodes are told to connect to. Empty: the one that peers gives for"
        " this node, or else the host and the peer port.",
        limits="HOST or HOST:PORT",
        parse=_parse_address,
    )
    peer_tls_certificate: str = _text(
        "",
        "Certificate that this node shows to other nodes, as a PEM file; empty for links without"
        " TLS.",
        limits="a path",
        parse=str,
    )
    peer_tls_key: str = _text(
        "", "Private key of the certificate, as a PEM file.", limits="a path", parse=str
    )
    peer_tls_authority: str = _text(
        "",
        "Authorities that must have signed the certificates of other nodes, as a PEM file.",
        limits="a path",
        parse=str,
    )
    transfer_bytes_per_s: int = _size(
        100_000_000,
        "Speed at which this node fills new replicas of others from its logs, and at which it"
        " copies snapshots from others; each over all its partitions together. A partition that is"
        " written faster than this cannot be moved.",
        least=1024,
    )
    moves_per_node_max: int = _integer(
        10, "New replicas that one node is filled with at a time; others wait.", least=1
    )
    leader_balance_interval_ms: int = _duration(
        30_000,
        "Time between two looks for partitions to hand back to the first of their nodes, once it"
        " has been in step for two of them; 0 leaves them where they are.",
    )
    tick_ms: int = _duration(
        200, "Clock of elections: leaders are heard from every 2 ticks.", least=10
    )
    election_ticks: int = _integer(
        6,
        "Ticks without a leader after which another election is held, at the earliest.",
        least=3,
        most=1000,
    )

    auto_create_topics: bool = _switch(True, "Create a topic when a client first names it.")
    default_partitions: int = _integer(
        1, "Partitions of a topic that is created without a number.", least=1
    )
    default_replication_factor: int = _integer(
        1,
        "Replicas of a topic that is created without a number.",
        least=1,
        most=32_767,
    )
    message_bytes_max: int = _size(
        1_048_588,
        "Largest record batch, as compressed by its producer.",
        least=1,
        most=_INT32_MAX,
    )
    retention_ms: int = _duration(
        604_800_000, "Age at which records are deleted; -1 keeps them.", least=-1
    )
    retention_bytes: int = _size(
        -1,
        "Size of a partition above which its oldest records are deleted; -1 is no limit.",
        least=-1,
    )
    segment_bytes: int = _size(
        268_435_456,
        "Size at which a partition starts a new segment file.",
        least=1024,
        most=_INT32_MAX,
    )
    segment_ms: int = _duration(
        604_800_000, "Age at which a partition starts a new segment file.", least=1
    )
    durability: str = _choice(
        "sync",
        "When a publish is acknowledged: after fdatasync (sync), or from the page cache (os),"
        " which a power cut can lose.",
        choices=("sync", "os"),
    )

    disk_free_bytes_min: int = _size(
        536_870_912,
        "Free disk below which publishes are refused; reads and commits go on.",
    )
    sync_threads: int = _integer(16, "Files that are synced side by side.", least=1, most=256)
    checkpoint_interval_ms: int = _duration(
        1_000,
        "Time between two saves of how far each file is synced, which shortens recovery.",
        least=1,
    )
    housekeeping_interval_ms: int = _duration(
        30_000, "Time between two rounds of retention and compaction.", least=1
    )
    scrub_interval_ms: int = _duration(
        86_400_000,
        "Time between two background checks of all stored checksums; 0 turns them off.",
    )

    group_shards: int = _integer(
        8, "Logs that share the state of all consumer groups.", least=1, most=1024
    )
    group_session_timeout_min_ms: int = _duration(
        6_000, "Shortest session timeout that a member may ask for.", least=1
    )
    group_session_timeout_max_ms: int = _duration(
        1_800_000, "Longest session timeout that a member may ask for.", least=1
    )
    group_initial_rebalance_delay_ms: int = _duration(
        300,
        "How long an empty group of the classic protocol waits for more members to join.",
    )
    consumer_session_timeout_ms: int = _duration(
        45_000,
        "Silence after which a member of an incremental (KIP-848) group is removed.",
        least=1,
    )
    consumer_heartbeat_interval_ms: int = _duration(
        5_000, "Time between heartbeats of an incremental group.", least=1
    )
    offsets_retention_ms: int = _duration(
        604_800_000, "How long an empty group keeps its offsets.", least=1
    )

    producer_expiry_ms: int = _duration(
        86_400_000,
        "Silence after which the sequence numbers of an idempotent producer are forgotten.",
        least=1,
    )

    def advertised(self, *, kafka_port: int, machine_name: str) -> Address:
        """Return the address for clients, given the port that was really bound."""
        return _read_address(self.advertise, Address(self._own_host(machine_name), kafka_port))

    def advertised_to_peers(self, *, peer_port: int, machine_name: str) -> Address:
        """Return the address for other nodes, given the port that was really bound."""
        own = read_peers(self.peers).get(self.node_id)
        default = own or Address(self._own_host(machine_name), peer_port)
        return _read_address(self.peer_advertise, default)

    def _own_host(self, machine_name: str) -> str:
        return machine_name if self.host in _WILDCARD_HOSTS else self.host


# No first value may exceed the second of its pair.
_ORDERED = (
    ("message_bytes_max", "frame_bytes_max"),
    ("group_session_timeout_min_ms", "group_session_timeout_max_ms"),
    ("consumer_heartbeat_interval_ms", "consumer_session_timeout_ms"),
)


def _options() -> Iterator[Option]:
    section = ""
    for field in dataclasses.fields(NodeOptions):
        section = _SECTION_STARTS.get(field.name, section)
        about = field.metadata
        yield Option(
            name=field.name,
            section=section,
            meaning=about["meaning"],
            limits=about["limits"],
            default=about["shown"],
            parse=about["parse"],
        )


OPTIONS: Mapping[str, Option] = {option.name: option for option in _options()}


class _Setting(NamedTuple):
    """One value as it was written, and where."""

    source: str
    name: str
    text: str


def load_options(
    flags: Mapping[str, str | None], environ: Mapping[str, str], file: Path | None
) -> NodeOptions:
    """Read all sources, or raise one `InvalidConfiguration` with a line for each mistake.

    `flags` maps option names to what was typed; None stands for a flag that was not given.
    """
    problems: list[str] = []
    in_file = list(_read_file(file, problems)) if file else []
    # Later settings win, so the order is the precedence.
    settings = [*in_file, *_read_environment(environ), *_read_flags(flags)]
    values: dict[str, Any] = {}
    unread: set[str] = set()
    for setting in settings:
        try:
            values[setting.name] = _read_setting(setting)
        except ValueError as error:
            problems.append(str(error))
            unread.add(setting.name)
    options = NodeOptions(**values)
    problems.extend(_disagreements(options, unread))
    if problems:
        raise InvalidConfiguration("\n".join(problems))
    return options


def _read_flags(flags: Mapping[str, str | None]) -> Iterator[_Setting]:
    for name, text in flags.items():
        if text is not None:
            yield _Setting("flag --" + name.replace("_", "-"), name, text)


def _read_environment(environ: Mapping[str, str]) -> Iterator[_Setting]:
    for variable, text in sorted(environ.items()):
        if variable.startswith(VARIABLE_PREFIX) and variable not in COMMAND_VARIABLES:
            name = variable.removeprefix(VARIABLE_PREFIX)
            yield _Setting(f"variable {variable}", name.lower() if name.isupper() else name, text)


def _read_file(file: Path, problems: list[str]) -> Iterator[_Setting]:
    # Only a node with a file pays for loading the parser.
    import yaml

    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"file {file}: cannot be read: {error}")
        return
    except yaml.YAMLError as error:
        problems.append(f"file {file}: is not YAML: {' '.join(str(error).split())}")
        return
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        problems.append(f"file {file}: is not a list of `option: value` lines")
        return
    seen: set[str] = set()
    for key, value in root.value:
        source = f"file {file} line {key.start_mark.line + 1}"
        if not isinstance(value, yaml.ScalarNode):
            problems.append(f"{source}: {key.value} holds a list or a mapping, not one value")
        elif key.value in seen:
            problems.append(f"{source}: {key.value} is set a second time")
        else:
            # The text of a scalar, not YAML's guess at its type: one parser serves all sources.
            yield _Setting(source, str(key.value), value.value)
        seen.add(str(key.value))


def _read_setting(setting: _Setting) -> object:
    option = OPTIONS.get(setting.name)
    if option is None:
        near = difflib.get_close_matches(setting.name, OPTIONS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{setting.source}: there is no option {setting.name}{hint}")
    try:
        return option.parse(setting.text)
    except ValueError as error:
        message = f"{setting.source}: {setting.name} is {setting.text!r}, {error}"
        raise ValueError(message) from None


def _disagreements(options: NodeOptions, unread: set[str]) -> Iterator[str]:
    """Find values that are fine alone and wrong together, leaving out what could not be read."""
    for lower, upper in _ORDERED:
        low, high = getattr(options, lower), getattr(options, upper)
        if low > high and not {lower, upper} & unread:
            yield f"together: {lower} is {low}, more than {upper}, which is {high}"
    if options.kafka_port == options.http_port != 0 and not {"kafka_port", "http_port"} & unread:
        yield f"together: kafka_port and http_port are both {options.kafka_port}; they must differ"


def reference_markdown() -> str:
    """Render the page `docs/reference/options.md`."""
    rows = [_REFERENCE_INTRODUCTION]
    section = ""
    for option in OPTIONS.values():
        if option.section != section:
            section = option.section
            rows.append(f"\n## {section}\n\n{_REFERENCE_HEAD}")
        default = f"`{option.default}`" if option.default else "empty"
        cells = (
            f"`{option.name}`", f"`{option.flag}`", f"`{option.variable}`", default,
            option.limits, option.meaning,
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


_REFERENCE_INTRODUCTION = """\
# Options of a node

Each option can be given to `penstock serve` as a flag, as an environment variable, or as a key of
the YAML file named by `--config`. A flag beats a variable, a variable beats the file, the file
beats the default. Every mistake in any of them is reported before the node opens a port.

Durations are milliseconds, or a number with `ms`, `s`, `m`, `h` or `d`. Sizes are bytes, or a
number with `kB`, `MB`, `GB`, `TB`, `KiB`, `MiB`, `GiB` or `TiB`.

This page is generated from `penstock.config`."""
_REFERENCE_HEAD = """\
| Option | Flag | Variable | Default | Limits | Meaning |
| --- | --- | --- | --- | --- | --- |"""
