"""The HTTP endpoint of a process for whoever watches it: /metrics, /healthz, /readyz.

It lives in the process's own event loop, on purpose. A loop that hangs answers no probe, which is what /healthz is asked for; a thread
would go on saying that all is well. And figures are read between two steps of the data path, without a lock. What that costs the data
path is one rendering a scrape, a few milliseconds each quarter of a minute. Nothing here asks a store: a scrape or a probe shows what
the process knows, so neither can pile up on a store that is slow.

Nothing is served but figures, names of targets whose breaker is open, and yes or no. There is no login: bind it to a private address.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from bucketd.store.errors import ConfigError
from bucketd.store.exposition import Exposition, Sample
from bucketd.store.listen import Listen
from bucketd.store.log import event
from bucketd.store.metrics import Definition

if TYPE_CHECKING:
    from aiohttp import web

STOP_S = 1.0  # for scrapes under way when the process ends


class Watched(NamedTuple):
    """What a process shows: its kind, its metrics, what they are now, and what /readyz looks at (all true: ready)."""

    role: str
    definitions: Sequence[Definition]
    read: Callable[[], Iterable[Sample]]
    checks: Callable[[], Mapping[str, bool]]


@asynccontextmanager
async def serving(listen: str, watched: Watched) -> AsyncIterator[Listen | None]:
    """Serves for the time of the block; gives where. Nothing with an empty `listen`. Raises ConfigError if it cannot listen there."""
    if not listen:
        yield None
        return
    from aiohttp import web  # a node that does not listen is spared 0.3 s at its start, and 12 MB

    runner = web.AppRunner(_application(watched), access_log=None, handle_signals=False, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        address = await _listen(runner, Listen.parse(listen))
        event("metrics_listening", address=address)
        yield address
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, wanted: Listen) -> Listen:
    from aiohttp import web

    try:
        await web.TCPSite(runner, wanted.host or None, wanted.port).start()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {wanted}: {error.strerror or error}; change BUCKETD_METRICS_LISTEN (port 0 takes a free one)"
        ) from error
    return wanted._replace(port=int(runner.addresses[0][1]))


def _application(watched: Watched) -> web.Application:
    from aiohttp import web
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(Exposition(watched.definitions, lambda: _all(watched)))
    ProcessCollector(registry=registry)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encode(registry), headers={"content-type": content_type})

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        checks = dict(watched.checks())
        body = json.dumps({"ready": all(checks.values()), "checks": checks})
        return web.Response(
            text=body + "\n", status=200 if all(checks.values()) else 503, content_type="application/json"
        )

    application = web.Application(client_max_size=1024)
    application.add_routes([web.get("/metrics", metrics), web.get("/healthz", health), web.get("/readyz", ready)])
    return application


def _all(watched: Watched) -> Iterator[Sample]:
    yield Sample("bucketd_build_info", 1, (version("bucketd"), watched.role))
    yield Sample("bucketd_ready", float(all(watched.checks().values())))
    yield from watched.read()
