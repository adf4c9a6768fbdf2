"""`bucketd health`: does the scheduler or runner of this machine work? For health checks of containers, which want an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bucketd.cli.exits import UNHEALTHY
from bucketd.cli.options import Json
from bucketd.cli.output import emit, say
from bucketd.cli.session import session

if TYPE_CHECKING:
    from bucketd.store.listen import Listen

TIMEOUT_S = 3.0
HERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # who listens everywhere is asked here


def health(
    context: typer.Context,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask /readyz too: are the stores there, does it believe its leases?")
    ] = False,
    as_json: Json = False,
) -> None:
    """Asks the process that listens on BUCKETD_METRICS_LISTEN on this machine whether its loop turns.

    Code 1 if it says no, or nothing for 3 seconds; 2 if that setting is empty or leaves the port to the system.
    """
    from bucketd.store.errors import ConfigError
    from bucketd.store.listen import Listen

    listen = session(context).given().metrics_listen
    where = Listen.parse(listen) if listen else None
    if where is None or not where.port:
        raise ConfigError(f"expected host:port in BUCKETD_METRICS_LISTEN, got {listen!r}: nobody can be asked")
    healthy, answer = _ask(_address(where), "/readyz" if ready else "/healthz")
    if as_json:
        emit({"healthy": healthy, "answer": answer})
    else:
        say(answer)
    if not healthy:
        raise typer.Exit(UNHEALTHY)


def _address(listen: Listen) -> str:
    return str(listen._replace(host=HERE.get(listen.host, listen.host)))


def _ask(address: str, path: str) -> tuple[bool, str]:
    """Whether it says yes, and what it says. The standard library: this runs each few seconds, and httpx takes 0.1 s to import."""
    import http.client

    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == 200, response.read(10_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"no answer from {address}: {error or type(error).__name__}"
    finally:
        connection.close()
