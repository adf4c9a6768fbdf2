"""What tests of single calls share: a target without a database, and a resolver that says what it is told to say."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx
from aiohttp.abc import AbstractResolver, ResolveResult

from bucketd.runner.call import Caller
from bucketd.store.allow_list import AllowList
from bucketd.store.runners import CallTarget


def call_target(url: str) -> CallTarget:
    """A single-run target with nothing special."""
    return CallTarget(
        target_id=1,
        revision=1,
        name="target",
        url=url,
        headers={},
        connect_timeout_s=5.0,
        timeout_s=5.0,
        max_attempts=1,
        retry_base_s=0.0,
        retry_cap_s=0.0,
        batch_max=1,
        batch_linger_ms=0,
        batch_by_tenant=False,
        body="envelope",
        max_running=None,
        rate_per_s=None,
        complete_within_s=None,
    )


class Resolver(AbstractResolver):
    """Any name has the addresses of the next answer; the last answer stands for good. `asked`: the names so far."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers: Iterator[list[str]] = iter(answers)
        self._answer: list[str] = []
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """As aiohttp's own resolvers do; no address: the name does not exist."""
        self.asked.append(host)
        self._answer = next(self._answers, self._answer)
        if not self._answer:
            raise OSError(None, "no such name")
        kind: dict[bool, socket.AddressFamily] = {True: socket.AF_INET6, False: socket.AF_INET}
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind[":" in address], proto=6, flags=0)
            for address in self._answer
        ]

    async def close(self) -> None:
        """Nothing is open."""


@cache
def public_authorities() -> SSLContext:
    """As a runner has it; loading them anew for each test would take longer than the tests."""
    return httpx.create_ssl_context(trust_env=False)


@asynccontextmanager
async def calling(allow: str = "", *answers: list[str], **more: Any) -> AsyncIterator[Caller]:
    """A caller with this allow-list; with answers, names resolve to them (see Resolver)."""
    options = {"tls": public_authorities(), "resolver": Resolver(*answers) if answers else None} | more
    caller = Caller(AllowList.parse(allow), **options)
    try:
        yield caller
    finally:
        await caller.close()
