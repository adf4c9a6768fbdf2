"""The doctor's look into Postgres: what is found, and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import psycopg

from bucketd.cli.checks import Check, fail, ok, skew, warn
from bucketd.cli.output import iso, short
from bucketd.store import doctor, quarantine, tzdata
from bucketd.store.config import Settings
from bucketd.store.connect import POSTGRES_MIN, connect, postgres_errors
from bucketd.store.errors import StoreUnavailable
from bucketd.store.migrate import known
from bucketd.store.operation import drive
from bucketd.store.pooler import Connection
from bucketd.timing import TZDATA_VERSION
from bucketd.timing.zones import release_order

SETTLED_WARN_S = 300  # a healthy node is two to three minutes behind, by design
OVERDUE_COUNTED = 10_000
SPECS_SHOWN = 5


def postgres_checks(settings: Settings) -> Iterator[Check]:
    """Checks in order of dependence; ends at the first that makes the rest pointless."""
    try:
        with postgres_errors(settings):
            connection = connect(settings, application="bucketd doctor")
    except StoreUnavailable as error:
        yield fail("postgres", "cannot be reached", str(error))
        return
    with connection:
        yield from _version_and_schema(connection, settings)


def _role_of_server(connection: Connection) -> Check:
    """Only a primary can be worked on."""
    where = f"{connection.info.host}:{connection.info.port}"
    if not connection.standby:
        return ok("primary", where)
    advice = "name all servers in BUCKETD_DSN, or only the primary; of several the primary is found"
    return fail("primary", f"{where} is a standby", advice)


def _way(connection: Connection) -> Check:
    if connection.prefix is None:
        return ok("pooler", "none between")
    return ok(
        "pooler", "one between, taken to be in transaction mode: nothing is prepared, settings go with each transaction"
    )


def _encryption(connection: Connection) -> Check:
    """A password that is sent to another machine, and all payloads, are for anybody on the way."""
    host = connection.info.host
    if connection.pgconn.ssl_in_use:
        return ok("encryption", "TLS")
    if is_local(host):
        return ok("encryption", "none, on this machine")
    return warn("encryption", f"none on the way to {host}", "add sslmode=verify-full and sslrootcert to BUCKETD_DSN")


def is_local(host: str) -> bool:
    """Whether a host of a DSN is this machine: a socket, or the loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "@"))


def _version_and_schema(connection: Connection, settings: Settings) -> Iterator[Check]:
    number = connection.info.server_version
    shown = f"{number // 10_000}.{number % 10_000}"
    if number < POSTGRES_MIN:
        yield fail("postgres", shown, f"expected {POSTGRES_MIN // 10_000} or newer: upgrade the server")
        return
    yield ok("postgres", shown)
    for look in (_role_of_server, _way, _encryption):
        yield look(connection)
    schema = _schema(connection)
    yield schema
    if schema.advice:
        return
    asked_s = time.time()
    now_s, same = drive(doctor.clock(), connection)
    yield skew("Postgres", now_s, asked_s, time.time())
    if not same:
        yield warn(
            "cluster clock",
            "is shifted against Postgres's own",
            "set bucketd.cluster.clock_offset to 0: only tests set it",
        )
    for check in (_rights, _ownership, _days, _zones, _specs, _settled, _overdue):
        yield check(connection)
    yield _runners(connection, settings)


def _schema(connection: psycopg.Connection[Any]) -> Check:
    ours = known()
    try:
        applied = drive(doctor.migrations(), connection)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return fail("schema", "none", "run `bucketd migrate`")
    except psycopg.errors.InsufficientPrivilege:
        return fail("schema", "not readable by this role", "grant it usage of schema bucketd and all on its tables")
    if beyond := sorted(set(applied) - set(ours)):
        return fail("schema", f"{beyond[-1]} is newer than this code", "upgrade bucketd on this machine")
    if missing := [name for name in ours if name not in applied]:
        return fail("schema", f"lacks {', '.join(missing)}", "run `bucketd migrate`")
    return ok("schema", ours[-1])


