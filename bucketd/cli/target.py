"""`bucketd target ..`: the endpoints that schedules call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bucketd.cli import options, target_secret
from bucketd.cli.exits import UNHEALTHY
from bucketd.cli.output import emit, emit_lines, pairs, plain, say, short, table
from bucketd.cli.pages import items
from bucketd.cli.session import session

if TYPE_CHECKING:
    from bucketd.client.target_inputs import Body

group = typer.Typer(no_args_is_help=True, help="HTTP endpoints that schedules call; many schedules share one.")

group.add_typer(target_secret.group, name="secret")

TargetName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the target.", show_default=False)]


@group.command()
def put(
    context: typer.Context,
    name: TargetName,
    url: Annotated[str, typer.Argument(metavar="URL", help="http:// or https:// URL.", show_default=False)],
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Sent with each call; again for more."),
    ] = None,
    connect_timeout: Annotated[float, typer.Option(help="Seconds to connect, 60 at most.")] = 5,
    timeout: Annotated[str, typer.Option(help="For a whole call: 30, 90s, 10m; 30m at most.")] = "30",
    max_attempts: Annotated[int, typer.Option(help="Attempts of a run before it is dead.")] = 5,
    retry_base: Annotated[str, typer.Option(help="The n-th retry waits random(0, base x 2^n): 0.5, 10, 2m ..")] = "10",
    retry_cap: Annotated[str, typer.Option(help=".. and never longer than this.")] = "1h",
    batch_max: Annotated[int, typer.Option(help="Over 1: one request carries an array of up to so many runs.")] = 1,
    batch_linger_ms: Annotated[int, typer.Option(help="How long a batch waits for more runs, milliseconds.")] = 0,
    batch_by_tenant: Annotated[
        bool, typer.Option("--batch-by-tenant", help="A batch has runs of one tenant only.")
    ] = False,
    body: Annotated[
        str, typer.Option(help="envelope: JSON with the run and its payload; raw: the payload alone, as stored.")
    ] = "envelope",
    max_running: Annotated[
        int | None,
        typer.Option(help="So many runs at once, in the whole cluster; what is over waits.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="So many calls a second, in the whole cluster.", show_default=False)
    ] = None,
    complete_within: Annotated[
        str | None,
        typer.Option(
            help="A 202 means that the target reports the end itself, within this; 7d at most.", show_default=False
        ),
    ] = None,
    dead_hook: Annotated[
        str | None, typer.Option(metavar="URL", help="Gets a call for each run that dies.", show_default=False)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Creates the target, or makes it exactly this: options that are absent go back to their defaults."""
    with session(context).client() as client:
        stored = client.targets.put(
            name,
            url,
            headers=options.headers(header),
            connect_timeout_s=connect_timeout,
            timeout_s=options.seconds(timeout, "timeout"),
            max_attempts=max_attempts,
            retry_base_s=options.fraction(retry_base, "retry_base"),
            retry_cap_s=options.fraction(retry_cap, "retry_cap"),
            batch_max=batch_max,
            batch_linger_ms=batch_linger_ms,
            batch_by_tenant=batch_by_tenant,
            body=cast("Body", body),  # the client knows the words, and says them
            max_running=max_running,
            rate_per_s=rate,
            complete_within_s=options.maybe_seconds(complete_within, "complete_within"),
            dead_hook_url=dead_hook,
        )
    if as_json:
        emit(_shown(stored))
    else:
        say(
            f"{'created' if stored.created else 'changed' if stored.changed else 'unchanged'}: {stored.name} calls {stored.url}"
        )


@group.command("list")
def list_(context: typer.Context, as_json: options.Json = False) -> None:
    """Lists all targets."""
    with session(context).client() as client:
        found = list(items(client.targets.list))
    if as_json:
        emit_lines(map(_shown, found))
        return
    columns = ("name", "url", ">timeout", ">attempts", ">batch", ">max running", ">rate/s")
    rows = (
        (t.name, t.url, short(t.timeout_s), t.max_attempts, t.batch_max, t.max_running, t.rate_per_s) for t in found
    )
    table(columns, rows, empty="no targets; make one with `bucketd target put NAME URL`")


@group.command()
def show(context: typer.Context, name: TargetName, as_json: options.Json = False) -> None:
    """Shows one target. Values of headers are blanked: they often hold a credential."""
    with session(context).client() as client:
        found = _shown(client.targets.get(name))
    if as_json:
        emit(found)
    else:
        pairs(found)


@group.command("test")
def call_once(
    context: typer.Context,
    name: TargetName,
    payload: Annotated[
        str | None, typer.Option(help="JSON, or @FILE, sent as the payload.", show_default=False)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Sends the target one call as a run of the schedule `bucketd-test` would be sent, and says what came back.

    No run is written and nothing is repeated. Code 0: a 2xx; 1: any other answer, or none.
    """
    from bucketd.cli.probe import keys_of, probe

    body = options.payload(payload)
    with session(context).client() as client:
        found = client.targets.get(name)
    result = probe(found, body, keys_of(found, session(context).settings()) if found.signed else ())
    if as_json:
        emit(result)
    else:
        answer = f"answered {result.status}" if result.status is not None else f"did not answer: {result.error}"
        verdict = "ok" if result.ok else "fail"
        say(
            f"{verdict}: {found.name} at {found.url} {answer} after {result.latency_ms:.0f} ms",
            "green" if result.ok else "bold red",
        )
        if result.advice:
            say(result.advice)
    if not result.ok:
        raise typer.Exit(UNHEALTHY)


def _shown(target: Any) -> dict[str, Any]:
    values = plain(target)
    assert isinstance(values, dict)
    return {**values, "headers": dict.fromkeys(target.headers, "***")}
