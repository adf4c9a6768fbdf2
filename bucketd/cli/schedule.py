"""`bucketd schedule ..`: one schedule at a time; many at once go through `apply`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bucketd.cli import options
from bucketd.cli.output import clean, emit, emit_lines, iso, note, pairs, say, table
from bucketd.cli.session import session
from bucketd.cli.shapes import schedule_row, schedule_shown, timing_from, timing_text, zone_of

if TYPE_CHECKING:
    from bucketd.client.inputs import Misfire, Overlap

group = typer.Typer(no_args_is_help=True, help="What is to be called, and when; (tenant, name) is the identity.")


@group.command()
def put(
    context: typer.Context,
    name: options.Name,
    target: Annotated[str, typer.Option("--target", help="Name of the target.", show_default=False)],
    cron: Annotated[
        str | None, typer.Option(help="Five fields, e.g. '*/5 * * * *', or a macro such as @daily.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="Elapsed time between occurrences: 90s, 15m, 1h30m.")] = None,
    at: Annotated[str | None, typer.Option(help=f"Once: {options.INSTANT}.")] = None,
    tz: Annotated[str | None, typer.Option(help="IANA zone of --cron, and of excluded dates; UTC if absent.")] = None,
    gap: Annotated[str, typer.Option(help="Wall times that do not exist: auto, run_after, skip, shift.")] = "auto",
    fold: Annotated[str, typer.Option(help="Wall times that exist twice: auto, first, second, both.")] = "auto",
    phase: Annotated[
        str | None, typer.Option(help="Offset of --every from the epoch; absent: from the schedule's id.")
    ] = None,
    payload: Annotated[str | None, typer.Option(help="JSON, or @FILE; at most 64 KiB.", show_default=False)] = None,
    tenant: options.Tenant = "default",
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Again for more.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help="Deadline of a run, 24h at most; one call never lasts over 30m.")
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(help="Attempts of a run before it is dead; absent: the target's, as with the next two."),
    ] = None,
    retry_base: Annotated[
        str | None, typer.Option(help="The n-th retry waits random(0, base x 2^n) ..", show_default=False)
    ] = None,
    retry_cap: Annotated[str | None, typer.Option(help=".. and never longer than this.", show_default=False)] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            help="An occurrence while an earlier run goes on: skip, queue_one, queue_all, cancel_running, allow."
            " Absent: skip; of --at: allow.",
            show_default=False,
        ),
    ] = None,
    misfire: Annotated[
        str, typer.Option(help="Occurrences missed by over the threshold: run_once, skip, catch_up.")
    ] = "run_once",
    misfire_threshold: Annotated[str, typer.Option(help="How late is a misfire.")] = "60s",
    deadline: Annotated[str | None, typer.Option(help="A run that is later than this is not started.")] = None,
    catch_up_window: Annotated[str, typer.Option(help="How far back catch_up goes; 7d at most.")] = "1d",
    catch_up_cap: Annotated[int, typer.Option(help="How many runs catch_up makes; 10000 at most.")] = 1_000,
    jitter: Annotated[
        str | None, typer.Option(help="Up to this later, the same for each occurrence; 1h at most.")
    ] = None,
    starts_at: Annotated[str | None, typer.Option(metavar="INSTANT", help="No occurrence before.")] = None,
    ends_at: Annotated[str | None, typer.Option(metavar="INSTANT", help="No occurrence from here on.")] = None,
    max_runs: Annotated[int | None, typer.Option(help="So many occurrences from now on, then none.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="DATE", help="No occurrence on that date, 2026-12-25. Again for more.")
    ] = None,
    calendar: Annotated[
        list[str] | None, typer.Option(help="Name of a calendar whose dates are excluded. Again for more.")
    ] = None,
    if_revision: options.IfRevision = None,
    paused: Annotated[
        bool | None, typer.Option("--paused/--active", help="Absent: as it is; a new one is active.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Creates the schedule, or makes it exactly this: options that are absent go back to their defaults (but for the
    pause).

    Give exactly one of --cron, --every and --at. A put that changes nothing writes nothing.
    """
    timing = timing_from(cron=cron, every=every, at=at, tz=tz, gap=gap, fold=fold, phase=phase)
    with session(context).client() as client:
        stored = client.schedules.put(
            name,
            timing,
            target=target,
            payload=options.payload(payload),
            tenant=tenant,
            labels=options.labels(label) or {},
            timeout_s=options.maybe_seconds(timeout, "timeout"),
            max_attempts=max_attempts,
            retry_base_s=options.maybe_fraction(retry_base, "retry_base"),
            retry_cap_s=options.maybe_fraction(retry_cap, "retry_cap"),
            overlap=cast("Overlap | None", overlap),  # the client knows the words, and says them
            misfire=cast("Misfire", misfire),
            misfire_threshold_s=options.seconds(misfire_threshold, "misfire_threshold"),
            deadline_s=options.maybe_seconds(deadline, "deadline"),
            jitter_s=options.maybe_seconds(jitter, "jitter") or 0,
            starts_at=options.maybe_instant(starts_at, "starts_at"),
            ends_at=options.maybe_instant(ends_at, "ends_at"),
            paused=paused,
            catch_up_window_s=options.seconds(catch_up_window, "catch_up_window"),
            catch_up_cap=catch_up_cap,
            max_runs=max_runs,
            exclude=options.dates(exclude, "exclude"),
            calendars=calendar or (),
            if_revision=if_revision,
        )
        coming = [] if stored.paused else client.schedules.next(name, 1, tenant=tenant)
    for warning in stored.warnings:
        note(f"warning: {clean(warning)}", "yellow")
    done = "created" if stored.created else "changed" if stored.changed else "unchanged"
    if as_json:
        emit(schedule_shown(stored) | {"result": done, "next_at": coming[0] if coming else None})
        return
    after = "paused" if stored.paused else f"next at {iso(coming[0])}" if coming else "no occurrence left"
    say(f"{done}: {tenant}/{name} {timing_text(stored)} -> {target}; {after}")


