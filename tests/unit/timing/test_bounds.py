"""Sparse rules, the ends of the calendar, and that nothing around the process matters."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from bucketd.timing import AtSpec, CronSpec, EverySpec, fires_between, next_fire, parse_cron, previous_fire
from bucketd.timing.offsets import FIRST_S, LAST_S, ZoneOffsets
from bucketd.timing.zones import zone


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def cold(expr: str, tz: str, gap: str = "auto") -> CronSpec:
    """A spec whose zone table is empty, as in a fresh process."""
    spec, _ = parse_cron(expr, tz, gap=gap)
    spec = CronSpec(spec.minute, spec.hour, spec.days, spec.tz, spec.gap, spec.fold)  # not the shared instance
    object.__setattr__(spec, "offsets", ZoneOffsets(zone(tz)))
    return spec


SPARSE = [
    ("0 0 29 2 *", "Europe/Berlin", "auto"),
    ("0 0 29 2 */7", "UTC", "auto"),
    ("59 23 29 2 */7", "Asia/Kolkata", "auto"),
    ("0 0 31W 1 *", "America/New_York", "auto"),
    ("0 0 L-30 * */6", "America/New_York", "auto"),
    ("30 2 * 3 0#2", "America/New_York", "skip"),  # always missing from 2007 on
    ("*/7 2 * 3 SUNL", "Europe/Berlin", "skip"),
    ("30 0 * 9 SUN#1", "America/Santiago", "skip"),
]
AFTER = [
    "0001-01-01T00:00Z",
    "1582-10-15T00:00Z",
    "1969-12-31T23:59Z",
    "2026-11-30T00:00Z",
    "2099-12-31T00:00Z",
    "9990-01-01T00:00Z",
]


@pytest.mark.alone
@pytest.mark.parametrize(("expr", "tz", "gap"), SPARSE)
@pytest.mark.parametrize("after", AFTER)
def test_sparse_rules_are_answered_quickly(expr: str, tz: str, gap: str, after: str) -> None:
    for search in (next_fire, previous_fire):
        spec = cold(expr, tz, gap)
        begin = time.thread_time()
        search(spec, epoch(after))
        assert time.thread_time() - begin < 0.05, search.__name__


def test_rule_that_only_names_missing_times_ends() -> None:
    spec, _ = parse_cron("30 2 * 3 0#2", "America/New_York", gap="skip")
    last = epoch("2006-03-12T07:30Z")
    assert next_fire(spec, last - 1) == last
    assert next_fire(spec, last) is None
    assert previous_fire(spec, epoch("9999-01-01T00:00Z")) == last
    assert previous_fire(spec, epoch("2150-01-01T00:00Z")) == last
    assert fires_between(spec, last, epoch("9999-01-01T00:00Z")) == [last]


def test_rule_whose_fires_are_nearly_all_missing_is_followed_to_the_next() -> None:
    """A fifth Sunday of March is the last one, when 02:30 is missing; one of February is a Sunday the 29th."""
    spec, _ = parse_cron("30 2 * 2,3 SUN#5", "Europe/Berlin", gap="skip")
    leap_sundays = [epoch(f"{year}-02-29T01:30Z") for year in (2088, 2128, 2156, 2184)]
    for one, other in pairwise(leap_sundays):
        assert next_fire(spec, one) == other
        assert previous_fire(spec, other) == one


def test_sparse_answers() -> None:
    sunday_leap, _ = parse_cron("0 0 29 2 */7")
    assert next_fire(sunday_leap, epoch("2096-01-01T00:00Z")) == epoch("2128-02-29T00:00Z")
    assert previous_fire(sunday_leap, epoch("2128-02-29T00:00Z")) == epoch("2088-02-29T00:00Z")
    assert fires_between(sunday_leap, epoch("2000-01-01T00:00Z"), epoch("2401-01-01T00:00Z"), limit=2) == [
        epoch("2004-02-29T00:00Z"),
        epoch("2032-02-29T00:00Z"),
    ]
    assert len(fires_between(sunday_leap, epoch("2000-01-01T00:00Z"), epoch("2400-01-01T00:00Z"))) == 13


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_calendar_ends_without_error(tz: str) -> None:
    spec, _ = parse_cron("*/30 * * * *", tz)
    last, first = previous_fire(spec, 10**15), next_fire(spec, -(10**15))
    assert last is not None
    assert first is not None
    assert next_fire(spec, last) is None
    assert previous_fire(spec, first) is None
    for at_s in (first, last):
        offset_s = spec.offsets.at(at_s).offset_s
        assert FIRST_S <= at_s <= LAST_S
        assert FIRST_S <= at_s + offset_s <= LAST_S
    assert LAST_S - last < 86_400
    assert first - FIRST_S < 86_400
    assert fires_between(spec, last, 10**15) == [last]
    assert fires_between(spec, -(10**15), first + 1) == [first]
    assert next_fire(spec, LAST_S) is None
    assert previous_fire(spec, FIRST_S) is None


def test_every() -> None:
    spec = EverySpec(900)
    assert next_fire(spec, 0) == 900
    assert next_fire(spec, 0, phase=7) == 7
    assert next_fire(spec, 7, phase=7) == 907
    assert next_fire(spec, -1) == 0
    assert next_fire(spec, -1_000, phase=7) == -893
    assert previous_fire(spec, 900) == 0
    assert previous_fire(spec, 7, phase=7) == -893
    assert fires_between(spec, 0, 2_700) == [0, 900, 1_800]
    assert fires_between(spec, 1, 2_701, limit=2) == [900, 1_800]
    assert fires_between(spec, 5, 5) == []
    assert fires_between(spec, 0, 2_700, limit=0) == []
    assert next_fire(spec, LAST_S) is None
    assert previous_fire(spec, FIRST_S) is None


def test_at() -> None:
    spec = AtSpec()
    assert next_fire(spec, 99, phase=100) == 100
    assert next_fire(spec, 100, phase=100) is None
    assert previous_fire(spec, 101, phase=100) == 100
    assert previous_fire(spec, 100, phase=100) is None
    assert fires_between(spec, 100, 101, phase=100) == [100]
    assert fires_between(spec, 101, 200, phase=100) == []
    assert fires_between(spec, 0, 100, phase=100) == []


def test_window_is_half_open_and_limited() -> None:
    spec, _ = parse_cron("* * * * *", "Europe/Berlin")
    start_s = epoch("2026-06-01T00:00Z")
    assert fires_between(spec, start_s, start_s + 120) == [start_s, start_s + 60]
    assert fires_between(spec, start_s, start_s) == []
    assert fires_between(spec, start_s, start_s - 1) == []
    assert fires_between(spec, start_s + 1, start_s + 60) == []
    assert len(fires_between(spec, start_s, 10**13, limit=5_000)) == 5_000
    assert len(fires_between(spec, start_s, start_s + 366 * 86_400)) == 366 * 1_440


_PROBE = """
from bucketd.timing import parse_cron, fires_between
for line in ("*/20 1-3 * * *|America/Vancouver", "H H * * FRI-MON,5#3|Europe/Berlin", "0 0 L,15W * *|Africa/Cairo"):
    spec, _ = parse_cron(*line.split("|"), seed="0b4e6f0a-3a54-4f0e-9a34-3d6b1f3f7a11")
    print(spec.rule(), fires_between(spec, 1760000000, 1800000000))
"""


def test_host_zone_database_path_and_hash_seed_do_not_matter(tmp_path: object) -> None:
    outputs = set()
    for extra in (
        {"TZ": "UTC", "PYTHONHASHSEED": "0"},
        {"TZ": "Australia/Lord_Howe", "PYTHONHASHSEED": "1"},
        {"TZ": "America/New_York", "PYTHONTZPATH": str(tmp_path), "PYTHONHASHSEED": "2"},
    ):
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1_000


def test_now_is_never_asked() -> None:
    """A spec far in the past and one far ahead give the same pattern: 400 years are one cycle."""
    spec, _ = parse_cron("17 3 * * 2,5", "UTC")
    cycle_s = 146_097 * 86_400
    start_s = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    here = fires_between(spec, start_s, start_s + 40 * 86_400)
    assert [fire + cycle_s for fire in here] == fires_between(spec, start_s + cycle_s, start_s + cycle_s + 40 * 86_400)
    assert [fire - cycle_s for fire in here] == fires_between(spec, start_s - cycle_s, start_s - cycle_s + 40 * 86_400)
