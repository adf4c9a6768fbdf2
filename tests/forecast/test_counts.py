"""A forecast equals brute force over every schedule, whatever they are."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.datetime import TimestamptzLoader

from bucketd import Client
from bucketd.client import AsyncClient
from bucketd.errors import InvalidInput, NotFound
from bucketd.forecast import survey
from bucketd.forecast.results import Forecast
from bucketd.timing import AtSpec, EverySpec, Spec, fires_between, load_rule, parse_cron
from tests.forecast.conftest import age
from tests.support.brute_force import Fire, fires_due, per_minute
from tests.support.rows import Rows

ZONES = ("UTC", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham")
CRONS = (
    "0 * * * *",
    "*/5 * * * *",
    "7,52 * * * *",
    "30 */2 * * *",
    "* * * * *",
    "15 3 * * *",
    "0 0 1 * *",
    "59 * * * *",
)
EVERY_S = (1, 7, 45, 60, 90, 600, 3_599, 3_600, 3_601, 20_000, 86_400, 86_399, 604_800)


class Mix:
    """Random schedules of every kind, with every bound; seeded, so that a failure comes again."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self._rows = rows
        self._random = random.Random(seed)
        self._now_s = int(rows.now())
        self._targets = [rows.one("select target_id from bucketd.targets where name = %s", n) for n in ("hook", "mail")]

    def add(self, n: int) -> None:
        for _ in range(n):
            spec, phase, expression = self._timing()
            self._rows.schedule(spec, phase, expression=expression, **self._columns())
        age(self._rows, "get_byte(uuid_send(id), 0) < 160")

    def _timing(self) -> tuple[Spec, int, str]:
        pick = self._random
        kind = pick.choice(("cron", "cron", "every", "at"))
        if kind == "cron":
            text, zone = pick.choice(CRONS), pick.choice(ZONES)
            return parse_cron(text, zone)[0], 0, f"{text}|{zone}"
        if kind == "every":
            every_s = pick.choice(EVERY_S)
            return EverySpec(every_s), pick.randrange(every_s), f"{every_s}s"
        return AtSpec(), self._now_s + pick.randrange(-4_000, 30_000), "at"

    def _columns(self) -> dict[str, Any]:
        pick = self._random
        columns: dict[str, Any] = {
            "tenant": f"tenant-{pick.randrange(6)}",
            "target_id": pick.choice(self._targets),
            "jitter_s": pick.choice((0, 0, 30, 300, 3_600)),
            "labels": pick.choice(("{}", '{"plan": "free"}')),
        }
        for name in ("starts_at", "ends_at"):
            if pick.random() < 0.3:
                columns[name] = self._instant()
        if pick.random() < 0.2:
            columns |= {"paused": True, "paused_until": self._instant() if pick.random() < 0.5 else None}
        return columns

    def _instant(self) -> str:
        """Around the window, on and off whole seconds and minutes; or further away than the calendar."""
        pick = self._random
        if pick.random() < 0.1:
            return pick.choice(("infinity", "9999-12-31T00:00:00Z"))
        at_s = self._now_s + pick.randrange(-5_000, 40_000)
        at_s = at_s // 60 * 60 if pick.random() < 0.5 else at_s
        return datetime.fromtimestamp(at_s + pick.choice((0, 0, 0.25)), UTC).isoformat()


@pytest.fixture
def endless(sql: psycopg.Connection[Any]) -> None:
    """psycopg cannot read infinity: brute force sees the end of its calendar instead."""
    sql.adapters.register_loader("timestamptz", _Endless)


class _Endless(TimestamptzLoader):
    def load(self, data: Any) -> datetime:
        return datetime.max.replace(tzinfo=UTC) if bytes(data) == b"infinity" else super().load(data)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_mix(client: Client, sql: psycopg.Connection[Any], rows: Rows, endless: None, seed: int) -> None:
    Mix(rows, seed).add(250)
    for by, key in (("tenant", _tenant), ("target", _target), ("partition", _partition)):
        found = client.forecast(hours=3 + seed, by=by, top=200)
        due = fires_due(sql, found.start, found.end)
        assert found.minutes == per_minute(due, found.start, found.end)
        assert found.fires == len(due) > 20_000
        by_name: dict[str, list[Fire]] = defaultdict(list)
        for fire in due:
            by_name[key(fire)].append(fire)
        assert {load.name: load.fires for load in found.loads} == {name: len(fires) for name, fires in by_name.items()}
        for load in found.loads:
            minutes = per_minute(by_name[load.name], found.start, found.end)
            assert (load.peak_fires, load.peak_at) == _highest(minutes, found.start)
        assert (found.others, found.other_fires) == (0, 0)
    _check_peaks(found, due)


