"""What a forecast says H and jitter would do is what they do, once the schedules are put again."""

from __future__ import annotations

import random
from datetime import timedelta
from statistics import median
from uuid import UUID

import pytest

from bucketd import Client, Timing, cron, every
from bucketd.forecast import survey
from bucketd.forecast.results import Forecast, Spread
from bucketd.timing import parse_cron
from tests.forecast.conftest import age
from tests.support.rows import Rows

# As typed, and with H in the minute field where that means the same but for where it begins.
CRONS = {
    "0 * * * *": "H * * * *",
    "0,30 * * * *": "H/30 * * * *",
    "*/15 * * * *": "H/15 * * * *",
    "0 */2 * * *": "H */2 * * *",
    "0,7 * * * *": "0,7 * * * *",
    "* * * * *": "* * * * *",
    "0 0-23 * * 0-6": "H 0-23 * * 0-6",
}
ZONES = ("UTC", "America/New_York", "Asia/Kathmandu", "Australia/Adelaide")


def put(
    client: Client, seed: int, *, hashed: bool = False, jitter_s: int | None = None, at_peak: set[UUID] | None = None
) -> None:
    """The same schedules each time; those of the peak with H or with another jitter, if asked."""
    pick = random.Random(seed)
    for n in range(160):
        text, zone, own_s = pick.choice(list(CRONS)), pick.choice(ZONES), pick.choice((0, 0, 40, 900))
        every_s, interval = pick.choice((50, 600, 5_400)), pick.random() < 0.2
        name = f"s{n:03}"
        changes = at_peak is None or client.schedules.get(name).id in at_peak
        timing: Timing = (
            every(every_s, phase=0) if interval else cron(CRONS[text] if hashed and changes else text, zone)
        )
        jitter = jitter_s if jitter_s is not None and changes else own_s
        client.schedules.put(name, timing, target="hook", jitter_s=jitter, tenant="default")


def look(client: Client) -> Forecast:
    return client.forecast(hours=6, jitter_s=1_200)


def of(found: Forecast, how: str) -> Spread:
    (spread,) = (spread for spread in found.spreads if spread.how == how)
    return spread


def check(promised: Spread, after: Forecast, least: int = 100) -> None:
    """The curve that came is the one that was promised, in the minutes that both know."""
    shift = int((promised.start - after.start) / timedelta(minutes=1))
    known = promised.minutes[max(0, -shift) :]
    came = after.minutes[max(0, shift) :][: len(known)]
    assert known == came
    assert len(came) >= least


def peak_ids(client: Client, rows: Rows, found: Forecast) -> set[UUID]:
    """The schedules that are due in the highest minute, by their own next occurrences."""
    peak = found.peaks[0].at
    ids = set()
    for schedule in client.schedules.list(limit=1_000):
        offset_s = rows.of(schedule.id, "jitter_offset_s")
        if any(
            0 <= (at + timedelta(seconds=offset_s) - peak).total_seconds() < 60
            for at in client.schedules.next(schedule.name, 500)
        ):
            ids.add(schedule.id)
    return ids


def test_h_does_what_was_said(client: Client, rows: Rows, noon: None) -> None:
    put(client, 1)
    # A load that is elsewhere, so that the peak of 15:00 is the highest.
    for n in range(60):
        client.schedules.put(f"x{n}", cron("0 15 * * *"), target="hook")
    before = look(client)
    assert before.peaks[0].at.hour == 15
    promised = of(before, "H")
    assert promised.exact
    at_peak = peak_ids(client, rows, before)
    put(client, 1, hashed=True, at_peak=at_peak)
    for n in range(60):
        client.schedules.put(f"x{n}", cron("H 15 * * *"), target="hook")
    after = look(client)
    check(promised, after)
    assert 60 < promised.schedules < len(at_peak)
    assert promised.fires == max(promised.minutes) < before.peaks[0].fires / 2
    shift = int((promised.at - after.start) / timedelta(minutes=1))
    assert after.minutes[shift] == promised.fires


