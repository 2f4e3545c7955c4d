"""The list of APIs that are loaded when they are first used."""

import pytest

from penstock.protocols.kafka.apis import LISTED, Listed, load


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.name)
def test_an_api_is_what_the_list_says_before_it_is_loaded(listed: Listed) -> None:
    api = load(listed)

    assert (api.name, api.version_min, api.version_max) == (
        listed.name,
        listed.version_min,
        listed.version_max,
    )
    assert api.may_wait == listed.may_wait
    assert not api.is_pipelined
