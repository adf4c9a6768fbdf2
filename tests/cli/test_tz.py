"""`bucketd tz status` and `diff`: what the cluster computes with, and what this machine's data would move."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from bucketd.timing import TZDATA_VERSION
from bucketd.timing.zones import zone_data
from tests.cli.conftest import Cli
from tests.support.rows import Rows
from tests.support.tzif import tzif

ZONE = "Asia/Tokyo"
HOUR_S, DAY_S = 3_600, 86_400


@pytest.fixture
def rows(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Rows(connection)


def store(rows: Rows, data: dict[str, bytes], version: str = "2025b") -> None:
    rows.sql("update bucketd.cluster set tzdata_version = %s, tzdata_at = bucketd.bucketd_now()", version)
    for name, bytes_ in data.items():
        rows.sql("insert into bucketd.zones values (%s, %s)", name, bytes_)


def test_a_fresh_cluster(cli: Cli) -> None:
    shown = cli.done("tz", "status", "--json").json
    assert shown == {
        "here": TZDATA_VERSION, "cluster": None, "since": None, "moving_from": None, "standing": "unset", "zones": [],
    }  # fmt: skip
    assert "the first scheduler that starts stores its release" in cli.done("tz", "status").out
    assert cli.done("tz", "diff", "--json").json["zones"] == []
    said = cli.done("tz", "diff")
    assert "nothing: the data of all zones that schedules name are the same" in said.err
    assert "no schedule moves" in said.err


def test_status_counts_schedules_and_compares_data(cli: Cli, rows: Rows) -> None:
    for n in range(5):
        rows.cron(f"{n} 9 * * *", ZONE, paused=n == 0)
    rows.cron("0 9 * * *", "Europe/Berlin")
    rows.cron("0 9 * * *", "Africa/Cairo")
    store(rows, {ZONE: tzif(8 * HOUR_S), "Europe/Berlin": zone_data("Europe/Berlin")})
    shown = cli.done("tz", "status", "--json").json
    assert shown["zones"] == [
        {"zone": ZONE, "schedules": 5, "stored": True, "same_here": False},
        {"zone": "Africa/Cairo", "schedules": 1, "stored": False, "same_here": False},
        {"zone": "Europe/Berlin", "schedules": 1, "stored": True, "same_here": True},
    ]
    assert (shown["cluster"], shown["standing"]) == ("2025b", "newer here")
    drawn = cli.done("tz", "status", "--top", "1")
    assert "Europe/Berlin" not in drawn.out
    assert "there are 3 zones" in drawn.err


def test_diff_shows_clocks_and_schedules_before_the_upgrade(cli: Cli, rows: Rows) -> None:
    now = rows.now()
    change = int(now) // DAY_S * DAY_S + 30 * DAY_S  # midnight UTC, nine in the morning there
    for n in range(25):
        rows.cron(f"{n} 12 * * *", ZONE, name=f"noon-{n:02d}", tenant="acme")
    rows.cron("*/20 * * * *", ZONE, name="steady")
    rows.cron("0 12 * * *", "Europe/Berlin", name="berlin")
    rows.cron("0 12 * * *", "Asia/Seoul", name="seoul")
    store(
        rows,
        {
            ZONE: tzif(9 * HOUR_S, [(change, 8 * HOUR_S)]),
            "Europe/Berlin": zone_data("Europe/Berlin"),
            "Asia/Seoul": tzif(9 * HOUR_S),
        },
    )
    before = rows.sql("select * from bucketd.cluster"), rows.sql("select * from bucketd.zones order by 1")
    shown = cli.done("tz", "diff", "--json").json
    first = datetime.fromtimestamp(change, UTC)
    by_zone = {zone["zone"]: zone for zone in shown["zones"]}
    assert by_zone.keys() == {ZONE, "Asia/Seoul"}
    assert by_zone["Asia/Seoul"] == {"zone": "Asia/Seoul", "state": "same", "schedules": 0, "periods": []}
    assert by_zone[ZONE]["periods"] == [
        {
            "from": _iso(first), "until": None, "old_offset_s": 8 * HOUR_S, "new_offset_s": 9 * HOUR_S,
            "old_local": f"{first:%Y-%m-%d} 08:00 +08:00", "new_local": f"{first:%Y-%m-%d} 09:00 +09:00",
        }
    ]  # fmt: skip
    assert shown["schedules"] == 25
    assert [one["name"] for one in shown["first"]] == [f"noon-{n:02d}" for n in range(20)]
    assert shown["first"][3] == {
        "tenant": "acme", "name": "noon-03", "zone": ZONE,
        "old": _iso(first + timedelta(hours=4, minutes=3)), "new": _iso(first + timedelta(hours=3, minutes=3)),
    }  # fmt: skip
    drawn = cli.done("tz", "diff")
    assert "acme/noon-19" in drawn.out
    assert "noon-20" not in drawn.out
    assert "25 schedules move" in drawn.err
    assert before == (rows.sql("select * from bucketd.cluster"), rows.sql("select * from bucketd.zones order by 1"))

    assert cli.done("tz", "diff", "--zone", "Europe/Berlin", "--json").json["zones"] == []
    sooner = cli.done("tz", "diff", "--until", "+20d", "--json").json
    assert (sooner["schedules"], [zone["state"] for zone in sooner["zones"]]) == (0, ["same", "same"])
    assert cli("tz", "diff", "--zone", "Mars/Olympus").code == 2
    assert cli("tz", "diff", "--until", "-1d").code == 2


def test_diff_says_what_it_cannot_tell(cli: Cli, rows: Rows) -> None:
    rows.cron("0 12 * * *", ZONE)
    rows.cron("0 12 * * *", "Europe/Berlin")
    rows.sql("insert into bucketd.specs (kind, rule) values ('cron', '{\"tz\":\"Mars/Olympus\"}')")
    store(rows, {"Europe/Berlin": b"nonsense"})
    states = {zone["zone"]: zone["state"] for zone in cli.done("tz", "diff", "--json").json["zones"]}
    assert states == {
        ZONE: "not stored yet",
        "Europe/Berlin": "stored data cannot be read",
        "Mars/Olympus": "not a zone of this machine's tzdata",
    }


@pytest.mark.parametrize(
    ("version", "moving_from", "verdict"),
    [
        (TZDATA_VERSION, None, "ok"), (None, None, "ok"), ("2025b", None, "warn"), ("2999a", None, "warn"),
        (TZDATA_VERSION, "2025b", "warn"), ("latest", None, "fail"),
    ],
)  # fmt: skip
def test_the_doctor_compares_releases(
    cli: Cli, rows: Rows, version: str | None, moving_from: str | None, verdict: str
) -> None:
    rows.sql(
        "update bucketd.cluster set tzdata_version = %s, tzdata_from = %s, tzdata_at = now()", version, moving_from
    )
    checks = cli("doctor", "--json").json["checks"]
    assert [check["verdict"] for check in checks if check["name"] == "tzdata"] == [verdict]


def test_an_older_scheduler_ends_with_a_line_and_code_4(cli: Cli, rows: Rows) -> None:
    store(rows, {}, "2999a")
    assert cli.done("tz", "status", "--json").json["standing"] == "older here"
    refused = cli.process("scheduler")
    assert refused.code == 4
    assert (
        f"error: expected tzdata 2999a or newer, which the cluster computes with, got {TZDATA_VERSION}" in refused.err
    )
    assert "Traceback" not in refused.err


def test_wrong_stores(cli: Cli, bare: Cli, rows: Rows, empty_dsn: str) -> None:
    assert bare("--dsn", empty_dsn, "tz", "status").code == 4
    assert "run `bucketd migrate`" in bare("--dsn", empty_dsn, "tz", "diff").err
    store(rows, {}, "latest")
    assert cli("tz", "status").code == 4


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
