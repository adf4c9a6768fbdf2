"""`bucketd why`: what people type, what they read, and what programs get."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from bucketd.cli.why import moment
from bucketd.store.errors import InvalidInput
from tests.cli.conftest import Cli

YEAR = datetime.now(UTC).year + 1
SUNDAY = next(day for day in range(8, 15) if datetime(YEAR, 3, day).weekday() == 6)  # clocks jump in New York


def march(day: int, time: str = "") -> str:
    """A date of next year's March, so many days after that Sunday."""
    return f"{YEAR}-03-{SUNDAY + day:02d}{time}"


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    return emptied_dsn


@pytest.fixture
def nightly(cli: Cli) -> Cli:
    """With a schedule `nightly` of tenant acme, in New York."""
    cli.done("target", "put", "hook", "http://127.0.0.1:9/hook")
    cli.done(
        "schedule", "put", "nightly", "--cron", "30 2 * * *", "--tz", "America/New_York", "--gap", "skip", "--target", "hook",
        "-t", "acme",
    )  # fmt: skip
    return cli


def test_a_sentence_facts_and_the_nearest(nightly: Cli) -> None:
    result = nightly.done("why", "nightly", march(0, "T02:30"), "--tenant", "acme")
    first, *rest = result.out.splitlines()
    assert first.startswith(f"It has no occurrence then, by gap=skip: 02:30 does not exist on {march(0)}")
    assert f"  - 02:30 does not exist on {march(0)} in America/New_York: the clocks go from 02:00 to 03:00" in rest
    assert "verdict  in_gap" in result.out
    assert f"before   {march(-1)}T07:30:00Z" in result.out
    assert f"after    {march(1)}T06:30:00Z" in result.out


def test_json(nightly: Cli) -> None:
    found = nightly.done("why", "nightly", march(1, "T06:30Z"), "-t", "acme", "--json").json
    assert (found["verdict"], found["slot"], found["run"]) == ("ahead", march(1, "T06:30:00Z"), None)
    assert (found["name"], found["tenant"]) == ("nightly", "acme")
    run = nightly.done("schedule", "skip-next", "nightly", "-t", "acme", "--json").json["skipped"]
    skipped = nightly.done("why", "nightly", run, "-t", "acme", "--json").json
    assert (skipped["verdict"], skipped["run"]["reason"]) == ("skipped", "user")


def test_exit_codes(nightly: Cli) -> None:
    assert nightly("why", "nightly", "now").code == 3  # of tenant default there is none
    assert "never existed" in nightly("why", "nobody", "now").err
    bad = nightly("why", "nightly", "yesterday", "-t", "acme")
    assert bad.code == 2
    assert "at: expected an instant" in bad.err
    assert nightly("why", "nightly", "2200-01-01", "-t", "acme").code == 2


def test_an_age_is_no_option(nightly: Cli) -> None:
    assert "It did not exist: it was created at" in nightly.done("why", "nightly", "-24h", "-t", "acme").out


def test_a_reason_cannot_write_on_the_terminal(nightly: Cli, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("insert into bucketd.holds (scope, reason) values ('all', e'\\x1b[31mred')")
    out = nightly.done("why", "nightly", march(1, "T02:30"), "-t", "acme").out
    assert "red" in out
    assert "\x1b" not in out


def test_moments() -> None:
    assert moment("2027-03-14T02:30") == datetime(2027, 3, 14, 2, 30)
    assert moment("2027-03-14 02:30:10").utcoffset() is None
    assert moment("2027-03-14T02:30-05:00") == datetime(2027, 3, 14, 7, 30, tzinfo=UTC)
    assert moment("2027-03-14") == datetime(2027, 3, 14, tzinfo=UTC)
    assert abs(moment("-24h") + timedelta(days=1) - datetime.now(UTC)) < timedelta(minutes=1)
    with pytest.raises(InvalidInput):
        moment("")
