"""Checks of where a target is and of the headers it gets, before anything is written. Each raises InvalidInput.

Only what is certain to fail is refused here. Whether an address may be called is not: the list of what is allowed lies with the
runners, and a name is another address tomorrow. So `http://10.0.0.5/` and `http://localhost/` are fine at this place.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from bucketd.errors import InvalidInput

URL_CHARS, HEADER_NAME_CHARS, HEADER_CHARS = 2_048, 255, 8_192
_UNWANTED = re.compile(r"[\s\x00-\x20\x7f-\x9f\ud800-\udfff]")
# Beside letters, digits, dots, dashes and underscores no ASCII is part of a host's name; % would be a zone or an encoded name.
_NO_HOST = re.compile(r"[\x00-\x7f](?<![A-Za-z0-9._-])")
# Such a last label makes a whole name an address in the eyes of some: 127.1, 2130706433, 0x7f.1, 0177.0.0.1
_NUMBER_LAST = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# ASCII and no control characters but the tab: what lies above has no encoding that both ends would agree on (RFC 9110, 5.5).
_HEADER_TEXT = re.compile(r"[\t\x20-\x7e]*")
# What belongs to the connection, and what every request sets itself.
_TAKEN = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "expect"),
        *("content-length", "content-type", "idempotency-key"),
    }
)
_TAKEN_PREFIXES = ("webhook-", "bucketd-", "proxy-")


def url(value: object, field: str = "url") -> str:
    """An http or https URL with a host, and without credentials (they belong into headers, which are never shown)."""
    if not isinstance(value, str) or not 1 <= len(value) <= URL_CHARS or _UNWANTED.search(value):
        raise InvalidInput(
            f"expected {field} to be an http or https URL of at most {URL_CHARS:,} characters without blanks",
            field=field,
        )
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(
            f"expected {field} to be an http or https URL, got a malformed one: {error}", field=field
        ) from None
    if parts.scheme not in ("http", "https"):
        raise InvalidInput(
            f"expected {field} to begin with http:// or https://, got scheme {parts.scheme!r}", field=field
        )
    if "@" in parts.netloc:
        raise InvalidInput(
            f"expected {field} without user and password; put them into the headers (authorization)", field=field
        )
    if not host or port == 0:
        raise InvalidInput(
            f"expected {field} to name a host (and a port above 0, if any), as in https://example.com/hook", field=field
        )
    problem = _problem_of(host)
    if problem is not None:
        raise InvalidInput(f"expected the host of {field} to be {problem}, got {ascii(host)[:80]}", field=field)
    return value


def _problem_of(host: str) -> str | None:
    """What a host should be and is not; None: it is fine."""
    if ":" in host:
        return None if "%" not in host and _is(IPv6Address, host) else "an IPv6 address without a zone"
    if _NUMBER_LAST.fullmatch(host):
        return None if _is(IPv4Address, host) else "an IPv4 address of four plain decimal numbers"
    if _NO_HOST.search(host):
        return "a name of letters, digits, dots and dashes"
    # Full-width and circled letters and digits are other spellings of plain ones.
    if not unicodedata.is_normalized("NFKC", host):
        return f"in plain letters and digits ({ascii(unicodedata.normalize('NFKC', host))[1:-1]})"
    return None


def _is(kind: type[IPv4Address] | type[IPv6Address], host: str) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True


def headers(value: object) -> str:
    """JSON text of headers that a target may set; names in the case given."""
    if not isinstance(value, Mapping):
        raise InvalidInput("expected headers to be a map of text to text", field="headers")
    seen: set[str] = set()
    for name, text in value.items():
        _check_name(name, seen)
        # The value is never shown: it may be a credential.
        if not isinstance(text, str) or len(text) > HEADER_CHARS or not _HEADER_TEXT.fullmatch(text):
            raise InvalidInput(
                f"expected header {name!r} to be one line of ASCII text without control characters, at most"
                f" {HEADER_CHARS:,} long",
                field="headers",
            )
    return json.dumps(dict(value), separators=(",", ":"))


def _check_name(name: object, seen: set[str]) -> None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > HEADER_NAME_CHARS:
        raise InvalidInput(
            f"expected a header name of letters, digits and dashes, got {ascii(name)[:80]}", field="headers"
        )
    lower = name.lower()
    if lower in _TAKEN or lower.startswith(_TAKEN_PREFIXES):
        raise InvalidInput(f"expected no header {name!r}: bucketd or the connection sets it", field="headers")
    if lower in seen:
        raise InvalidInput(f"expected header {name!r} once, got it twice in different case", field="headers")
    seen.add(lower)