def test_jitter_does_what_was_said(client: Client, rows: Rows, noon: None) -> None:
    put(client, 2)
    for n in range(60):
        client.schedules.put(f"x{n}", cron("0 15 * * *"), target="hook")
    before = look(client)
    promised = of(before, "jitter")
    assert (promised.exact, promised.jitter_s) == (True, 1_200)
    at_peak = peak_ids(client, rows, before)
    assert promised.schedules == len(at_peak)
    put(client, 2, jitter_s=1_200, at_peak=at_peak)
    for n in range(60):
        client.schedules.put(f"x{n}", cron("0 15 * * *"), target="hook", jitter_s=1_200)
    check(promised, look(client))
    assert promised.second_fires < before.peaks[0].second_fires / 5


def test_an_instant_that_is_past_does_not_come_again(client: Client, rows: Rows, noon: None) -> None:
    """At 12:00:20 the jitter of an edited schedule counts from the next day on, whatever it had."""
    for n in range(90):
        client.schedules.put(f"s{n}", cron("0 12 * * *"), target="hook", jitter_s=600)
    age(rows, "true")
    before = look(client)
    promised = of(before, "jitter")
    assert promised.schedules == before.peaks[0].fires
    assert sum(promised.minutes) == before.fires - promised.schedules
    peak_s = int(before.peaks[0].at.timestamp())
    noon_s = peak_s // 3_600 * 3_600
    names = rows.sql("select name from bucketd.schedules where jitter_offset_s / 60 = %s", (peak_s - noon_s) // 60)
    for (name,) in names:
        client.schedules.put(name, cron("0 12 * * *"), target="hook", jitter_s=1_200)
    check(promised, look(client), least=60)


def test_what_is_expected_is_what_comes_on_average(
    client: Client, rows: Rows, noon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 schedules, computed one by one and on average: the minutes agree within five standard deviations."""
    target_id = rows.one("select target_id from bucketd.targets where name = 'hook'")
    hourly, halves = rows_spec(rows, "0 * * * *"), rows_spec(rows, "0,30 * * * *")
    made = (
        "insert into bucketd.schedules (name, spec_id, target_id, jitter_s)"
        " select %s || n, %s, %s, %s from generate_series(1, %s) n"
    )
    for name, spec_id, jitter_s, count in (("a", hourly, 0, 4_000), ("b", halves, 0, 800), ("c", hourly, 90, 200)):
        rows.sql(made, name, spec_id, target_id, jitter_s, count)
    exact = look(client)
    monkeypatch.setattr(survey, "ONE_BY_ONE", 100)
    expected = look(client)
    assert exact.minutes == expected.minutes
    for how in ("H", "jitter"):
        one, other = of(exact, how), of(expected, how)
        assert (one.exact, other.exact) == (True, False)
        assert (one.schedules, one.start) == (other.schedules, other.start)
        assert sum(other.minutes) == pytest.approx(sum(one.minutes), rel=0.02)
        for came, awaited in zip(one.minutes, other.minutes, strict=True):
            assert abs(came - awaited) <= 5 * max(awaited, 4) ** 0.5
    # Of the jittered ones those at the peak: 60 of their 91 seconds.
    assert median(of(expected, "H").minutes) == pytest.approx(4_000 / 60 + 800 / 30 + 200 * 60 / 91 / 60, abs=2)


def test_what_cannot_move_stays(client: Client, noon: None) -> None:
    for n in range(50):
        client.schedules.put(f"s{n}", cron("0,7 * * * *"), target="hook")
        client.schedules.put(f"e{n}", every(3_600, phase=0), target="hook")
    found = look(client)
    assert of(found, "H").schedules == 0
    assert of(found, "H").fires == 100
    assert of(found, "jitter").schedules == 100


def rows_spec(rows: Rows, expression: str) -> int:
    return rows.spec(parse_cron(expression)[0])
