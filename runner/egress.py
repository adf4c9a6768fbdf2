"""Whether a request may open a connection: every address is judged at the moment it is connected to, and that very address is used.

A check before the resolver would prove nothing: names resolve anew, and an attacker's resolver answers differently the second
time. aiohttp hands its socket factory the address that it is about to connect to, so the check stands there, and a refusal means
that there is no socket. It runs in (a copy of) the context of the request's task, which is how it knows whose request it is: a
host on the allow-list opens an address for itself, and for no other name that resolves to it. Of several addresses the denied
ones fail and the others are tried. Pooled connections were judged when they were opened, for the same host.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpx
from aiohttp import AddrInfoType
from yarl import URL

from bucketd.runner.networks import why_not_public
from bucketd.store.allow_list import AllowList


class EgressDenied(OSError):
    """No connection to this address. An OSError, so that aiohttp goes on to the next one."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A target's URL. `host` as aiohttp reads it; `is_address`: nothing to resolve; `listed`: the allow-list names the host."""

    url: httpx.URL
    host: str
    is_address: bool
    listed: bool


@dataclass(slots=True)
class Passage:
    """One request at the guard, and what the guard said so far: denied addresses with the reason, and whether any was let pass."""

    destination: Destination
    denied: tuple[tuple[str, str], ...] = ()
    passed: bool = False

    @property
    def is_barred(self) -> bool:
        """Whether the request failed because all of its addresses are denied."""
        return bool(self.denied) and not self.passed

    def verdict(self) -> str:
        """Why, and what to do about it."""
        host = self.destination.host
        if self.destination.is_address:
            told = "is " + " and ".join(reason for _, reason in self.denied)
        else:
            told = "resolves to " + " and to ".join(f"{address}, which is {reason}" for address, reason in self.denied)
        return f"egress denied: {host} {told}; allow it with BUCKETD_EGRESS_ALLOW"


_passage: ContextVar[Passage | None] = ContextVar("passage", default=None)


class Guard:
    """Judges by one allow-list. `open` is aiohttp's socket factory; `enter` comes before the request."""

    def __init__(self, allow: AllowList) -> None:
        self._allow = allow
        self._destination: Callable[[str], Destination] = lru_cache(maxsize=4096)(self._parse)

    def enter(self, url: str) -> Passage:
        """Says whose request this task sends from now on. Raises httpx.InvalidURL and ValueError for what is no URL."""
        passage = Passage(self._destination(url))
        _passage.set(passage)
        return passage

    def open(self, found: AddrInfoType) -> socket.socket:
        """A socket for this address. Raises EgressDenied."""
        family, kind, protocol, _, sockaddr = found
        address, passage = str(sockaddr[0]), _passage.get()
        reason = self._why_not(address, passage)  # guard: egress
        if reason is not None:
            if passage is not None and (address, reason) not in passage.denied:  # aiohttp may try one more than once
                passage.denied += ((address, reason),)
            raise EgressDenied(f"egress denied: {address} is {reason}")
        if passage is not None:
            passage.passed = True
        return socket.socket(family, kind, protocol)

    def _why_not(self, text: str, passage: Passage | None) -> str | None:
        address = _address(text)
        if address is None:  # the loop would resolve it once more, unseen
            return "no plain address"
        if (passage is not None and passage.destination.listed) or self._allow.has_address(address):
            return None
        return why_not_public(address)

    def _parse(self, text: str) -> Destination:
        url = httpx.URL(text)
        host = URL(str(url)).raw_host
        if url.scheme not in ("http", "https") or not host:
            raise httpx.InvalidURL("expected http:// or https:// and a host")
        plain = _plain(host)
        if plain != host:
            url, host = url.copy_with(host=plain), plain
        return Destination(url, host, _address(host) is not None, self._allow.has_host(host))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _plain(host: str) -> str:
    """127.0.0.1 for 2130706433, 0x7f.1, 127.1 and 127.0.0.1.: what every C library takes them for. Other hosts as they are."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except (OSError, ValueError):
        return host
