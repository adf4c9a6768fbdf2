"""`bucketd forecast`: the figures as JSON, and the picture for people, which fits its terminal."""

import re
from typing import Any

import psycopg
import pytest

from bucketd.store.config import Settings
from bucketd.timing import parse_cron
from tests.cli.conftest import Cli
from tests.support.rows import Rows

BAR = re.compile(r"\d\d:\d\d [█░]")


@pytest.fixture
def loaded(cli: Cli, settings: Settings) -> Cli:
    """120 schedules at minute 0, a dozen spread ones, a name that wants to move the cursor."""
    with psycopg.connect(settings.dsn.get_secret_value(), autocommit=True) as connection:
        rows = Rows(connection)
        hourly, _ = parse_cron("0 * * * *", "Europe/Berlin")
        for n in range(120):
            rows.schedule(hourly, tenant=f"tenant-{n % 12}", expression="0 * * * *")
        for n in range(12):
            rows.every(600, n * 50, tenant="evil\x1b[2J" if n else "quiet", expression="10m")
    return cli


def test_json(loaded: Cli) -> None:
    found = loaded.done("forecast", "--json").json
    assert len(found["minutes"]) == 360
    assert found["fires"] == sum(found["minutes"]) == 6 * 120 + 36 * 12
    peak = found["peaks"][0]
    assert peak["at"].endswith(":00:00Z")
    assert peak["fires"] >= 120
    assert peak["second_fires"] >= 120
    assert peak["specs"][0] == {"name": "0 * * * * Europe/Berlin", "fires": 120}
    assert peak["targets"] == [{"name": "sink", "fires": peak["fires"]}]
    assert found["loads"][0] == {
        "name": "evil\x1b[2J", "fires": 36 * 11, "peak_at": found["loads"][0]["peak_at"], "peak_fires": 2,
    }  # fmt: skip
    spreads: dict[str, Any] = {spread["how"]: spread for spread in found["spreads"]}
    assert spreads["H"]["schedules"] == 120
    assert spreads["H"]["fires"] < 20
    assert spreads["jitter"]["jitter_s"] == 300
    assert len(loaded.done("forecast", "--hours", "48", "--json").json["minutes"]) == 48 * 60


def test_options(loaded: Cli) -> None:
    found = loaded.done(
        "forecast", "--by", "partition", "--top", "3", "--jitter", "20m", "--tenant", "tenant-1", "--json"
    ).json
    assert found["fires"] == 60
    assert (len(found["loads"]), found["by"]) == (3, "partition")
    assert found["spreads"][1]["jitter_s"] == 1_200
    assert loaded.done("forecast", "--label", "a=b", "--json").json["fires"] == 0


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_picture_fits(loaded: Cli, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for hours in ("1", "6", "48"):
        shown = loaded.done("forecast", "--hours", hours).out
        assert max(map(len, shown.splitlines())) <= columns
        bars = [line for line in shown.splitlines() if BAR.match(line)]
        assert 24 <= len(bars) <= 49
        assert "\x1b" not in shown
        assert "H minute" in shown
        assert "jitter 300 s" in shown
        longest = max(bars, key=lambda line: line.count("░") + line.count("█"))
        assert "<-" in longest, "the highest minute is marked"
        assert all(line.rstrip().endswith("x median") for line in bars if "<-" in line), "no line is broken"


def test_bars_begin_at_round_times(loaded: Cli) -> None:
    times = [line[:5] for line in loaded.done("forecast").out.splitlines() if BAR.match(line)]
    assert len(times) in (36, 37)
    assert all(time.endswith("0") for time in times[1:])


def test_nothing_to_show(cli: Cli) -> None:
    assert cli.done("forecast").out.startswith("nothing falls due in the 6 h from ")
    assert cli.done("forecast", "--json").json["peaks"] == []


def test_bad_choices(cli: Cli) -> None:
    for arguments, code, reason in (
        (("--by", "zone"), 2, "tenant, target, partition"),
        (("--jitter", "2h"), 2, "3600"),
        (("--jitter", "soon"), 2, "jitter"),
        (("--label", "a"), 2, "KEY=VALUE"),
        (("--target", "nobody"), 3, "'nobody'"),
        (("--hours", "49"), 2, "equal to 48"),
    ):
        result = cli("forecast", *arguments)
        assert result.code == code, (arguments, result)
        assert reason in result.err, (arguments, result.err)
