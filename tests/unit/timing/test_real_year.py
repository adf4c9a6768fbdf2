"""A year of 1,335 jobs that nobody here wrote, in zones with odd clocks, against a walk over each of its minutes."""

import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any
from zlib import crc32

import pytest

from bucketd.timing import CronError, EverySpec, fires_between, parse_cron, parse_duration
from tests.support.processes import ROOT
from tests.support.walk import duration_s, walk_every_seconds, walk_seconds

FILE = ROOT.parent / "shared" / "data" / "k8s-periodics.jsonl"
JOBS = 1_335
SAMPLE = 60
YEAR = 2026
ZONES = ["America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]
# Each with the year that is told of it: jumps of two and three hours and of a day, midnights that are missing or repeated,
# evenings that come twice, 23 hours again, three changes in a year, an offset of seconds.
UNUSUAL = [
    ("Antarctica/Troll", 2026),
    ("Antarctica/Casey", 2020),
    ("America/Sao_Paulo", 2018),
    ("America/Havana", 2025),
    ("America/St_Johns", 2010),
    ("Asia/Dhaka", 2009),
    ("America/Nuuk", 2024),
    ("Pacific/Apia", 2011),
    ("Pacific/Kwajalein", 1969),
    ("Africa/Casablanca", 2026),
    ("Africa/Monrovia", 1972),
]
POLICIES = list(product(("run_after", "skip", "shift"), ("first", "second", "both")))

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"needs {FILE.name}")


@cache
def jobs() -> list[dict[str, Any]]:
    """The lines of the file."""
    found = [json.loads(line) for line in FILE.read_text().splitlines()]
    assert len(found) == JOBS
    return found


@cache
def expressions() -> list[str]:
    """Each of the file's cron expressions once; those that never fire are left out."""
    return sorted({job["cron"] for job in jobs() if "cron" in job and not never_fires(job["cron"])})


def year(number: int) -> tuple[int, int]:
    """Its first second of UTC, and the first one after it."""
    begin, end = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) for y in (number, number + 1))
    return begin, end


def never_fires(expr: str) -> bool:
    """Whether the engine refuses it for that. Raises CronError: refused for anything else."""
    try:
        parse_cron(expr)
    except CronError as error:
        if error.code == "never_fires":
            return True
        raise
    return False


def differences(expr: str, tz: str, window: tuple[int, int], gap: str = "auto", fold: str = "auto") -> Iterable[str]:
    """What the engine has too much or lacks; nothing is the good answer."""
    spec, _ = parse_cron(expr, tz, gap=gap, fold=fold)
    found, walked = fires_between(spec, *window), walk_seconds(expr, tz, *window, gap, fold)
    if found != walked or not walked:
        surplus, lacking = (
            [datetime.fromtimestamp(fire, UTC).isoformat() for fire in sorted(some)[:3]]
            for some in (set(found) - set(walked), set(walked) - set(found))
        )
        yield f"{expr} in {tz}, {gap}/{fold}: too much {surplus}, lacking {lacking}, {len(found)} fires of {len(walked)}"


@pytest.mark.parametrize("tz", ZONES)
def test_a_year_of_the_cron_jobs(tz: str) -> None:
    wrong = [line for expr in expressions() for line in differences(expr, tz, year(YEAR))]
    assert not wrong, "\n".join(wrong)


def test_a_year_of_the_interval_jobs() -> None:
    """Zones are nothing to them; the phase, which a cluster draws from the schedule's id, comes from the name here."""
    for job in jobs():
        if "every" in job:
            every_s = duration_s(job["every"])
            phase = crc32(job["name"].encode()) % every_s
            spec = EverySpec(parse_duration(job["every"]))
            assert fires_between(spec, *year(YEAR), phase) == walk_every_seconds(every_s, phase, *year(YEAR)), job


def test_refused_jobs_are_those_that_the_walk_never_meets() -> None:
    refused = {job["cron"] for job in jobs() if "cron" in job and never_fires(job["cron"])}
    assert refused == {"0 0 30 2 *", "0 0 31 2 *"}
    assert not any(walk_seconds(expr, "UTC", *year(2028)) for expr in refused), "a leap year has no such date either"


@pytest.mark.parametrize(("tz", "number"), UNUSUAL)
def test_a_year_of_a_sample_in_an_unusual_zone(tz: str, number: int) -> None:
    # Not the one that fires each five minutes: nine policies of it would take as long as all the others.
    sample = random.Random(tz).sample([expr for expr in expressions() if not expr.startswith("*")], SAMPLE)
    wrong = [
        line for expr in sample for gap, fold in POLICIES for line in differences(expr, tz, year(number), gap, fold)
    ]
    assert not wrong, "\n".join(wrong)
