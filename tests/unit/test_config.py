"""Options of a node: precedence, units, limits, and all mistakes reported at once."""

import contextlib
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import (
    OPTIONS,
    Address,
    NodeOptions,
    load_options,
    parse_duration_ms,
    parse_size_bytes,
    reference_markdown,
)
from penstock.errors import InvalidConfiguration


def problems_of(
    flags: dict[str, str | None] | None = None,
    environ: dict[str, str] | None = None,
    file: Path | None = None,
) -> list[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        load_options(flags or {}, environ or {}, file)
    return str(caught.value).splitlines()


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "node.yaml"
    file.write_text(text)
    return file


def test_without_any_source_every_option_has_its_default() -> None:
    assert load_options({}, {}, None) == NodeOptions()


def test_a_flag_beats_a_variable_and_a_variable_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "kafka_port: 1\nhttp_port: 2\nhost: from.file\n")
    environ = {"PENSTOCK_KAFKA_PORT": "11", "PENSTOCK_HTTP_PORT": "12"}

    options = load_options({"kafka_port": "21", "http_port": None}, environ, file)

    assert (options.kafka_port, options.http_port, options.host) == (21, 12, "from.file")


def test_every_source_reads_the_same_units(tmp_path: Path) -> None:
    file = written(tmp_path, "retention_ms: 7d\nsegment_bytes: 1MiB\nauto_create_topics: no\n")
    environ = {"PENSTOCK_SHUTDOWN_GRACE_MS": "1.5s"}

    options = load_options({"disk_free_bytes_min": "1GB"}, environ, file)

    assert options.retention_ms == 7 * 86_400_000
    assert options.segment_bytes == 1_048_576
    assert options.auto_create_topics is False
    assert options.shutdown_grace_ms == 1_500
    assert options.disk_free_bytes_min == 10**9


def test_mistakes_of_all_sources_are_reported_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, "retention_ms: 7d\nsegmnt_bytes: 5\nsync_threads: 0\n")
    environ = {"PENSTOCK_LOG_LEVEL": "loud", "PENSTOCK_TURBO": "1", "OTHER": "x"}
    flags = {"kafka_port": "99999", "durability": "maybe"}

    problems = problems_of(dict(flags), environ, file)

    assert problems == [
        f"file {file} line 2: there is no option segmnt_bytes; did you mean segment_bytes?",
        f"file {file} line 3: sync_threads is '0', not 1..256",
        "variable PENSTOCK_LOG_LEVEL: log_level is 'loud', not debug or info or warning or error",
        "variable PENSTOCK_TURBO: there is no option turbo",
        "flag --kafka-port: kafka_port is '99999', not 0..65535",
        "flag --durability: durability is 'maybe', not sync or os",
    ]


def test_a_bad_value_is_reported_even_where_a_better_source_overrides_it() -> None:
    problems = problems_of({"http_port": "80"}, {"PENSTOCK_HTTP_PORT": "eighty"})

    assert problems == ["variable PENSTOCK_HTTP_PORT: http_port is 'eighty', not a whole number"]


def test_values_that_disagree_with_each_other_are_reported() -> None:
    problems = problems_of(
        {
            "kafka_port": "8080",
            "message_bytes_max": "1MiB",
            "frame_bytes_max": "2kB",
            "group_session_timeout_min_ms": "1h",
        }
    )

    assert problems == [
        "together: message_bytes_max is 1048576, more than frame_bytes_max, which is 2000",
        (
            "together: group_session_timeout_min_ms is 3600000,"
            " more than group_session_timeout_max_ms, which is 1800000"
        ),
        "together: kafka_port and http_port are both 8080; they must differ",
    ]


def test_a_value_that_cannot_be_read_is_not_also_compared_with_others() -> None:
    problems = problems_of({"http_port": "x", "kafka_port": "8080"})

    assert problems == ["flag --http-port: http_port is 'x', not a whole number"]


def test_both_ports_may_be_any_free_port() -> None:
    options = load_options({"kafka_port": "0", "http_port": "0"}, {}, None)

    assert (options.kafka_port, options.http_port) == (0, 0)


