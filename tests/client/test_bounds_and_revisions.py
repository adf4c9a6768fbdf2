"""max_runs, the settings of catch-up, and if_revision: bounds that hold exactly, and changes that nobody overwrites unseen."""

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import AsyncClient, Client, ScheduleInput, at, cron, every
from bucketd.client.results import Schedule
from bucketd.client.timings import Timing
from bucketd.errors import Conflict, InvalidInput, NotFound
from bucketd.store import schedules as store
from bucketd.timing import fires_between, load_rule
from tests.client.conftest import Rows, count
from tests.client.test_async import aclient as aclient

SOON = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)


def instants(sql: psycopg.Connection[Any], name: str = "a") -> list[int]:
    """What the engine makes of the stored row: every instant from its creation, or start, up to its end."""
    found = sql.execute(
        "select p.rule, s.phase, extract(epoch from greatest(s.created_at, s.starts_at))::float8,"
        " extract(epoch from s.ends_at)::float8"
        " from bucketd.schedules s join bucketd.specs p on p.spec_id = s.spec_id where s.name = %s",
        (name,),
    ).fetchone()
    assert found
    rule, phase, from_s, end_s = found
    return fires_between(load_rule(rule), ceil(from_s), ceil(end_s), phase)


DAYS = [(SOON + timedelta(days=n)).date() for n in range(-3, 4)]


@pytest.mark.parametrize("n", [1, 2, 7, 100])
@pytest.mark.parametrize(
    ("timing", "fields"),
    [
        (every("1s", phase=0), {}),
        (every("90s"), {}),
        (every("1h"), {"starts_at": SOON}),
        (every("1h", tz="Asia/Tokyo"), {"exclude": DAYS}),
        (cron("* * * * *"), {}),
        (cron("H 9,17 * * 1-5", tz="America/New_York"), {}),
        (cron("0 0 * * *"), {"starts_at": SOON.replace(hour=0, minute=0, second=0)}),
        (cron("0 9 * * *", tz="Africa/Cairo"), {"exclude": DAYS, "starts_at": SOON}),
        (cron("0 0 29 2 *"), {}),
        (every("1h"), {"jitter_s": 300}),
    ],
)
def test_max_runs_ends_a_schedule_behind_exactly_so_many(
    client: Client, sql: psycopg.Connection[Any], timing: Timing, fields: dict[str, Any], n: int
) -> None:
    made = client.schedules.put("a", timing, target="hook", max_runs=n, **fields)
    found = instants(sql)
    assert len(found) == n
    assert made.max_runs == n
    assert made.ends_at == datetime.fromtimestamp(found[-1] + 1, UTC)
    begin = fields.get("starts_at")
    assert begin is None or found[0] >= begin.timestamp()
    ahead = client.schedules.next("a", n + 5)
    assert len(ahead) in (n, n - 1, n - 2) if timing == every("1s", phase=0) else len(ahead) == n


@pytest.mark.parametrize("n", [1, 3, 50])
def test_in_a_bulk_put_too_however_long_it_takes(client: Client, sql: psycopg.Connection[Any], n: int) -> None:
    """Writing a chunk takes longer than the interval: what passes meanwhile must not be counted."""
    rows = [ScheduleInput(name=f"s{i}", timing=every("1s", phase=0), target="hook", max_runs=n) for i in range(3_000)]
    client.schedules.put_many(rows)
    found = sql.execute(
        "select distinct extract(epoch from ends_at)::bigint - ceil(extract(epoch from created_at))::bigint"
        " from bucketd.schedules"
    ).fetchall()
    assert found == [(n,)]


