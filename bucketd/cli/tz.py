"""`bucketd tz ..`: which time zone data the cluster computes with, and what those of this machine would move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import cell, emit, iso, note, pairs, say, table
from bucketd.cli.progress import bar, working
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    import psycopg

    from bucketd.cli.zone_moves import Changed, MovedSchedule, ZoneChange

group = typer.Typer(no_args_is_help=True, help="Time zone data: what the cluster has, and what an upgrade would move.")

COUNTED = 10_000
AHEAD_DAYS = 400
SHOWN = 20
PERIODS_SHOWN = 6  # of a zone on the screen; --json has all


@group.command()
def status(
    context: typer.Context,
    top: Annotated[
        int, typer.Option("--top", min=1, max=600, help="List so many zones, those of most schedules.")
    ] = 20,
    as_json: options.Json = False,
) -> None:
    """Shows the release of tzdata here and in the cluster, and the zones that schedules use.

    A node with an older release than the cluster's refuses to compute; the first one with a newer release moves the cluster. How old a
    release is cannot be told offline: its name has the year and a letter, a new one comes some four to eight times a year. Counts
    of schedules stop at 10,000.
    """
    from bucketd.cli.zone_moves import is_same
    from bucketd.store import tzdata
    from bucketd.store.operation import drive
    from bucketd.timing import TZDATA_VERSION

    with _connected(context) as connection, working("reading"):
        state = drive(tzdata.state(), connection)
        used = drive(tzdata.used(), connection)
        counts = drive(tzdata.counts(list(used), COUNTED), connection)
    standing = _standing(TZDATA_VERSION, state.version)
    zones = [
        {"zone": name, "schedules": counts[name], "stored": data is not None, "same_here": is_same(name, data)}
        for name, data in sorted(used.items(), key=lambda item: (-counts[item[0]], item[0]))
    ]
    figures = {
        "here": TZDATA_VERSION,
        "cluster": state.version,
        "since": state.at,
        "moving_from": state.moving_from,
        "standing": standing,
    }
    if as_json:
        emit({**figures, "zones": zones})
        return
    pairs({**figures, "standing": f"{standing}: {_ADVICE[standing]}"})
    rows = [
        (zone["zone"], _count(counts[str(zone["zone"])]), _sameness(zone["stored"], zone["same_here"]))
        for zone in zones[:top]
    ]
    table(("zone", ">schedules", "data here"), rows, empty="no schedule names a zone")
    if len(zones) > top:
        note(f"there are {len(zones)} zones; see --top")


@group.command()
def diff(
    context: typer.Context,
    zone: Annotated[str | None, typer.Option("--zone", help="Only this zone.", show_default=False)] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="INSTANT", help="Look so far ahead; 400 days if absent.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Shows what the cluster's change to this machine's tzdata would move: the clocks of which zones, and which schedules.

    Run it from a machine with the new release before any node has it. Nothing is changed. Schedules are listed with their first fire
    that moves; those of equal data, and of zones that show the same times from now on, do not move.
    """
    from bucketd.cli.zone_moves import changes
    from bucketd.store import tzdata
    from bucketd.store.operation import drive
    from bucketd.timing import TZDATA_VERSION
    from bucketd.timing import zone as zone_of

    if zone is not None:
        zone_of(zone)  # raises for what is none
    with _connected(context) as connection, bar("looking for what moves") as report:
        state = drive(tzdata.state(), connection)
        now = datetime.fromtimestamp(int(state.now_s), UTC)
        end = options.instant(until, "until", now) if until else now + timedelta(days=AHEAD_DAYS)
        if not now < end <= now + timedelta(days=100 * 366):
            raise InvalidInput(f"until: expected an instant of the next 100 years, got {iso(end)}", field="until")
        bounds = int(now.timestamp()), int(end.timestamp())
        found = list(changes(connection, zone, *bounds, SHOWN, report))
    first = sorted((one for change in found for one in change.first), key=_first_at)[:SHOWN]
    count = sum(change.schedules for change in found)
    if as_json:
        emit(
            {
                "here": TZDATA_VERSION,
                "cluster": state.version,
                "until": end,
                "zones": [_document(change) for change in found],
                "schedules": count,
                "first": first,
            }
        )
        return
    say(f"tzdata {cell(state.version)} in the cluster, {TZDATA_VERSION} here; up to {iso(end)}")
    _draw(found)
    rows = ((f"{one.tenant}/{one.name}", one.zone, one.old, one.new) for one in first)
    table(("schedule", "zone", "fires by the cluster's", "by this machine's"), rows, empty="no schedule moves")
    if count > len(first):
        note(f"{count:,} schedules move; these are the first {len(first)}")


