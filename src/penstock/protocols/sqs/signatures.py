"""Signatures of AWS requests, version 4, where a node was given keys to check them with.

A request names the key that it is signed with, the day, region and service, the headers that the
signature covers, and the signature: an HMAC of a digest of the request, under a key that is derived
from the secret, the day, the region and the service.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote

from penstock.errors import InvalidConfiguration
from penstock.protocols.sqs.errors import SqsError

_ALGORITHM = "AWS4-HMAC-SHA256"
_PART = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]+)\s*")
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_AGE_S_MAX = 15 * 60
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
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise SqsError(SqsError.TOKEN_MISSING, "Request is missing Authentication Token")
    parts = _parts(authorization)
    key, *scope = parts["Credential"].split("/")
    if len(scope) + 1 != _SCOPE_PARTS:
        raise _incomplete("Credential must be key/date/region/service/aws4_request")
    secret = keys.get(key)
    if secret is None:
        raise SqsError(
            SqsError.TOKEN_INVALID, "The security token included in the request is invalid."
        )
    time = request.headers.get("x-amz-date", "")
    _check_time(time, scope[0], now_s)
    digest = hashlib.sha256(_canonical(request, parts["SignedHeaders"]).encode()).hexdigest()
    signed = "\n".join((_ALGORITHM, time, "/".join(scope), digest))
    expected = _hmac(_signing_key(secret, scope), signed).hex()
    if not hmac.compare_digest(expected, parts["Signature"]):
        raise SqsError(
            SqsError.SIGNATURE_WRONG,
            "The request signature we calculated does not match the signature you provided. Check"
            " your AWS Secret Access Key and signing method.",
        )


def _parts(authorization: str) -> dict[str, str]:
    algorithm, _, rest = authorization.partition(" ")
    found = {match[1]: match[2] for each in rest.split(",") if (match := _PART.fullmatch(each))}
    if algorithm != _ALGORITHM or len(found) != 3:
        raise _incomplete(f"Authorization must be {_ALGORITHM} with its three parts")
    return found


def _incomplete(reason: str) -> SqsError:
    return SqsError(SqsError.SIGNATURE_INCOMPLETE, f"{reason}.")


def _check_time(time: str, day: str, now_s: float) -> None:
    try:
        signed_s = datetime.strptime(time, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _incomplete("X-Amz-Date must be there, as YYYYMMDD'T'HHMMSS'Z'") from None
    if not time.startswith(day) or abs(now_s - signed_s) > _AGE_S_MAX:
        raise SqsError(
            SqsError.SIGNATURE_WRONG,
            f"Signature expired: {time} is not within {_AGE_S_MAX // 60} minutes of the node's"
            " time.",
        )


def _canonical(request: SignedRequest, signed_headers: str) -> str:
    fields = sorted(parse_qsl(request.query, keep_blank_values=True))
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