def test_an_instant_between_the_clock_and_the_write_is_not_counted(
    client: Client, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is read, three seconds pass, then the row is written."""
    real = store.now_s

    def early() -> Any:
        return (yield from real()) - 3

    monkeypatch.setattr(store, "now_s", early)
    made = client.schedules.put("a", every("1s", phase=0), target="hook", max_runs=5)
    assert len(instants(sql)) == 5
    assert made.created
    assert client.schedules.get("a").ends_at == made.ends_at
    client.schedules.put("far", every("1h"), target="hook", max_runs=5)
    assert client.schedules.get("far").revision == 1, "written once if nothing has slipped by"


def test_a_put_of_the_same_keeps_the_end(client: Client, sql: psycopg.Connection[Any]) -> None:
    put = {"target": "hook", "max_runs": 5}
    first = client.schedules.put("a", every("1h"), **put)  # type: ignore[arg-type]
    sql.execute("update bucketd.cluster set clock_offset = interval '3 hours'")
    again = client.schedules.put("a", every("1h"), **put)  # type: ignore[arg-type]
    assert (again.changed, again.ends_at, again.revision) == (False, first.ends_at, 1)
    bulk = client.schedules.put_many([ScheduleInput(name="a", timing=every("1h"), target="hook", max_runs=5)])
    assert bulk[0].status == "unchanged"
    other = client.schedules.put("a", every("1h"), payload=1, **put)  # type: ignore[arg-type]
    assert (other.changed, other.ends_at) == (True, first.ends_at), "no edit of the timing"
    sql.execute("update bucketd.cluster set clock_offset = interval '30 hours'")
    over = client.schedules.put("a", every("1h"), payload=1, **put)  # type: ignore[arg-type]
    assert (over.changed, client.schedules.next("a")) == (False, [])


@pytest.mark.parametrize(
    ("timing", "fields"),
    [
        (every("2h"), {}),
        (every("1h", phase=7), {}),
        (cron("0 * * * *"), {}),
        (every("1h"), {"exclude": [SOON.date()]}),
        (every("1h"), {"max_runs": 6}),
        (every("1h"), {"starts_at": SOON}),
    ],
)
def test_it_counts_anew_when_what_is_counted_changes(
    client: Client, sql: psycopg.Connection[Any], timing: Timing, fields: dict[str, Any]
) -> None:
    client.schedules.put("a", every("1h", phase=0), target="hook", max_runs=5)
    sql.execute("update bucketd.cluster set clock_offset = interval '4 hours'")
    client.schedules.put("a", timing, target="hook", **({"max_runs": 5} | fields))
    now = datetime.now(UTC) + timedelta(hours=4)
    assert len([one for one in instants(sql) if one > now.timestamp()]) == fields.get("max_runs", 5)


def test_without_max_runs_the_end_is_gone(client: Client) -> None:
    client.schedules.put("a", every("1h"), target="hook", max_runs=5)
    assert client.schedules.put("a", every("1h"), target="hook").ends_at is None


def test_a_calendar_that_changes_leaves_as_many_as_were_left(client: Client, sql: psycopg.Connection[Any]) -> None:
    client.calendars.put("bank", DAYS[4:5])
    client.schedules.put("a", cron("0 */6 * * *"), target="hook", max_runs=40, calendars=["bank"])
    client.schedules.put("i", every("6h"), target="hook", max_runs=40, calendars=["bank"])
    client.schedules.put("b", cron("0 */6 * * *"), target="hook", calendars=["bank"], ends_at=SOON)
    first = {name: instants(sql, name) for name in "ai"}
    sql.execute("update bucketd.cluster set clock_offset = interval '2 days'")
    gone = (datetime.now(UTC) + timedelta(days=2)).timestamp()
    client.calendars.put("bank", DAYS[3:6])
    for name in "ai":
        left = [one for one in first[name] if one > gone]
        assert 30 < len(left) < 40
        now = [one for one in instants(sql, name) if one > gone]
        assert len(now) == len(left), name
        assert now != left, "the dates did move"
    assert client.schedules.get("b").ends_at == SOON
    sql.execute("update bucketd.cluster set clock_offset = interval '100 days'")
    end = client.schedules.get("a").ends_at
    client.calendars.put("bank", [])
    assert client.schedules.get("a").ends_at == end, "a schedule that is over stays over"


def test_so_sparse_that_the_calendar_ends_first(client: Client) -> None:
    made = client.schedules.put("a", cron("0 0 29 2 *"), target="hook", max_runs=100_000)
    assert made.ends_at is None
    assert made.max_runs == 100_000


@pytest.mark.parametrize(
    ("timing", "fields", "field"),
    [
        (every("1h"), {"max_runs": 5, "ends_at": SOON}, "max_runs"),
        (at(SOON), {"max_runs": 1}, "max_runs"),
        (every("1h"), {"max_runs": 0}, "max_runs"),
        (every("1h"), {"max_runs": 100_001}, "max_runs"),
        (every("1h"), {"max_runs": True}, "max_runs"),
        (every("1h"), {"max_runs": 5.0}, "max_runs"),
        (at(SOON), {"exclude": [SOON.date()]}, "exclude"),
        (at(SOON), {"calendars": ["bank"]}, "exclude"),
        (every("1h"), {"exclude": "2027-01-01"}, "exclude"),
        (every("1h"), {"exclude": [SOON]}, "exclude"),
        (every("1h"), {"exclude": [date(1, 1, 1) + timedelta(days=n) for n in range(1_001)]}, "exclude"),
        (every("1h"), {"catch_up_window_s": 59}, "catch_up_window_s"),
        (every("1h"), {"catch_up_window_s": 604_801}, "catch_up_window_s"),
        (every("1h"), {"catch_up_window_s": None}, "catch_up_window_s"),
        (every("1h"), {"catch_up_cap": 0}, "catch_up_cap"),
        (every("1h"), {"catch_up_cap": 10_001}, "catch_up_cap"),
        (every("1h"), {"catch_up_cap": "5"}, "catch_up_cap"),
    ],
)
def test_bad_bounds_are_refused_and_change_nothing(
    client: Client, sql: psycopg.Connection[Any], timing: Timing, fields: dict[str, Any], field: str
) -> None:
    client.calendars.put("bank", [SOON.date()])
    client.schedules.put("a", every("1h"), target="hook", payload=1)
    before = sql.execute("select * from bucketd.schedules").fetchall()
    with pytest.raises(InvalidInput) as caught:
        client.schedules.put("a", timing, target="hook", **fields)
    assert caught.value.field == field
    result, *_ = client.schedules.put_many(
        [ScheduleInput(name="a", timing=timing, target="hook", **fields)], skip_invalid=True
    )
    assert (result.status, result.field) == ("invalid", field)
    assert sql.execute("select * from bucketd.schedules").fetchall() == before


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"catch_up_window_s": 60}, 60),
        ({"catch_up_window_s": 604_800}, 604_800),
        ({"catch_up_cap": 1}, 1),
        ({"catch_up_cap": 10_000}, 10_000),
        ({"exclude": [SOON.date()]}, (SOON.date(),)),
        ({"calendars": ["bank"]}, ("bank",)),
        ({"max_runs": 3}, 3),
    ],
)
def test_each_field_counts_as_a_change_and_is_read_back(client: Client, change: dict[str, Any], value: Any) -> None:
    client.calendars.put("bank", [SOON.date()])
    client.schedules.put("a", every("15m"), target="hook")
    assert client.schedules.put("a", every("15m"), target="hook", **change).changed
    field = next(iter(change))
    assert getattr(client.schedules.get("a"), field) == value
    again = client.schedules.put_many([ScheduleInput(name="a", timing=every("15m"), target="hook", **change)])
    assert again[0].status == "unchanged"
    fresh = client.schedules.put_many([ScheduleInput(name="b", timing=every("15m"), target="hook", **change)])
    assert fresh[0].status == "created"
    assert getattr(client.schedules.get("b"), field) == value
    assert (
        client.schedules.put_many([ScheduleInput(name="a", timing=every("15m"), target="hook")])[0].status == "updated"
    )
    assert getattr(client.schedules.get("a"), field) != value


# if_revision

Deed = Callable[[Client, int | None], Any]
DEEDS: dict[str, Deed] = {
    "put": lambda client, revision: client.schedules.put(
        "a", every("1h"), target="hook", payload="mine", if_revision=revision
    ),
    "pause": lambda client, revision: client.schedules.pause("a", reason="mine", if_revision=revision),
    "resume": lambda client, revision: client.schedules.resume("a", if_revision=revision),
    "delete": lambda client, revision: client.schedules.delete("a", if_revision=revision),
}
deeds = pytest.mark.parametrize("deed", list(DEEDS.values()), ids=list(DEEDS))


def prepared(client: Client, deed: Deed) -> Schedule:
    client.schedules.put("a", every("1h"), target="hook", paused=deed is DEEDS["resume"])
    return client.schedules.put("a", every("1h"), target="hook", payload="theirs")


@deeds
def test_at_the_revision_that_was_read_it_is_done(client: Client, deed: Deed) -> None:
    found = prepared(client, deed)
    assert found.revision == 2
    done = deed(client, 2)
    if isinstance(done, Schedule):
        assert (done.changed, done.revision) == (True, 3)
    else:
        with pytest.raises(NotFound):
            client.schedules.get("a")


@deeds
@pytest.mark.parametrize("revision", [1, 3, 99])
def test_at_another_it_is_a_conflict_and_changes_nothing(
    client: Client, sql: psycopg.Connection[Any], deed: Deed, revision: int
) -> None:
    prepared(client, deed)
    before = sql.execute("select * from bucketd.schedules").fetchall()
    entries = count(sql, "audit")
    with pytest.raises(Conflict, match=rf"expected 'a' at revision {revision}, got 2"):
        deed(client, revision)
    assert sql.execute("select * from bucketd.schedules").fetchall() == before
    assert count(sql, "audit") == entries


@deeds
@pytest.mark.parametrize("revision", [-1, "2", 1.5, True])
def test_what_is_no_revision_is_refused(client: Client, deed: Deed, revision: Any) -> None:
    prepared(client, deed)
    with pytest.raises(InvalidInput) as caught:
        deed(client, revision)
    assert caught.value.field == "if_revision"
    assert client.schedules.get("a").revision == 2


def test_zero_means_that_it_must_not_exist(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = client.schedules.put("a", every("1h"), target="hook", if_revision=0)
    assert (made.created, made.revision) == (True, 1)
    with pytest.raises(Conflict, match="revision 0, got 1"):
        client.schedules.put("a", every("1h"), target="hook", if_revision=0)
    with pytest.raises(Conflict, match="revision 1, got 0"):
        client.schedules.put("b", every("1h"), target="hook", if_revision=1)
    assert count(sql, "schedules") == 1


def test_a_missing_schedule_stays_not_found(client: Client) -> None:
    for deed in (client.schedules.pause, client.schedules.resume, client.schedules.delete):
        with pytest.raises(NotFound):
            deed("a", if_revision=1)


def test_what_changes_nothing_is_no_conflict_at_its_revision(client: Client) -> None:
    client.schedules.put("a", every("1h"), target="hook")
    assert not client.schedules.put("a", every("1h"), target="hook", if_revision=1).changed
    assert not client.schedules.resume("a", if_revision=1).changed
    assert client.schedules.pause("a", if_revision=1).changed
    assert not client.schedules.pause("a", if_revision=2).changed


@deeds
@pytest.mark.parametrize("meanwhile", ["pause", "put", "delete"])
def test_a_writer_that_waits_for_another_sees_what_that_one_did(
    client: Client, dsn: str, sql: psycopg.Connection[Any], deed: Deed, meanwhile: str
) -> None:
    from tests.client.test_calendar_races import blocked

    found = prepared(client, deed)
    with psycopg.connect(dsn) as other:
        other.execute("set transaction isolation level read committed")
        if meanwhile == "delete":
            client.schedules.delete("a", connection=other)
        elif meanwhile == "pause":
            client.schedules.pause("a", reason="theirs", connection=other)
        else:
            client.schedules.put("a", every("1h"), target="hook", payload="newer", connection=other)
        with blocked(sql, lambda: deed(client, found.revision)) as outcome:
            other.commit()
    assert isinstance(outcome[0], Conflict | NotFound), outcome
    if meanwhile == "delete":
        assert count(sql, "schedules") == 0
    else:
        kept = client.schedules.get("a")
        assert kept.revision == 3
        assert (kept.pause_reason == "theirs") if meanwhile == "pause" else (kept.payload == "newer")


@pytest.mark.parametrize("first", ["fresh", "known"])
def test_of_two_writers_with_the_same_revision_exactly_one_wins(client: Client, dsn: str, first: str) -> None:
    if first == "known":
        client.schedules.put("a", every("1h"), target="hook")
    start = threading.Barrier(4)
    rounds = 12
    won: list[tuple[int, int]] = []
    lost: list[int] = []

    def write(who: int) -> None:
        with Client(dsn) as own:
            for n in range(rounds):
                name, revision = ("a", n + 1) if first == "known" else (f"a{n}", 0)
                start.wait()
                try:
                    made = own.schedules.put(name, every("1h"), target="hook", payload=[who, n], if_revision=revision)
                    won.append((n, made.revision))
                except Conflict:
                    lost.append(n)
                start.wait()

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [(n, n + 2 if first == "known" else 1) for n in range(rounds)]
    assert len(lost) == 3 * rounds


async def test_the_async_twin(aclient: AsyncClient) -> None:
    made = await aclient.schedules.put("a", every("1h"), target="hook", max_runs=3, if_revision=0)
    assert len(await aclient.schedules.next("a", 10)) == 3
    with pytest.raises(Conflict):
        await aclient.schedules.put("a", every("1h"), target="hook", if_revision=0)
    with pytest.raises(Conflict):
        await aclient.schedules.pause("a", if_revision=7)
    with pytest.raises(Conflict):
        await aclient.schedules.delete("a", if_revision=7)
    paused = await aclient.schedules.pause("a", if_revision=1)
    with pytest.raises(Conflict):
        await aclient.schedules.resume("a", if_revision=1)
    assert isinstance(made.id, UUID)
    assert (await aclient.schedules.resume("a", if_revision=paused.revision)).revision == 3
    await aclient.schedules.delete("a", if_revision=3)


def test_the_clock_of_the_cluster_counts(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    sql.execute("update bucketd.cluster set clock_offset = interval '1000 days'")
    made = client.schedules.put("a", every("1h"), target="hook", max_runs=2)
    assert made.ends_at is not None
    assert timedelta(0) < made.ends_at - rows.now() <= timedelta(hours=2, seconds=1)
