"""What a share group can be told."""

import pytest

from penstock.broker.share_settings import check_share_settings
from penstock.errors import InvalidSetting


@pytest.mark.parametrize("value", ["1", "1001", "-2", "two", "", "٣", "9" * 5_000])
def test_a_number_outside_its_limits_is_refused_with_them(value: str) -> None:
    with pytest.raises(InvalidSetting, match="not a whole number between 2 and 1000"):
        check_share_settings({"share.delivery.count.limit": value})


def test_a_choice_or_a_name_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidSetting, match="none of earliest, latest"):
        check_share_settings({"share.auto.offset.reset": "middle"})
    with pytest.raises(InvalidSetting, match=r"there are share\.auto\.offset\.reset"):
        check_share_settings({"share.colour": "red"})