def test_filters(client: Client, sql: psycopg.Connection[Any], rows: Rows, endless: None) -> None:
    Mix(rows, 9).add(120)
    whole = client.forecast(hours=2)
    due = fires_due(sql, whole.start, whole.end)
    free = {id for (id,) in rows.sql("""select id from bucketd.schedules where labels @> '{"plan": "free"}'""")}
    wanted: list[tuple[dict[str, Any], Callable[[Fire], bool]]] = [
        ({"tenant": "tenant-1"}, lambda fire: fire.tenant == "tenant-1"),
        ({"target": "mail"}, lambda fire: fire.target == "mail"),
        ({"labels": {"plan": "free"}}, lambda fire: fire.id in free),
        (
            {"tenant": "tenant-2", "target": "hook", "labels": {"plan": "free"}},
            lambda fire: fire.tenant == "tenant-2" and fire.target == "hook" and fire.id in free,
        ),
    ]
    for arguments, holds in wanted:
        found = client.forecast(hours=2, **arguments)
        mine = [fire for fire in due if holds(fire)]
        assert mine
        assert found.minutes == per_minute(mine, found.start, found.end)
        _check_peaks(found, mine)


def test_the_largest_are_listed_and_the_others_counted(client: Client, rows: Rows) -> None:
    for n in range(30):
        for _ in range(1 + n // 10):
            rows.every(600, tenant=f"t{n:02}")
    found = client.forecast(hours=1, top=12)
    assert [load.name for load in found.loads] == [f"t{n:02}" for n in (*range(20, 30), 10, 11)]
    assert (found.others, found.other_fires) == (18, 6 * (8 * 2 + 10))
    assert found.fires == 6 * 60


def test_excluded_dates_do_not_fire(client: Client, rows: Rows) -> None:
    """Of crons and of intervals, in their zone; with a jitter that carries the last fire of a day over midnight."""
    now_s = int(rows.now())
    first, last = (now_s - 3_600) // 86_400, (now_s + 48 * 3_600) // 86_400
    for day in range(first, last + 1):
        rows.schedule(EverySpec(700, (day,), "Asia/Kathmandu"), 33, jitter_s=600)
        rows.schedule(replace(parse_cron("*/7 * * * *", "Asia/Kathmandu")[0], exclude=(day,)), jitter_s=3_600)
    found = client.forecast(hours=48)
    counts: Counter[datetime] = Counter()

    start_s, end_s = int(found.start.timestamp()), int(found.end.timestamp())
    for rule, phase, offset_s, floor_s in rows.sql(
        "select rule, phase, jitter_offset_s, extract(epoch from floor)::float8 from bucketd.schedules join bucketd.specs using (spec_id)"
    ):
        for at_s in fires_between(load_rule(rule), start_s - offset_s, end_s - offset_s, phase):
            counts[datetime.fromtimestamp((at_s + offset_s) // 60 * 60, UTC)] += at_s >= floor_s
    assert found.minutes == tuple(counts[found.start + timedelta(minutes=n)] for n in range(48 * 60))


def test_jitter_carries_fires_into_the_window(
    client: Client, sql: psycopg.Connection[Any], rows: Rows, noon: None
) -> None:
    """At 12:00:20, of a cron whose one instant of the day was 11:40."""
    spec, _ = parse_cron("40 11 * * *")
    for _ in range(60):
        rows.schedule(spec, jitter_s=3_600, expression="40 11 * * *")
    assert client.forecast().fires == 0, "all were made after their instant"
    age(rows, "true")
    found = client.forecast()
    due = fires_due(sql, found.start, found.end)
    assert found.minutes == per_minute(due, found.start, found.end)
    assert 20 < found.fires < 60
    _check_peaks(found, due)


def test_nothing_at_all(client: Client) -> None:
    found = client.forecast(hours=1)
    assert found.minutes == (0,) * 60
    assert (found.peaks, found.loads, found.spreads, found.median) == ((), (), (), 0)


def test_a_rule_that_cannot_be_read_is_told(client: Client, rows: Rows) -> None:
    rows.every(60)
    rows.sql("insert into bucketd.specs (kind, rule) values ('cron', '{\"kind\":\"cron\"}')")
    found = client.forecast(hours=1)
    assert (found.unreadable_specs, found.fires) == (1, 60)


def test_many_stretches_are_one_table(client: Client, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is read once in each pass, whatever the stretches; and progress goes from start to end."""
    every = rows.spec(EverySpec(600))
    rows.sql(
        "insert into bucketd.schedules (tenant, name, spec_id, phase, target_id)"
        " select 't' || n %% 7, n::text, %s, n %% 600, %s from generate_series(1, 3000) n",
        every, rows.target(),
    )  # fmt: skip
    whole = client.forecast(hours=1)
    assert whole.fires == 6 * 3_000
    for name, pages in (("_FIRST_PAGES", 1), ("_LEAST_PAGES", 1), ("_MOST_PAGES", 3)):
        monkeypatch.setattr(survey, name, pages)
    seen: list[tuple[int, int]] = []
    pieces = client.forecast(hours=1, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 20
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    if pieces.start == whole.start:  # not across the turn of a minute
        assert (pieces.minutes, pieces.peaks, pieces.loads) == (whole.minutes, whole.peaks, whole.loads)
    assert (pieces.fires, sum(load.fires for load in pieces.loads)) == (6 * 3_000, 6 * 3_000)


def test_progress_comes_to_its_end(client: Client, rows: Rows) -> None:
    rows.every(60)
    seen: list[tuple[int, int]] = []
    client.forecast(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"hours": 0}, "hours"),
        ({"hours": 49}, "hours"),
        ({"by": "zone"}, "by"),
        ({"top": 0}, "top"),
        ({"jitter_s": 3_601}, "jitter_s"),
        ({"tenant": "a\n"}, "tenant"),
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_bad_input(client: Client, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.forecast(**arguments)
    assert caught.value.field == field
    with pytest.raises(NotFound, match="nobody"):
        client.forecast(target="nobody")


async def test_the_async_twin_says_the_same(client: Client, dsn: str, rows: Rows) -> None:
    Mix(rows, 4).add(40)
    async with AsyncClient(dsn) as other:
        one, two = client.forecast(), await other.forecast()
    if one.start == two.start:  # not across the turn of a minute
        assert (one.minutes, one.peaks, one.loads, one.spreads) == (two.minutes, two.peaks, two.loads, two.spreads)


def _tenant(fire: Fire) -> str:
    return fire.tenant


def _target(fire: Fire) -> str:
    return fire.target


def _partition(fire: Fire) -> str:
    return str(fire.partition)


def _highest(minutes: tuple[int, ...], start: datetime) -> tuple[int, datetime]:
    place = minutes.index(max(minutes))
    return minutes[place], start + timedelta(minutes=place)


def _check_peaks(found: Forecast, due: list[Fire]) -> None:
    assert found.peaks
    assert found.peaks[0].fires == max(found.minutes)
    for peak in found.peaks:
        here = [fire for fire in due if fire.minute == peak.at]
        assert peak.fires == len(here)
        seconds = Counter(fire.due for fire in here)
        assert (peak.second_fires, peak.second) == max(
            ((n, at) for at, n in seconds.items()), key=lambda s: (s[0], -s[1].timestamp())
        )
        for shares, key in ((peak.tenants, _tenant), (peak.targets, _target)):
            counts = sorted(Counter(map(key, here)).values(), reverse=True)
            assert [share.fires for share in shares] == counts[:3]
        specs = Counter("one-shots" if f.expression == "at" else f.expression for f in here)
        # Of one text there is one spec; which of its authors' words is shown does not matter.
        assert [share.fires for share in peak.specs] == sorted(specs.values(), reverse=True)[:3]
