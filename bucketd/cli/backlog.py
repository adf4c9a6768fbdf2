"""`bucketd backlog`: what waits before it is drained, and dropping what nobody needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import cell, emit, iso, note, plain, say, short, table
from bucketd.cli.progress import bar
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.client import Backlog, Dropped
    from bucketd.store.config import Settings

group = typer.Typer(invoke_without_command=True)

KINDS = ("held", "deferred", "background", "retrying")
OfTarget = Annotated[str | None, typer.Option("--target", help="Only runs of this target.", show_default=False)]


@group.callback()
def backlog(
    context: typer.Context,
    by: Annotated[
        str, typer.Option("--by", metavar="KIND", help="Count by `target` (and tenant), or by `label=KEY`.")
    ] = "target",
    tenant: options.AnyTenant = None,
    target: OfTarget = None,
    label: options.AnyLabel = None,
    top: Annotated[int, typer.Option("--top", min=1, max=10_000, help="List so many groups, the largest.")] = 20,
    bound: Annotated[int, typer.Option("--bound", min=1, max=100_000_000, help="Count no further.")] = 1_000_000,
    as_json: options.Json = False,
) -> None:
    """Shows what waits: held runs, live ones that are due, background ones (catch-up, backfill), and retries.

    And what will come to it: of open backfills and of windows that nobody watched, so many runs at most; and the fires in Redis.
    `bucketd backlog drop` drops runs.
    """
    if context.invoked_subcommand is not None:
        if by != "target" or label or tenant is not None or target is not None or as_json:
            raise InvalidInput(
                f"expected options behind {context.invoked_subcommand}, got some before it; nothing was changed"
            )
        return
    wanted: dict[str, Any] = {"by": by, "tenant": tenant, "target": target, "labels": options.labels(label)}
    with session(context).client() as client, bar("days counted") as report:
        found = client.backlog.show(**wanted, top=top, bound=bound, progress=report)
    queued = _queued(session(context).settings())
    if as_json:
        values = plain(found)
        assert isinstance(values, dict)
        emit({**values, "queued": queued})
    else:
        _draw(found, by, queued)


@group.command()
def drop(
    context: typer.Context,
    tenant: options.AnyTenant = None,
    target: OfTarget = None,
    label: options.AnyLabel = None,
    everything: Annotated[bool, typer.Option("--all", help="Of everybody.")] = False,
    kind: Annotated[
        list[str] | None, typer.Option(help=f"Only {', '.join(KINDS)}; again for more.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help=f"Only scheduled before: {options.INSTANT}.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Cancels runs that wait; none that a runner has. This cannot be undone. Counts first, and asks unless --yes.

    Choose by --tenant, --target, --label, or --all. Backfills that lie wholly in what is chosen end too. Windows that nobody watched
    are not dropped: they must be judged first; what comes of them can be dropped then.
    """
    chosen: dict[str, Any] = {"tenant": tenant, "target": target, "labels": options.labels(label), "all": everything}
    if everything == any(chosen[name] is not None for name in ("tenant", "target", "labels")):
        raise InvalidInput("expected either --all, or some of --tenant, --target and --label to say what to drop")
    chosen |= {"kind": kind or None, "before": options.maybe_instant(before, "before")}
    with session(context).client() as client:
        total = None
        if dry_run or not yes:
            with bar("runs counted") as report:
                found = client.backlog.drop(**chosen, dry_run=True, progress=lambda done: report(done, None))
            total = found.runs
        if not dry_run and (yes or total or found.backfills):
            if not yes:
                options.confirmed(f"Drop {_counted(found)}?", yes)
            with bar("runs dropped") as report:
                found = client.backlog.drop(**chosen, progress=lambda done: report(done, total))
    if as_json:
        emit(found)
    else:
        say(f"{'would drop' if dry_run else 'dropped'}: {_counted(found)}")


def _counted(found: Dropped) -> str:
    """Counts in words."""
    kinds = ", ".join(f"{kind} {count:,}" for kind in KINDS if (count := getattr(found, kind)))
    runs = f"{found.runs:,} run{'' if found.runs == 1 else 's'}{f' ({kinds})' if kinds else ''}"
    return runs + (f" and backfill {', '.join(map(str, found.backfills))}" if found.backfills else "")


def _draw(found: Backlog, by: str, queued: int | None) -> None:
    names = ("tenant", "target") if by == "target" else (by.removeprefix("label="),)
    rows = [
        (
            *((group.tenant, group.target) if by == "target" else (group.label,)),
            *(f"{getattr(group, kind):,}" for kind in KINDS),
            group.oldest,
        )
        for group in found.groups
    ]
    table((*names, *(f">{kind}" for kind in KINDS), "oldest"), rows, empty="nothing waits")
    if found.groups_left:
        note(f"and {found.groups_left:,} smaller groups; see --top")
    if found.total.oldest is not None:
        age = short((found.now - found.total.oldest).total_seconds())
        say(f"{'at least ' if found.more else ''}{found.total.runs:,} runs wait; the oldest since {age}")
    for one in found.backfills:
        of = {"name": one.name, "tenant": one.tenant, "target": one.target, "labels": one.labels}
        shown = cell({key: value for key, value in of.items() if value})
        say(
            f"backfill {one.id} ({'all' if shown == '-' else shown}, {iso(one.from_at)} to {iso(one.until_at)}):"
            f" {one.runs_created:,} runs written, at most {one.at_most:,} to come"
        )
    if found.owed:
        say(
            f"{found.owed.windows:,} windows that nobody watched ({iso(found.owed.from_at)} to {iso(found.owed.until_at)})"
            f" are still to be judged: at most {found.owed.at_most:,} runs to come"
        )
    if found.partial:
        note("not all schedules were looked at for what is to come: there may be more of it")
    if queued:
        say(f"{queued:,} fires in the queues")


def _queued(settings: Settings) -> int | None:
    """Fires in Redis; None if it is not configured or does not answer: it is the lesser half of the picture."""
    from bucketd.store import depth
    from bucketd.store.keys import Keys
    from bucketd.store.redis_sync import UNAVAILABLE, make_sync_redis

    if not settings.redis_url.get_secret_value():
        return None
    try:
        with make_sync_redis(settings) as redis:
            return depth.fires(redis, Keys(settings.redis_prefix))
    except UNAVAILABLE:
        return None