@contextmanager
def _connected(context: typer.Context) -> Iterator[psycopg.Connection[Any]]:
    """A connection of its own, on which reading a million schedules may take its time. Raises StoreUnavailable, SchemaError."""
    import psycopg

    from bucketd.store.connect import connect, postgres_errors
    from bucketd.store.errors import SchemaError

    settings = session(context).settings()
    with postgres_errors(settings):
        connection = connect(settings.model_copy(update={"statement_timeout_s": 60}), application="bucketd tz")
    with connection:
        try:
            yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName):
            raise SchemaError(
                "expected the schema of this version, got a database without it; run `bucketd migrate`"
            ) from None


def _standing(here: str, cluster: str | None) -> str:
    from bucketd.store.errors import SchemaError
    from bucketd.timing.zones import release_order

    if cluster is None:
        return "unset"
    if here == cluster:
        return "equal"
    try:
        return "newer here" if release_order(here) > release_order(cluster) else "older here"
    except ValueError as error:
        raise SchemaError(f"{error} in tzdata_version of bucketd.cluster; correct it") from None


_ADVICE = {
    "unset": "the first scheduler that starts stores its release",
    "equal": "this machine computes what the cluster computes",
    "newer here": "a scheduler with this release moves the cluster; see `bucketd tz diff`",
    "older here": "a scheduler on this machine refuses to start; upgrade the package tzdata here",
}


def _sameness(stored: object, same: object) -> str:
    return "the same" if same else "others" if stored else "not stored yet"


def _count(count: int) -> str:
    return f"{count:,}+" if count >= COUNTED else f"{count:,}"


def _first_at(one: MovedSchedule) -> tuple[datetime, str, str]:
    return min(at for at in (one.old, one.new) if at is not None), one.tenant, one.name


def _draw(found: list[ZoneChange]) -> None:
    rows: list[tuple[object, ...]] = []
    for change in found:
        if not change.periods:
            rows.append((change.zone, "", "", "", _STATES.get(change.state, change.state)))
        for period in change.periods[:PERIODS_SHOWN]:
            rows.append((change.zone, period.since, period.until or "further", *_locals(period)))
        if len(change.periods) > PERIODS_SHOWN:
            rows.append((change.zone, "", "", "", f"and {len(change.periods) - PERIODS_SHOWN} more"))
    table(
        ("zone", "from", "until", "clocks by the cluster's", "by this machine's"),
        rows,
        empty="nothing: the data of all zones that schedules name are the same",
    )


_STATES = {"same": "the same from now on"}


def _locals(period: Changed) -> tuple[str, str]:
    """The first local time of a period, by the old and by the new data, each with its offset."""
    shown = []
    for offset_s in (period.old_offset_s, period.new_offset_s):
        sign, length = ("-" if offset_s < 0 else "+"), abs(offset_s)
        clock = (period.since + timedelta(seconds=offset_s)).strftime("%Y-%m-%d %H:%M")
        shown.append(f"{clock} {sign}{length // 3600:02d}:{length % 3600 // 60:02d}")
    return shown[0], shown[1]


def _document(change: ZoneChange) -> dict[str, Any]:
    periods = []
    for period in change.periods:
        old, new = _locals(period)
        periods.append(
            {
                "from": period.since,
                "until": period.until,
                "old_offset_s": period.old_offset_s,
                "new_offset_s": period.new_offset_s,
                "old_local": old,
                "new_local": new,
            }
        )
    return {"zone": change.zone, "state": change.state, "schedules": change.schedules, "periods": periods}
