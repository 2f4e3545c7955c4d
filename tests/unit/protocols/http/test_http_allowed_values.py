"""A body that cannot be read is refused with what it could have held."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from penstock.errors import InvalidRequest
from penstock.protocols.http.exchange import decode_body


class Part(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[Literal["small", "large"], Meta(description="How much.")] | None = None


class Whole(Part, forbid_unknown_fields=True):
    way: Literal[1, 2] | UnsetType = UNSET
    parts: list[Part] | UnsetType = UNSET
    by_name: dict[str, Part] = {}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"size": "huge"}', "'huge' - at `$.size`; allowed are large, small"),
        (b'{"way": 3}', "3 - at `$.way`; allowed are 1, 2"),
        (b'{"parts": [{}, {"size": "x"}]}', "`$.parts[1].size`; allowed are large, small"),
        (b'{"by_name": {"a.b": {"size": "x"}}}', "`$.by_name[...].size`; allowed are large, small"),
        (b'{"seize": "small"}', "field `seize`; allowed are by_name, parts, size, way"),
        (b'{"parts": [{"way": 1}]}', "field `way` - at `$.parts[0]`; allowed are size"),
        (b'{"parts": 1}', "Expected `array`, got `int` - at `$.parts`"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_what_is_allowed(body: bytes, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body, Whole)

    assert str(caught.value).endswith(told)