def _rights(connection: psycopg.Connection[Any]) -> Check:
    lacking = drive(doctor.closed_tables(), connection)
    if not lacking:
        return ok("rights", "reads and writes every table")
    some = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
    return fail(
        "rights",
        f"may not read and write {some}",
        "grant select, insert, update, delete on all tables in schema bucketd to the role",
    )


def _ownership(connection: psycopg.Connection[Any]) -> Check:
    found = drive(doctor.ownership(), connection)
    if found.member and found.may_create:
        return ok("rights of schedulers", f"{found.role} may make and drop days of runs")
    return warn(
        "rights of schedulers",
        f"{found.role} may not make days of runs, which {found.owner} owns",
        f"schedulers need a role that is a member of {found.owner} and may create in schema bucketd; others do not",
    )


def _days(connection: psycopg.Connection[Any]) -> Check:
    days = drive(doctor.days(), connection)
    advice = "start a scheduler: it makes days ahead each hour; if one runs, its log names what keeps it from it"
    if days.missing:
        return fail("days of runs", f"missing: {', '.join(days.missing[:10])}", advice)
    found = f"there up to {iso(days.through)}"
    if days.ahead_s < 86_400:
        return fail("days of runs", found, advice)
    return warn("days of runs", found, advice) if days.ahead_s < 2 * 86_400 else ok("days of runs", found)


def _zones(connection: psycopg.Connection[Any]) -> Check:
    state = drive(tzdata.state(), connection)
    if state.version is None:
        return ok("tzdata", f"{TZDATA_VERSION} here; the first scheduler stores its own")
    try:
        ours, theirs = release_order(TZDATA_VERSION), release_order(state.version)
    except ValueError as error:
        return fail("tzdata", str(error), "correct tzdata_version in bucketd.cluster")
    found = f"{TZDATA_VERSION} here, {state.version} in the cluster since {iso(state.at)}"
    if ours < theirs:
        return warn("tzdata", found, "a scheduler on this machine refuses to start: upgrade the package tzdata here")
    if ours > theirs:
        return warn("tzdata", found, "see `bucketd tz diff`, then start schedulers with this release everywhere")
    if state.moving_from:
        return warn(
            "tzdata", f"{found}; schedules are being moved from {state.moving_from}", "start a scheduler if none runs"
        )
    return ok("tzdata", found)


def _settled(connection: psycopg.Connection[Any]) -> Check:
    lag_s = drive(doctor.settled_lag_s(), connection)
    if lag_s < SETTLED_WARN_S:
        return ok("settled", f"{short(lag_s)} behind")
    return warn(
        "settled",
        f"{short(lag_s)} behind",
        "start a scheduler; if some run, look for settle and ownership in their logs",
    )


def _overdue(connection: psycopg.Connection[Any]) -> Check:
    count = drive(doctor.overdue(OVERDUE_COUNTED), connection)
    if not count:
        return ok("overdue runs", "none")
    shown = f"{count}{' or more' if count == OVERDUE_COUNTED else ''} wait for over a minute"
    return warn("overdue runs", shown, "start more runners, or look at targets that are slow")


def _specs(connection: psycopg.Connection[Any]) -> Check:
    found = drive(quarantine.failed(SPECS_SHOWN), connection)
    if not found:
        return ok("specs", "all can be computed")
    shown = "; ".join(f"{spec.spec_id}: {spec.error[:80]} ({spec.schedules} schedules)" for spec in found)
    return warn("specs", shown, "mend the rule or upgrade bucketd: their schedules do not fire")


def _runners(connection: psycopg.Connection[Any], settings: Settings) -> Check:
    alive = drive(doctor.runners_alive(settings.runner_dead_after_s), connection)
    return ok("runners", f"{alive} alive") if alive else warn("runners", "none alive", "start one: `bucketd runner`")
