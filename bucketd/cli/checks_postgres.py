"""The doctor's look into Postgres. Reads only; every statement is short."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bucketd.cli.checks import Check, fail, ok, skew, warn
from bucketd.cli.output import iso, short

if TYPE_CHECKING:
    import psycopg

    from bucketd.store.config import Settings

SETTLED_WARN_S = 300  # a healthy node is two to three minutes behind, by design
OVERDUE_COUNTED = 10_000

_CLOCK = "select extract(epoch from clock_timestamp())::float8, (select clock_offset = '0' from bucketd.cluster)"
_MIGRATIONS = "select name from bucketd.migrations order by name"
_DAYS = """
select c.days_through, extract(epoch from c.days_through - bucketd.bucketd_now())::float8, array(
    select to_char(d, 'YYYY-MM-DD')
    from generate_series(c.days_from at time zone 'UTC', c.days_through at time zone 'UTC' - interval '1 day',
        interval '1 day') d
    where not exists (
        select from pg_catalog.pg_inherits i where i.inhparent = 'bucketd.runs'::regclass
            and i.inhrelid = to_regclass('bucketd.runs_' || to_char(d, 'YYYYMMDD')))
    order by d)
from bucketd.cluster c"""
_RIGHTS = """
select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'bucketd' and c.relkind in ('r', 'p') and not (
    has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
    and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))
order by 1"""
_OWNER = """
select current_user, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'usage'),
    has_schema_privilege('bucketd', 'create')
from pg_catalog.pg_class c where c.oid = 'bucketd.runs'::regclass"""
_RUNNERS = """
select count(*) from bucketd.runners
where dead_at is null and heartbeat_at > bucketd.bucketd_now() - make_interval(secs => %(lease)s::float8)"""
_SETTLED = "select extract(epoch from bucketd.bucketd_now() - min(settled_through))::float8 from bucketd.partitions"
_OVERDUE = """
select count(*) from (
    select from bucketd.runs where not background and wake_at < bucketd.bucketd_now() - interval '60 s'
    limit %(most)s::int) r"""


def postgres_checks(settings: Settings) -> Iterator[Check]:
    """Checks in order of dependence; ends at the first that makes the rest pointless."""
    import psycopg

    from bucketd.store.connect import conninfo, postgres_errors
    from bucketd.store.errors import StoreUnavailable

    try:
        with postgres_errors(settings):
            connection = psycopg.connect(conninfo(settings, application="bucketd doctor"), autocommit=True)
    except StoreUnavailable as error:
        yield fail("postgres", "cannot be reached", str(error))
        return
    with connection:
        yield from _version_and_schema(connection, settings)


def _version_and_schema(connection: psycopg.Connection[Any], settings: Settings) -> Iterator[Check]:
    from bucketd.store.connect import POSTGRES_MIN

    number = connection.info.server_version
    shown = f"{number // 10_000}.{number % 10_000}"
    if number < POSTGRES_MIN:
        yield fail("postgres", shown, f"expected {POSTGRES_MIN // 10_000} or newer: upgrade the server")
        return
    yield ok("postgres", shown)
    schema = _schema(connection)
    yield schema
    if schema.advice:
        return
    asked_s = time.time()
    row = connection.execute(_CLOCK).fetchone()
    assert row is not None
    yield skew("Postgres", row[0], asked_s, time.time())
    if not row[1]:
        yield warn(
            "cluster clock",
            "is shifted against Postgres's own",
            "set bucketd.cluster.clock_offset to 0: only tests set it",
        )
    for check in (_rights, _ownership, _days, _settled, _overdue):
        yield check(connection)
    yield _runners(connection, settings)


def _schema(connection: psycopg.Connection[Any]) -> Check:
    import psycopg

    from bucketd.store.migrate import known

    ours = known()
    try:
        applied = [name for (name,) in connection.execute(_MIGRATIONS.encode())]
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
    lacking = [name for (name,) in connection.execute(_RIGHTS.encode())]
    if not lacking:
        return ok("rights", "reads and writes every table")
    some = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
    return fail(
        "rights",
        f"may not read and write {some}",
        "grant select, insert, update, delete on all tables in schema bucketd to the role",
    )


def _ownership(connection: psycopg.Connection[Any]) -> Check:
    row = connection.execute(_OWNER.encode()).fetchone()
    assert row is not None
    role, owner, member, may_create = row
    if member and may_create:
        return ok("rights of schedulers", f"{role} may make and drop days of runs")
    return warn(
        "rights of schedulers",
        f"{role} may not make days of runs, which {owner} owns",
        f"schedulers need a role that is a member of {owner} and may create in schema bucketd; others do not",
    )


def _days(connection: psycopg.Connection[Any]) -> Check:
    row = connection.execute(_DAYS.encode()).fetchone()
    assert row is not None
    through, ahead_s, missing = row
    advice = "start a scheduler: it makes days ahead each hour; if one runs, its log names what keeps it from it"
    if missing:
        return fail("days of runs", f"missing: {', '.join(missing[:10])}", advice)
    found = f"there up to {iso(through)}"
    if ahead_s < 86_400:
        return fail("days of runs", found, advice)
    return warn("days of runs", found, advice) if ahead_s < 2 * 86_400 else ok("days of runs", found)


def _settled(connection: psycopg.Connection[Any]) -> Check:
    lag_s = _number(connection, _SETTLED)
    if lag_s < SETTLED_WARN_S:
        return ok("settled", f"{short(lag_s)} behind")
    return warn(
        "settled",
        f"{short(lag_s)} behind",
        "start a scheduler; if some run, look for settle and ownership in their logs",
    )


def _overdue(connection: psycopg.Connection[Any]) -> Check:
    count = int(_number(connection, _OVERDUE, most=OVERDUE_COUNTED))
    if not count:
        return ok("overdue runs", "none")
    shown = f"{count}{' or more' if count == OVERDUE_COUNTED else ''} wait for over a minute"
    return warn("overdue runs", shown, "start more runners, or look at targets that are slow")


def _runners(connection: psycopg.Connection[Any], settings: Settings) -> Check:
    alive = int(_number(connection, _RUNNERS, lease=settings.runner_dead_after_s))
    return ok("runners", f"{alive} alive") if alive else warn("runners", "none alive", "start one: `bucketd runner`")


def _number(connection: psycopg.Connection[Any], statement: str, **params: Any) -> float:
    row = connection.execute(statement.encode(), params).fetchone()
    assert row is not None
    return float(row[0] or 0)