@group.command("list")
def list_(
    context: typer.Context,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    label: options.AnyLabel = None,
    prefix: Annotated[str | None, typer.Option(help="Only names that begin so.", show_default=False)] = None,
    paused: Annotated[bool | None, typer.Option("--paused/--active", help="Only paused ones, or only others.")] = None,
    limit: options.Limit = 100,
    as_json: options.Json = False,
) -> None:
    """Lists schedules by tenant and name."""
    from bucketd.cli.pages import items

    wanted = {"tenant": tenant, "target": target, "labels": options.labels(label), "paused": paused, "prefix": prefix}
    with session(context).client() as client:
        found = items(client.schedules.list, limit + 1, **wanted)
        listed = list(found)
    if as_json:
        emit_lines(map(schedule_shown, listed[:limit]))
        return
    columns = ("tenant", "name", "timing", "target", "state", "labels")
    table(columns, map(schedule_row, listed[:limit]), empty="no such schedule")
    if len(listed) > limit:
        note(f"there are more than {limit}; see --limit")


@group.command()
def show(
    context: typer.Context, name: options.Name, tenant: options.Tenant = "default", as_json: options.Json = False
) -> None:
    """Shows one schedule, and its next occurrences."""
    with session(context).client() as client:
        found = client.schedules.get(name, tenant=tenant)
        coming = [] if found.paused else client.schedules.next(name, 3, tenant=tenant)
    shown: dict[str, Any] = schedule_shown(found) | {"next": [iso(at) for at in coming]}
    if as_json:
        emit(shown)
    else:
        pairs(shown)


@group.command("next")
def next_(
    context: typer.Context,
    name: options.Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000, help="So many.")] = 5,
    tenant: options.Tenant = "default",
    as_json: options.Json = False,
) -> None:
    """The next occurrences, in UTC and in the schedule's own zone. Code 0 also if there is none left."""
    with session(context).client() as client:
        found = client.schedules.get(name, tenant=tenant)
        coming = client.schedules.next(name, count, tenant=tenant)
    zone = zone_of(found)
    rows = [(iso(at), local(at, zone)) for at in coming]
    if as_json:
        emit_lines({"at": at, "local": own, "tz": zone} for at, own in rows)
        return
    table(("UTC", zone), rows, empty="no occurrence left")
    if found.paused:
        note("it is paused: none of these runs before `bucketd schedule resume`", "yellow")


def local(at: datetime, zone_name: str) -> str:
    """The wall clock there, with its offset: `Mon 2026-11-30 10:00:00+01:00`."""
    from bucketd.timing.zones import zone

    return at.astimezone(zone(zone_name)).strftime("%a ") + at.astimezone(zone(zone_name)).isoformat(sep=" ")
