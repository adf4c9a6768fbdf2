"""Step 4 of 5: run row -> target.

httpx is the interface, aiohttp does the I/O (httpx's own pool costs ten times as much a request and loses a slot for good when a
request is cancelled); the client layer of httpx is passed by: redirects, cookies, authentication and proxies from the
environment are all unwanted. A POST is never repeated below this line.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from bucketd.runner.retry import retry_after_s
from bucketd.store.clock import wall
from bucketd.store.runners import CallTarget

READ_BYTES = 64 * 1024  # of an answer; what is longer costs its connection
SHOWN_CHARS = 300  # of an answer in the row's failure
_url = lru_cache(maxsize=4096)(httpx.URL)  # parsing costs an eighth of a call


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request. `status` None: no answer."""

    status: int | None
    error: str = ""
    retry_after_s: float | None = None
    buildable: bool = True  # False: the request itself is impossible (URL, header), no retry heals it


class Caller:
    """Sends requests. Connections are kept per target by aiohttp; how many is bounded by who calls."""

    def __init__(self) -> None:
        context = httpx.create_ssl_context(trust_env=False)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context, ttl_dns_cache=10),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding"),
            trust_env=False,
        )
        self._transport = AiohttpTransport(verify=context, trust_env=False, client=session)

    async def close(self) -> None:
        """Closes all connections; returns when their transports are gone."""
        await self._transport.aclose()
        await asyncio.sleep(0)

    async def post(self, target: CallTarget, content: bytes, headers: dict[str, str], timeout_s: float) -> Answer:
        """One request; every way to fail is an Answer. Waits at most `timeout_s`."""
        timeouts = {"connect": target.connect_timeout_s, "read": timeout_s}
        try:
            request = httpx.Request(
                "POST", _url(target.url), headers=headers, content=content, extensions={"timeout": timeouts}
            )
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            return Answer(None, f"request cannot be built: {error}", buildable=False)
        try:
            # The socket's time-out begins anew with every byte, so a target that trickles needs a limit on the whole.
            # aiohttp closes the connection of a request that ends like that.
            async with asyncio.timeout(timeout_s):
                return await self._send(request)
        except TimeoutError:
            return Answer(None, f"no answer within {timeout_s:g} s")
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError) as error:
            return Answer(None, f"request cannot be sent: {error}", buildable=False)
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            return Answer(None, f"{type(error).__name__}: {error}")

    async def _send(self, request: httpx.Request) -> Answer:
        response = await self._transport.handle_async_request(request)
        read = b""
        assert isinstance(response.stream, httpx.AsyncByteStream)
        try:
            async for chunk in response.stream:
                read += chunk
                if len(read) >= READ_BYTES:
                    break
        finally:
            await response.stream.aclose()
        if 200 <= response.status_code < 300:
            return Answer(response.status_code)
        shown = read[: SHOWN_CHARS * 4].decode("utf-8", "replace")[:SHOWN_CHARS]
        after = retry_after_s(response.headers.get("retry-after"), datetime.fromtimestamp(wall(), UTC))
        return Answer(response.status_code, f"HTTP {response.status_code} {shown}".rstrip(), after)
