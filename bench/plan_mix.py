"""What the bench of planning fills Postgres with, and how many fires each minute of it must give, by arithmetic of its own.

A mix as tenants make it: most specs are crons of many zones that fire every second or third minute and are shared by few
schedules; most schedules are intervals, daily crons and one-shots, spread over the day.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import combinations, product
from typing import Any

import psycopg

from bench.load import ZONES
from bucketd.timing import AtSpec, EverySpec, parse_cron, zone
from bucketd.timing.zones import zone_names

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
AT_DAYS = 30  # one-shots lie in so many days from the start
EVERY_S = (300, DAY_S)
JITTERS_S = (60, 300, 3_600)
# Shares of the specs, and of the schedules; one-shots have the rest, and one spec.
SPECS = {"busy": 0.84, "hourly": 0.08, "daily": 0.06, "jittered": 0.01, "every": 0.01}
SCHEDULES = {"busy": 0.0252, "hourly": 0.016, "daily": 0.18, "jittered": 0.03, "every": 0.25}
WEEKS = [",".join(map(str, days)) for n in (6, 7) for days in combinations(range(7), n)]
ZONES_MORE = 480  # beside those of the other bench, all of which have whole hours
DRAWS = 10  # for each cron, until it is one that was not drawn yet
POLICIES = list(product(("run_after", "skip", "shift"), ("first", "second", "both")))

_INDEXES = """
select format('drop index bucketd.%I', indexrelid::regclass::name), pg_get_indexdef(indexrelid) from pg_index i
where indrelid = 'bucketd.schedules'::regclass and not exists (select from pg_constraint c where c.conindid = i.indexrelid)"""
_CONSTRAINTS = """
select format('alter table %s drop constraint %I', conrelid::regclass, conname),
    format('alter table %s add constraint %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
where contype in ('p', 'u') and conrelid = 'bucketd.schedules'::regclass or contype = 'f'
    and 'bucketd.schedules'::regclass in (conrelid, confrelid) and conparentid = 0
order by contype <> 'f'"""
_FILL = """
insert into bucketd.schedules (id, tenant, name, spec_id, phase, jitter_s, target_id, jitter_offset_s, due_phase, timing_from, floor,
    change_xid, timing_xid, created_at, updated_at)
select id, tenant, name, spec_id, phase, jitter_s, target_id, jitter_offset_s, phase + jitter_offset_s, now, now,
    pg_current_xact_id(), pg_current_xact_id(), now, now
from (
    select r.*, ('x' || substr(md5(r.id::text), 1, 8))::bit(32)::bigint %% (r.jitter_s + 1) as jitter_offset_s from (
        select gen_random_uuid() as id, 'tenant-' || n %% 50 as tenant, m.spec_id || '/' || n as name, m.spec_id, m.jitter_s,
            case kind when 'every' then floor(random() * every_s)::bigint
                when 'at' then %(start_s)s::bigint + floor(random() * %(at_s)s::bigint)::bigint else 0 end as phase
        from bench_mix m cross join generate_series(1, m.schedules) n offset 0
    ) r offset 0
) s, (select target_id, now() - interval '1 day' as now from bucketd.targets) t"""
# Schedules due in [start, start + 60): the crons by the ids that were found due, the others by their own rule.
_DUE = """
select count(*) from bucketd.schedules s join bench_mix m using (spec_id)
where case m.kind when 'every' then mod(mod(s.due_phase - %(start_s)s, m.every_s) + m.every_s, m.every_s) < 60
    when 'at' then s.due_phase >= %(start_s)s and s.due_phase < %(start_s)s + 60
    when 'jittered' then mod(m.minute * 60 + s.jitter_offset_s - %(start_s)s %% 3600 + 7200, 3600) < 60
    else s.spec_id = any(%(due)s::int[]) end"""

Minutes = tuple[tuple[int, ...], str]  # as numbers, and as text


@dataclass(frozen=True, slots=True)
class Made:
    """A spec of the mix: its rule as it is stored, and the plain facts by which the bench knows when it fires."""

    kind: str
    rule: str
    schedules: int
    tz: str = "UTC"
    minutes: tuple[int, ...] = ()
    hour: int | None = None
    weekdays: tuple[int, ...] = ()
    every_s: int | None = None
    jitter_s: int = 0


class Mix:
    """`schedules` of `specs`; the same for the same numbers. Spec ids begin at 2, behind the one of all one-shots."""

    def __init__(self, schedules: int, specs: int) -> None:
        self._total = schedules
        self._random = random.Random(1)
        self._drawn: set[str] = set()
        self._zones = [
            *ZONES,
            *self._random.sample([n for n in sorted(zone_names()) if "/" in n and n not in ZONES], ZONES_MORE),
        ]
        counts = {kind: max(1, round(specs * share)) for kind, share in SPECS.items()}
        made = [*self._crons(counts), *self._everies(counts["every"])]
        self._random.shuffle(made)
        rest = schedules - sum(one.schedules for one in made)
        self.specs = [Made("at", AtSpec().rule(), max(rest, 0)), *made]
        self.schedules = sum(one.schedules for one in self.specs)

    def _crons(self, counts: dict[str, int]) -> Iterator[Made]:
        every_other: list[Minutes] = [(tuple(range(k, 60, n)), f"{k}-59/{n}") for n in (2, 2, 2, 3) for k in range(n)]
        hourly: list[Minutes] = [((m,), str(m)) for m in range(60)]
        for kind, minutes in (("busy", every_other), ("hourly", hourly), ("jittered", hourly)):
            zones = ZONES if kind == "jittered" else self._zones  # whole hours, so that UTC shows the minute as well
            weeks = ["0,1,2,3,4,5,6"] if kind == "jittered" else WEEKS
            yield from self._cron(kind, counts[kind], minutes, "*", zones, weeks)
        yield from self._cron("daily", counts["daily"], hourly, "", self._zones, WEEKS)

    def _cron(self, kind: str, count: int, minutes: list[Minutes], hour: str, *rest: Any) -> Iterator[Made]:
        each, left = self._each(kind, count), count
        for _ in range(count * DRAWS):
            (values, text), tz, week = self._random.choice(minutes), *map(self._random.choice, rest)
            gap, fold = self._random.choice(POLICIES)
            at = None if hour else self._random.randrange(24)
            if (rule := _rule(f"{text} {hour or at} * * {week}", tz, gap, fold)) not in self._drawn:
                self._drawn.add(rule)
                days = tuple(map(int, week.split(",")))
                jitter_s = self._random.choice(JITTERS_S) if kind == "jittered" else 0
                yield Made(kind, rule, each, tz, values, at, days, jitter_s=jitter_s)
                left -= 1
                if not left:
                    return
        raise RuntimeError(f"expected {count:,} distinct {kind} crons, found {count - left:,}: ask for fewer specs")

    def _everies(self, count: int) -> Iterator[Made]:
        """Intervals of all lengths; the longer one is, the more schedules share it."""
        low, high = EVERY_S
        lengths = set[int]()
        while len(lengths) < count:
            lengths.add(int(low * (high / low) ** self._random.random()) // 60 * 60)
        of_all = self._total * SCHEDULES["every"] / sum(lengths)
        for every_s in sorted(lengths):
            yield Made("every", EverySpec(every_s).rule(), max(1, round(every_s * of_all)), every_s=every_s)

    def _each(self, kind: str, count: int) -> int:
        return max(1, round(self._total * SCHEDULES[kind] / count))

    def due_crons(self, minute_s: int) -> list[int]:
        """Ids of the crons without jitter that fire in this minute of UTC, from what their zones' clocks show then."""
        shown = {}
        for tz in self._zones:
            wall = datetime.fromtimestamp(minute_s, UTC).astimezone(zone(tz))
            shown[tz] = (wall.minute, wall.hour, wall.isoweekday() % 7)
        found = []
        for spec_id, one in enumerate(self.specs, 1):
            minute, hour, weekday = shown[one.tz] if one.minutes and not one.jitter_s else (-1, -1, -1)
            if minute in one.minutes and weekday in one.weekdays and one.hour in (None, hour):
                found.append(spec_id)
        return found


def _rule(expression: str, tz: str, gap: str, fold: str) -> str:
    """As the spec would write itself; from one text an expression, because there are many."""
    rule = _in_utc(expression).replace('"tz":"UTC"', f'"tz":"{tz}"')
    return rule.replace('"gap":"skip"', f'"gap":"{gap}"').replace('"fold":"first"', f'"fold":"{fold}"')


@cache
def _in_utc(expression: str) -> str:
    return parse_cron(expression, gap="skip", fold="first")[0].rule()


def fill(connection: psycopg.Connection[Any], mix: Mix, start_s: int) -> None:
    """Writes the mix, past triggers; constraints and indexes are made again at the end."""
    _write_specs(connection, mix)
    connection.execute("insert into bucketd.targets (name, url) values ('bench', 'http://127.0.0.1:9/')")
    # In the transaction that empties the table, so that neither rows nor indexes go through the log.
    with connection.transaction():
        made = connection.execute(_CONSTRAINTS.encode()).fetchall() + connection.execute(_INDEXES.encode()).fetchall()
        for drop, _ in made:
            connection.execute(drop.encode())
        connection.execute("truncate bucketd.schedules, bucketd.schedule_versions")
        connection.execute("set local session_replication_role = replica")
        connection.execute(_FILL.encode(), {"start_s": start_s, "at_s": AT_DAYS * DAY_S})
        connection.execute("set local session_replication_role = origin")
        connection.execute("set local maintenance_work_mem = '512MB'")
        for _, make in reversed(made):
            connection.execute(make.encode())
    connection.execute("vacuum (analyze) bucketd.schedules")
    connection.execute("vacuum (analyze) bucketd.specs")
    connection.execute("checkpoint")


def expected(connection: psycopg.Connection[Any], mix: Mix, minute_s: int) -> int:
    """Fires of a minute of due. Reads the whole table."""
    row = connection.execute(_DUE.encode(), {"start_s": minute_s, "due": mix.due_crons(minute_s)}).fetchone()
    assert row is not None
    return int(row[0])


def _write_specs(connection: psycopg.Connection[Any], mix: Mix) -> None:
    connection.execute(
        "create table bench_mix (spec_id int primary key, kind text, schedules int, every_s int, jitter_s int, minute int)"
    )
    with connection.cursor().copy("copy bench_mix from stdin") as copy:
        for spec_id, one in enumerate(mix.specs, 1):
            minute = one.minutes[0] if one.minutes else 0
            copy.write_row((spec_id, one.kind, one.schedules, one.every_s, one.jitter_s, minute))
    with connection.cursor().copy("copy bucketd.specs (spec_id, kind, rule, every_s, max_jitter_s) from stdin") as copy:
        for spec_id, one in enumerate(mix.specs[1:], 2):
            kind = "every" if one.kind == "every" else "cron"
            copy.write_row((spec_id, kind, one.rule, one.every_s, one.jitter_s))