def test_variables_of_the_command_line_are_not_options_of_a_node() -> None:
    load_options(
        {},
        {
            "PENSTOCK_BOOTSTRAP": "elsewhere:9092",
            "PENSTOCK_CONFIG": "x",
            "PENSTOCK_CONTEXT": "prod",
        },
        None,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kafka_port: [1, 2]\n", "line 1: kafka_port holds a list or a mapping, not one value"),
        ("host: a\nhost: b\n", "line 2: host is set a second time"),
        ("- host\n", ": is not a list of `option: value` lines"),
        ("host: 'a\n", ": is not YAML: "),
        ("data_dir:\n", "line 1: data_dir is '', not a path"),
    ],
)
def test_a_file_of_the_wrong_shape_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    problems = problems_of(file=written(tmp_path, text))

    assert len(problems) == 1
    assert problem in problems[0]


def test_a_missing_file_is_reported_with_the_other_mistakes(tmp_path: Path) -> None:
    problems = problems_of({"host": ""}, file=tmp_path / "none.yaml")

    assert problems[0].startswith(f"file {tmp_path / 'none.yaml'}: cannot be read: ")
    assert problems[1] == "flag --host: host is '', not a host name or address"


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_options({}, {}, written(tmp_path, "# nothing\n")) == NodeOptions()


@pytest.mark.parametrize("text", ["5x", "", "-", "1.0001s", "1e3", "٣", "5 s s", "1,5s"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_duration_ms(text)


@given(st.integers(min_value=-1, max_value=2**63 - 1))
def test_plain_numbers_are_milliseconds_and_bytes(number: int) -> None:
    assert parse_duration_ms(str(number)) == number
    assert parse_size_bytes(str(number)) == number


@given(st.integers(min_value=0, max_value=10**6), st.sampled_from(["s", "m", "h", "d"]))
def test_a_unit_multiplies(number: int, unit: str) -> None:
    seconds = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

    assert parse_duration_ms(f"{number}{unit}") == number * seconds[unit] * 1_000


@given(st.text(max_size=20))
def test_any_text_is_either_read_or_reported(text: str) -> None:
    for name in OPTIONS:
        with contextlib.suppress(InvalidConfiguration):
            load_options({name: text}, {}, None)


def test_every_default_lies_within_its_own_limits() -> None:
    for option in OPTIONS.values():
        default = option.default.split(" (")[0]
        if option.name not in ("advertise", "join", "peer_advertise"):
            field = getattr(NodeOptions(), option.name)
            assert option.parse(default) == field, option.name


def test_clients_are_told_the_host_and_the_port_that_was_bound() -> None:
    address = NodeOptions(host="10.0.0.7").advertised(kafka_port=4711, machine_name="box")

    assert address == Address("10.0.0.7", 4711)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_node_on_every_interface_tells_its_machine_name(host: str) -> None:
    address = NodeOptions(host=host).advertised(kafka_port=4711, machine_name="box")

    assert address == Address("box", 4711)


@pytest.mark.parametrize(
    ("advertise", "expected"),
    [
        ("queue.example", Address("queue.example", 4711)),
        ("queue.example:19092", Address("queue.example", 19092)),
        ("[fe80::1]:19092", Address("fe80::1", 19092)),
    ],
)
def test_an_advertised_address_wins_over_the_host(advertise: str, expected: Address) -> None:
    options = load_options({"advertise": advertise}, {}, None)

    assert options.advertised(kafka_port=4711, machine_name="box") == expected


@pytest.mark.parametrize("advertise", ["a:0", "a:65536", "a b", "http://a", "fe80::1", ":9092"])
def test_an_advertised_address_must_be_an_address(advertise: str) -> None:
    assert len(problems_of({"advertise": advertise})) == 1


def test_the_reference_page_names_every_option_with_flag_and_variable() -> None:
    page = reference_markdown()

    for field in dataclasses.fields(NodeOptions):
        assert f"| `{field.name}` | `--{field.name.replace('_', '-')}` |" in page
        assert f"`PENSTOCK_{field.name.upper()}`" in page
    assert "| `604800000 (7d)` | at least -1 ms | Age at which records are deleted;" in page


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, "127.0.0.1:9191"),
        ({"host": "0.0.0.0"}, "machine:9191"),
        ({"peers": "1=one:7001,2=two:7002"}, "one:7001"),
        ({"peers": "1=one:7001,2=two:7002", "peer_advertise": "outside"}, "outside:7001"),
        ({"peer_advertise": "outside:7999"}, "outside:7999"),
    ],
)
def test_other_nodes_are_told_an_address_that_they_can_reach(
    flags: dict[str, str], expected: str
) -> None:
    options = load_options(flags, {}, None)

    address = options.advertised_to_peers(peer_port=9191, machine_name="machine")

    assert f"{address.host}:{address.port}" == expected
