"""Errors of librdkafka become errors of this package."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock import errors
from penstock.client.translation import translate


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_ALREADY_EXISTS, errors.TopicExists),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.TopicNotFound),
        (KafkaError.NON_EMPTY_GROUP, errors.GroupNotEmpty),
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.BatchTooLarge),
        (KafkaError._TRANSPORT, errors.Unavailable),
        (KafkaError._TIMED_OUT, errors.TimedOut),
        (KafkaError._BAD_MSG, errors.Corruption),
    ],
)
def test_a_code_becomes_its_kind_of_error(code: int, kind: type[errors.PenstockError]) -> None:
    error = translate(KafkaException(KafkaError(code, "because")), "create topic x")

    assert type(error) is kind
    assert str(error).startswith("create topic x: because (")


def test_what_librdkafka_would_retry_may_be_retried() -> None:
    error = translate(KafkaError(KafkaError.NETWORK_EXCEPTION, "gone", retriable=True), "consume")

    assert error.retryable


def test_an_unknown_code_is_a_failure_that_names_itself() -> None:
    error = translate(KafkaError(KafkaError.POLICY_VIOLATION, "no"), "create topic x")

    assert not error.retryable
    assert str(error) == "create topic x: no (POLICY_VIOLATION)"


def test_a_text_in_place_of_a_code_is_passed_on() -> None:
    error = translate(KafkaException("No such configuration property"), "consume")

    assert isinstance(error, errors.InvalidRequest)
    assert "No such configuration property" in str(error)
