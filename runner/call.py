"""Step 4 of 5: run row -> target.

httpx is the interface, aiohttp does the I/O (httpx's own pool costs ten times as much a request and loses a slot for good when a
request is cancelled); the client layer of httpx is passed by: redirects, cookies, authentication and proxies from the
environment are all unwanted. Where a connection may go is egress.py's. A POST is never repeated below this line.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver
from httpx_aiohttp import AiohttpTransport

from bucketd.runner.egress import Guard
from bucketd.runner.retry import retry_after_s
from bucketd.store.allow_list import AllowList
from bucketd.store.clock import monotonic, wall
from bucketd.store.exposition import Histogram
from bucketd.store.metrics import DURATION_S
from bucketd.store.runners import CallTarget

READ_BYTES = 64 * 1024  # of an answer; what is longer costs its connection
SHOWN_BYTES = 1024  # of an answer in the row's failure
_QUERY = re.compile(r"(://[^\s'\"?]*)\?[^\s'\")>]*")
DNS_S = 10  # how long an answer of the resolver is used for new connections; each one is judged nevertheless


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request. `status` None: no answer."""

    status: int | None
    error: str = ""
    retry_after_s: float | None = None
    buildable: bool = True  # False: the request itself is impossible (URL, header), no retry heals it
    sent: bool = True  # False: it was not even tried, which says nothing about the target
    report: bytes = b""  # JSON of a 2xx that the caller asked for


class Caller:
    """Sends requests. Connections are kept per target by aiohttp; how many is bounded by who calls."""

    def __init__(
        self,
        allow: AllowList,
        *,
        tls: ssl.SSLContext | None = None,
        resolver: AbstractResolver | None = None,
        dns_s: int = DNS_S,
    ) -> None:
        """`allow`: where connections may go beside the public internet. `tls`, `resolver`: None is the public authorities' and
        the system's. `dns_s`: see DNS_S.
        """
        self._guard = Guard(allow)
        self.durations = Histogram(DURATION_S)
        self.now_s: Callable[[], float] = wall  # what requests say; a runner sets the cluster's clock
        self._deadlines: dict[asyncio.Timeout, float] = {}  # of the requests in flight
        context = tls or httpx.create_ssl_context(trust_env=False)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=context, resolver=resolver, ttl_dns_cache=dns_s, socket_factory=self._guard.open
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding"),
            trust_env=False,
        )
        self._transport = AiohttpTransport(verify=context, trust_env=False, client=session)

    async def close(self) -> None:
        """Closes all connections; returns when their transports are gone."""
        await self._transport.aclose()
        await asyncio.sleep(0)

    async def post(
        self, target: CallTarget, content: bytes, headers: dict[str, str], timeout_s: float, report_bytes: int = 0
    ) -> Answer:
        """One request; every way to fail is an Answer. Waits at most `timeout_s`.

        Of a JSON answer with 2xx about `report_bytes` are kept as its report; cut off, it is no JSON any more.
        """
        if target.why_sealed is not None:
            return Answer(None, target.why_sealed, sent=False)
        timeouts = {"connect": target.connect_timeout_s, "read": timeout_s}
        try:
            passage = self._guard.enter(target.url)
            url = passage.destination.url
            request = _request(url, headers, content, timeouts)
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            return Answer(None, without_query(f"request cannot be built: {error}"), buildable=False, sent=False)
        # The socket's time-out begins anew with every byte, so a target that trickles needs a limit on the whole.
        # aiohttp closes the connection of a request that ends like that.
        limit = asyncio.timeout(timeout_s)
        begun = monotonic()
        try:
            async with limit:
                self._deadlines[limit] = begun + timeout_s
                return await self._send(request, report_bytes)
        except TimeoutError:
            return Answer(None, f"no answer within {timeout_s:g} s")
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError) as error:
            return Answer(None, without_query(f"request cannot be sent: {error}"), buildable=False, sent=False)
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            if passage.is_barred:
                # A name may resolve to another place later, and is tried again like one that does not resolve; an address
                # stays what it is.
                return Answer(None, passage.verdict(), buildable=not passage.destination.is_address, sent=False)
            return Answer(None, without_query(_told(error)))
        finally:
            self._deadlines.pop(limit, None)
            self.durations.observe(monotonic() - begun)

    def earliest_deadline(self) -> float | None:
        """Of the requests in flight, by `monotonic()`. For another thread: None also if the loop is at work just now."""
        try:
            return min(self._deadlines.values(), default=None)
        except RuntimeError:  # it changed meanwhile, so the loop does not hang
            return None

    async def _send(self, request: httpx.Request, report_bytes: int) -> Answer:
        response = await self._transport.handle_async_request(request)
        is_success = 200 <= response.status_code < 300
        reports = is_success and report_bytes > 0 and "json" in response.headers.get("content-type", "")
        limit = report_bytes if reports else READ_BYTES
        read = b""
        assert isinstance(response.stream, httpx.AsyncByteStream)
        try:
            async for chunk in response.stream:
                read += chunk
                if len(read) >= limit:
                    break
        finally:
            await response.stream.aclose()
        if is_success:
            return Answer(response.status_code, report=read if reports else b"")
        shown = read[:SHOWN_BYTES].decode("utf-8", "replace")
        after = retry_after_s(response.headers.get("retry-after"), datetime.fromtimestamp(wall(), UTC))
        return Answer(response.status_code, f"HTTP {response.status_code} {shown}".rstrip(), after)


def _request(url: httpx.URL, headers: dict[str, str], content: bytes, timeouts: dict[str, float]) -> httpx.Request:
    """A POST without the headers that aiohttp sets anyway. `content=` sets them too, at a tenth of a call's price.

    The encoding of the headers is said, for otherwise each of them is decoded once more to find out.
    """
    stream = httpx.ByteStream(content)
    request = httpx.Request("POST", url, headers=headers, stream=stream, extensions={"timeout": timeouts})
    request.headers.encoding = "ascii"  # httpx takes no others; a ValueError above
    request.read()
    return request


def without_query(text: str) -> str:
    """A text in which URLs stand, without their queries: some services take passwords there."""
    return _QUERY.sub(r"\1?***", text)


def _told(error: Exception) -> str:
    """A failure in words: aiohttp's own, as the names of httpx do not tell a refused connection from one that timed out."""
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
    if isinstance(cause, aiohttp.ClientConnectorError):  # its text leaves out what each of several addresses said
        return f"{type(cause).__name__}: {cause.host}:{cause.port}: {cause.os_error}"
    return f"{type(cause).__name__}: {cause}"
