"""Signatures of AWS requests, version 4, where a node was given keys to check them with.

A request names the key that it is signed with, the day, region and service, the headers that the
signature covers, and the signature: an HMAC of a digest of the request, under a key that is derived
from the secret, the day, the region and the service. All that is in the header `Authorization`, or
in the query of an address that was signed for somebody else to use.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from penstock.errors import InvalidConfiguration
from penstock.protocols.sqs.errors import SqsError

_ALGORITHM = "AWS4-HMAC-SHA256"
_PART = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]+)\s*")
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_IN_QUERY = "X-Amz-Signature"
_AGE_S_MAX = 15 * 60
_EXPIRES = re.compile("[0-9]{1,6}")
_EXPIRES_S_MAX = 7 * 24 * 60 * 60
_SCOPE_PARTS = 5


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What a signature covers; names of headers are in lower case, path and query as sent."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def read_access_keys(text: str, name: str) -> dict[str, str]:
    """Read lines of `access key:secret`; empty lines and those that begin with # are passed over.

    The secrets are not shown where a line makes no sense.
    """
    keys = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, _, secret = line.strip().partition(":")
        if not line.strip() or key.startswith("#"):
            continue
        if not key or not secret:
            raise InvalidConfiguration(f"{name}, line {number}: not an access key, ':', a secret")
        keys[key] = secret
    if not keys:
        raise InvalidConfiguration(f"{name} holds no access key")
    return keys


def check_signature(request: SignedRequest, keys: Mapping[str, str], *, now_s: float) -> None:
    """Raise unless a request is signed with one of the keys."""
    signature = _signature_of(request)
    key, *scope = signature.credential.split("/")
    if len(scope) + 1 != _SCOPE_PARTS:
        raise _incomplete("Credential must be key/date/region/service/aws4_request")
    secret = keys.get(key)
    if secret is None:
        raise SqsError(
            SqsError.TOKEN_INVALID, "The security token included in the request is invalid."
        )
    _check_time(signature, scope[0], now_s)
    digest = hashlib.sha256(_canonical(request, signature.headers).encode()).hexdigest()
    signed = "\n".join((_ALGORITHM, signature.time, "/".join(scope), digest))
    expected = _hmac(_signing_key(secret, scope), signed).hex()
    if not hmac.compare_digest(expected.encode(), signature.value.encode(errors="replace")):
        raise SqsError(
            SqsError.SIGNATURE_WRONG,
            "The request signature we calculated does not match the signature you provided. Check"
            " your AWS Secret Access Key and signing method.",
        )


class _Signature(NamedTuple):
    """What a request says about its signature."""

    credential: str
    headers: str
    value: str
    time: str
    expires_s: int | None
    """How long after its time an address may be used; None for a signature in a header."""


def _signature_of(request: SignedRequest) -> _Signature:
    authorization = request.headers.get("authorization")
    if authorization is not None:
        parts = _parts(authorization)
        time = request.headers.get("x-amz-date", "")
        return _Signature(
            parts["Credential"], parts["SignedHeaders"], parts["Signature"], time, None
        )
    fields = dict(parse_qsl(request.query))
    if _IN_QUERY not in fields:
        raise SqsError(SqsError.TOKEN_MISSING, "Request is missing Authentication Token")
    expires = fields.get("X-Amz-Expires", "")
    if _EXPIRES.fullmatch(expires) is None or not 1 <= int(expires) <= _EXPIRES_S_MAX:
        raise _incomplete(f"X-Amz-Expires must be between 1 and {_EXPIRES_S_MAX} seconds")
    if fields.get("X-Amz-Algorithm") != _ALGORITHM:
        raise _incomplete(f"X-Amz-Algorithm must be {_ALGORITHM}")
    return _Signature(
        fields.get("X-Amz-Credential", ""),
        fields.get("X-Amz-SignedHeaders", ""),
        fields[_IN_QUERY],
        fields.get("X-Amz-Date", ""),
        int(expires),
    )


def _parts(authorization: str) -> dict[str, str]:
    algorithm, _, rest = authorization.partition(" ")
    found = {match[1]: match[2] for each in rest.split(",") if (match := _PART.fullmatch(each))}
    if algorithm != _ALGORITHM or len(found) != 3:
        raise _incomplete(f"Authorization must be {_ALGORITHM} with its three parts")
    return found


def _incomplete(reason: str) -> SqsError:
    return SqsError(SqsError.SIGNATURE_INCOMPLETE, f"{reason}.")


def _check_time(signature: _Signature, day: str, now_s: float) -> None:
    time = signature.time
    try:
        signed_s = datetime.strptime(time, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _incomplete("X-Amz-Date must be there, as YYYYMMDD'T'HHMMSS'Z'") from None
    age_s_max = _AGE_S_MAX if signature.expires_s is None else signature.expires_s
    if not time.startswith(day) or not -_AGE_S_MAX <= now_s - signed_s <= age_s_max:
        raise SqsError(
            SqsError.SIGNATURE_WRONG,
            f"Signature expired: {time} is not within {age_s_max} seconds of the node's time.",
        )


def _canonical(request: SignedRequest, signed_headers: str) -> str:
    fields = sorted(
        field for field in parse_qsl(request.query, keep_blank_values=True) if field[0] != _IN_QUERY
    )
    headers = [
        f"{name}:{' '.join(request.headers.get(name, '').split())}\n"
        for name in signed_headers.split(";")
    ]
    return "\n".join(
        (
            request.method,
            quote(request.path, safe="/~"),
            "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in fields),
            "".join(headers),
            signed_headers,
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _signing_key(secret: str, scope: list[str]) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
