"""`bucketd next`: expressions without any store, schedules by name, words, comparison, errors that point."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Cli

NEW_YORK = ("--tz", "America/New_York", "--after", "2026-03-07")


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    return emptied_dsn


@pytest.fixture
def hooked(cli: Cli) -> Cli:
    """With a target `hook`."""
    cli.done("target", "put", "hook", "http://127.0.0.1:9/hook")
    return cli


def test_expression_without_a_store(bare: Cli) -> None:
    shown = bare.done("next", "30 2 * * *", *NEW_YORK, "-n", "3", "--json").json
    assert [fire["at"] for fire in shown["fires"]] == [
        "2026-03-07T07:30:00Z",
        "2026-03-08T07:00:00Z",
        "2026-03-09T06:30:00Z",
    ]
    second = shown["fires"][1]
    assert (second["local"], second["weekday"]) == ("2026-03-08 03:00:00-04:00", "Sun")
    assert second["note"] == "02:30 does not exist on 2026-03-08, runs at 03:00"
    assert (shown["gap"], shown["fold"], shown["tz"]) == ("run_after", "first", "America/New_York")
    table = bare.done("next", "30 2 * * *", *NEW_YORK, "-n", "3").out
    assert "02:30 does not exist on 2026-03-08, runs at 03:00" in table
    assert table.count("02:30:00-0") == 2


def test_a_skipped_time_is_a_line_without_a_fire(bare: Cli) -> None:
    arguments = ("next", "30 2 * * *", *NEW_YORK, "--gap", "skip", "-n", "2")
    lines = [line.split() for line in bare.done(*arguments).out.splitlines() if "2026-" in line]
    assert [line[0] for line in lines] == ["2026-03-07T07:30:00Z", "-", "2026-03-09T06:30:00Z"]
    shown = bare.done(*arguments, "--json").json
    assert shown["skipped"] == [{"at": "2026-03-08T07:00:00Z", "note": "skipped: 02:30 does not exist on 2026-03-08"}]
    assert len(shown["fires"]) == 2


def test_intervals_and_instants(bare: Cli) -> None:
    after = ("--after", "2026-03-07T20:00Z", "-n", "1", "--json")
    for arguments in (("15m",), ("every 15m",), ("--every", "15m")):
        assert bare.done("next", *arguments, *after).json["fires"][0]["at"] == "2026-03-07T20:15:00Z"
    at = bare.done("next", "--at", "2026-03-07T20:00:00.5Z", "--tz", "Asia/Kolkata", *after).json["fires"]
    assert [(fire["at"], fire["local"]) for fire in at] == [("2026-03-07T20:00:01Z", "2026-03-08 01:30:01+05:30")]
    assert "no occurrence left" in bare.done("next", "--at", "2020-01-01").err
    last = bare.done("next", "--at", "9999-12-31T23:00Z", "--tz", "Asia/Kolkata", "--json").json["fires"]
    assert [fire["local"] for fire in last] == ["-"], "the wall clock there leaves the calendar"


def test_words_and_warnings(bare: Cli) -> None:
    done = bare.done("next", "0 9,17 1 * MON", "--tz", "Europe/Berlin", "--words")
    assert done.out.startswith("At 09:00 and 17:00, on day 1 of the month or on Monday (either day field is enough)")
    assert "A time that the clocks leave out" in done.out
    assert "warning: both day fields are restricted" in done.err
    shown = bare.done("next", "0 9 * * *", "--words", "--json").json
    assert shown["words"] == ["At 09:00, every day"]


def test_comparison(bare: Cli) -> None:
    found = bare.done("next", "30 1 * * *", *NEW_YORK, "--compare", "--json").json["compare"]
    assert {one["peer"]: one["verdict"] for one in found} == {
        "croniter": "differs",
        "Kubernetes": "differs",
        "EventBridge": "same",
        "cronie": "same",
    }
    first = found[0]["differences"][0]
    assert (first["at"], first["ours"], first["theirs"]) == ("2026-11-01T06:30:00Z", 0, 1)
    table = bare.done("next", "0 22-2 * * *", *NEW_YORK, "--compare").out
    assert "rejects it: 22-2" in table
    assert "accepts it, and it never runs" in table
    assert bare("next", "15m", "--compare").code == 2


@pytest.mark.parametrize(
    ("expr", "code", "start", "token"),
    [
        ("0 25 * * *", "out_of_range", 2, "25"),
        ("0\t25 25 * *", "out_of_range", 2, "25"),
        (" 0 1,MONDAY  * * *", "bad_token", 5, "MONDAY"),
        ("1,,2 0 * * *", "bad_token", 2, ","),
        ("0 0 * * 1,1#6", "out_of_range", 10, "1#6"),
        ("@every 5m", "unknown_macro", 0, "@every 5m"),
        ("H 0 * * *", "hash_seed_missing", 0, "H"),
        ("0 0 * \u00e4 *", "bad_character", 6, "\u00e4"),
    ],
)
def test_errors_point_at_the_token(bare: Cli, expr: str, code: str, start: int, token: str) -> None:
    result = bare("next", expr)
    head, shown, carets = result.err.splitlines()
    assert (result.code, result.out) == (2, "")
    assert head.startswith(f"error: {code}: expected ")
    assert shown == "  " + expr.replace("\t", " ")
    assert carets == " " * (2 + start) + "^" * len(token)
    assert shown[2 + start :].startswith(token)


@pytest.mark.parametrize(("expr", "code"), [("0 0 31 2 *", "never_fires"), ("0 0 * *", "field_count")])
def test_errors_of_the_whole_are_one_line(bare: Cli, expr: str, code: str) -> None:
    result = bare("next", expr)
    assert result.code == 2
    assert result.err.startswith(f"error: {code}: expected ")
    assert len(result.err.splitlines()) == 1


def test_errors_of_options(bare: Cli) -> None:
    for arguments, reason in (
        ((), "one of EXPR"),
        (("* * * * *", "--every", "5m"), "EXPR and --every"),
        (("* * * * *", "--tz", "Mars/Olympus"), "unknown_time_zone"),
        (("* * * * *", "--gap", "later"), "bad_policy"),
        (("--every", "0s"), "bad_duration"),
        (("--at", "tomorrow"), "expected an instant"),
        (("* * * * *", "--after", "2026-01-01T10:00"), "offset"),
        (("* * * * *", "--after", "0001-01-01T00:00+14:00"), "years 1 to 9999"),
        (("name", "--tz", "UTC"), "--tz with an expression only"),
    ):
        result = bare("next", *arguments)
        assert result.code == 2, arguments
        assert reason in result.err, (arguments, result.err)
    assert bare("next", "* * * * *", "-n", "1001").code == 2


def test_a_word_is_a_name_and_needs_a_store(bare: Cli) -> None:
    for arguments in (("nightly",), ("15m", "--name")):
        assert "expected BUCKETD_DSN" in bare("next", *arguments).err


def test_schedule_by_name(hooked: Cli) -> None:
    hooked.done("schedule", "put", "s", "--target", "hook", "--cron", "H 9 * * *", "--tz", "Asia/Kolkata", "-t", "acme")
    by_group = [line["at"] for line in hooked.done("schedule", "next", "s", "-t", "acme", "--json").lines]
    shown = hooked.done("next", "s", "-t", "acme", "--words", "--json").json
    assert [fire["at"] for fire in shown["fires"]] == by_group
    assert shown["expr"] == "H 9 * * *"
    minute = shown["fires"][0]["local"][14:16]
    assert shown["words"][0] == f"At 09:{minute}, every day (Asia/Kolkata)", "H is drawn from the id"
    skipped = hooked.done("schedule", "skip-next", "s", "-t", "acme", "--json").json["skipped"]
    assert skipped == by_group[0]
    again = hooked.done("next", "s", "-t", "acme", "-n", "4", "--json").json
    assert [fire["at"] for fire in again["fires"]] == by_group[1:]
    hooked.done("schedule", "pause", "s", "-t", "acme")
    assert "is paused" in hooked.done("next", "s", "-t", "acme").err
    assert hooked("next", "s").code == 3


def test_bounds_of_a_schedule_hold(hooked: Cli) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    starts, ends = now + timedelta(hours=3), now + timedelta(hours=5)
    put = ("schedule", "put", "15m", "--target", "hook", "--every", "1h", "--phase", "7m")
    hooked.done(*put, "--starts-at", starts.isoformat(), "--ends-at", ends.isoformat())
    fires = hooked.done("next", "15m", "--name", "--json").json["fires"]
    assert len(fires) == 2
    assert all(starts.isoformat() <= fire["at"].replace("Z", "+00:00") < ends.isoformat() for fire in fires)
    assert "plus 7 minutes" in hooked.done("next", "15m", "--name", "--words").out
    once = (now + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    hooked.done("schedule", "put", "once", "--target", "hook", "--at", once)
    assert [fire["at"] for fire in hooked.done("next", "once", "--json").json["fires"]] == [once]


def test_excluded_dates_are_said(hooked: Cli) -> None:
    hooked.done("schedule", "put", "s", "--target", "hook", "--cron", "0 9 * * *")
    first, second = (fire["at"] for fire in hooked.done("next", "s", "-n", "2", "--json").json["fires"])
    hooked.done("schedule", "put", "s", "--target", "hook", "--cron", "0 9 * * *", "--exclude", first[:10])
    shown = hooked.done("next", "s", "-n", "1", "--words", "--json").json
    assert shown["fires"][0]["at"] == second
    assert shown["words"][0] == f"At 09:00, every day, except on {first[:10]}"
