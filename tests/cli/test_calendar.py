"""`bucketd calendar ..`, and the options of `schedule put`, `apply` and `export` that came with it, on real stores."""

import json
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli

HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    with psycopg.connect(emptied_dsn) as connection:
        connection.execute("delete from bucketd.calendars")
    return emptied_dsn


@pytest.fixture
def hooked(cli: Cli) -> Cli:
    """With a target `hook`."""
    cli.done("target", "put", "hook", HOOK)
    return cli


def test_put_list_show_delete(hooked: Cli) -> None:
    put = hooked.done("calendar", "put", "bank", "2027-12-26", "2027-12-25", "2027-12-25")
    assert put.out == "default/bank: 2 dates, revision 1; 0 schedules name it\n"
    assert hooked.done("calendar", "put", "bank", "2027-12-25", "2027-12-26").out == put.out
    shown = hooked.done("calendar", "show", "bank", "--json").json
    assert (shown["dates"], shown["revision"], shown["schedules"]) == (["2027-12-25", "2027-12-26"], 1, 0)
    assert hooked.done("calendar", "show", "bank").out == "2027-12-25  # Saturday\n2027-12-26  # Sunday\n"
    assert hooked.done("calendar", "put", "bank", "2027-12-24", "--json").json["revision"] == 2
    hooked.done("calendar", "put", "bank", "2028-01-01", "-t", "acme")
    assert [line["tenant"] for line in hooked.done("calendar", "list", "--json").lines] == ["acme", "default"]
    assert [line["name"] for line in hooked.done("calendar", "list", "-t", "acme", "--json").lines] == ["bank"]
    table = hooked.done("calendar", "list").out
    assert "2028-01-01" in table
    assert "more than 1" in hooked.done("calendar", "list", "-n", "1").err
    unasked = hooked("calendar", "delete", "bank")
    assert unasked.code == 2
    assert "--yes" in unasked.err
    hooked.done("calendar", "delete", "bank", "--yes")
    for command in (("show", "bank"), ("delete", "bank", "--yes")):
        missing = hooked("calendar", *command)
        assert missing.code == 3
        assert missing.err.startswith("error: ")
    assert "no calendar" in hooked.done("calendar", "list", "-t", "default").err


def test_dates_come_from_a_file(hooked: Cli) -> None:
    file = Path("days.txt")
    file.write_text("# of 2027\n\n2027-12-25  # Christmas\n 2027-12-26\n")
    hooked.done("calendar", "put", "bank", "2027-01-01", "--file", "days.txt")
    shown = hooked.done("calendar", "show", "bank").out
    assert shown.splitlines() == ["2027-01-01  # Friday", "2027-12-25  # Saturday", "2027-12-26  # Sunday"]
    file.write_text(shown)
    assert "revision 1;" in hooked.done("calendar", "put", "bank", "--file", "days.txt").out, (
        "what show prints is taken back"
    )
    file.write_text("# nothing\n")
    assert "0 dates, revision 2;" in hooked.done("calendar", "put", "bank", "--file", "days.txt").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "expected dates or --file"),
        (("soon",), "such as 2026-12-25"),
        (("2027-02-30",), "such as 2026-12-25"),
        (("20270101",), "such as 2026-12-25"),
        (("2027-01-01", "--file", "missing.txt"), "missing.txt"),
        (("--file", "bad.txt"), "such as 2026-12-25"),
        (("--file", "bytes.txt"), "bytes.txt"),
        (("2027-01-01", "-t", "a\0b"), "control"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(hooked: Cli, arguments: tuple[str, ...], reason: str) -> None:
    Path("bad.txt").write_text("2027-01-01 2027-01-02\n")
    Path("bytes.txt").write_bytes(b"\xff\xfe")
    hooked.done("calendar", "put", "bank", "2027-12-25")
    result = hooked("calendar", "put", "bank", *arguments)
    assert (result.code, result.out) == (2, "")
    assert reason in result.err
    assert len(result.err.splitlines()) == 1
    assert hooked.done("calendar", "show", "bank", "--json").json["revision"] == 1


def test_a_calendar_that_is_named_stays(hooked: Cli) -> None:
    hooked.done("calendar", "put", "bank", "2027-12-25")
    hooked.done("schedule", "put", "a", "--target", "hook", "--every", "1h", "--calendar", "bank")
    refused = hooked("calendar", "delete", "bank", "--yes")
    assert refused.code not in (0, 2)
    assert "named by 1 schedules" in refused.err
    assert "1 schedules name it" in hooked.done("calendar", "put", "bank", "2027-12-26").out


ALL = (
    "--cron", "30 9 * * 1-5", "--tz", "Africa/Cairo", "--gap", "shift", "--fold", "both", "--misfire", "catch_up",
    "--misfire-threshold", "90s", "--deadline", "2h", "--catch-up-window", "3d", "--catch-up-cap", "77", "--jitter", "20s",
    "--starts-at", "2030-01-01", "--max-runs", "12", "--exclude", "2030-05-01", "--exclude", "2030-01-07",
    "--calendar", "bank", "--calendar", "own", "--max-attempts", "9", "--retry-base", "0.5", "--retry-cap", "2h",
    "--overlap", "queue_one",
)  # fmt: skip


def test_export_and_apply_know_every_new_field(hooked: Cli) -> None:
    for name in ("bank", "own"):
        hooked.done("calendar", "put", name, "2030-12-25")
    hooked.done("schedule", "put", "a", "--target", "hook", *ALL)
    hooked.done(
        "schedule", "put", "b", "--target", "hook", "--every", "15m", "--tz", "Asia/Tokyo", "--exclude", "2030-05-01"
    )
    hooked.done("schedule", "put", "c", "--target", "hook", "--every", "15m", "--max-runs", "3")
    before = [hooked.done("schedule", "show", name, "--json").json for name in "abc"]
    lines = hooked.done("export").lines
    assert lines[0].items() >= {
        "catch_up_window": "259200s", "catch_up_cap": 77, "max_runs": 12, "exclude": ["2030-01-07", "2030-05-01"],
        "calendars": ["bank", "own"], "tz": "Africa/Cairo", "max_attempts": 9, "retry_base": "0.5s", "retry_cap": "7200s",
        "overlap": "queue_one",
    }.items()  # fmt: skip
    assert "ends_at" not in lines[0], "it follows from max_runs"
    assert (lines[1]["tz"], lines[1]["exclude"]) == ("Asia/Tokyo", ["2030-05-01"])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    same = hooked.done("apply", "-", "--json", stdin=text).json
    assert (same["unchanged"], same["updated"], same["created"]) == (3, 0, 0)
    for name in "abc":
        hooked.done("schedule", "delete", name, "--yes")
    assert hooked.done("apply", "-", "--json", stdin=text).json["created"] == 3
    after = [hooked.done("schedule", "show", name, "--json").json for name in "abc"]
    own = {"id", "created_at", "updated_at", "revision", "next", "ends_at"}
    for one, other in zip(before, after, strict=True):
        assert {key: one[key] for key in one.keys() - own} == {key: other[key] for key in other.keys() - own}
    assert before[0]["ends_at"] == after[0]["ends_at"], "counted from starts_at"
    assert hooked.done("export").lines == lines


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("exclude", "2030-05-01", "a list of texts"),
        ("exclude", [20300501], "a list of texts"),
        ("exclude", ["soon"], "such as 2026-12-25"),
        ("calendars", "bank", "a list of texts"),
        ("calendars", ["nobodys"], "does not exist"),
        ("max_runs", "5", "a whole number"),
        ("max_runs", True, "max_runs"),
        ("max_runs", 0, "max_runs"),
        ("catch_up_cap", 10_001, "catch_up_cap"),
        ("max_attempts", "5", "a whole number"),
        ("max_attempts", 101, "max_attempts"),
        ("retry_base", True, "retry_base"),
        ("retry_base", "soon", "retry_base: expected a duration"),
        ("retry_cap", "8d", "604800"),
        ("retry_cap", [1], "retry_cap"),
        ("catch_up_window", "8d", "604800"),
    ],
)
def test_a_bad_line_is_named(hooked: Cli, field: str, value: object, reason: str) -> None:
    line = {"name": "a", "every": "1h", "target": "hook", field: value}
    result = hooked("apply", "-", stdin=json.dumps(line) + "\n")
    assert result.code == 2
    assert "line 1: a:" in result.err
    assert reason in result.err
    assert hooked.done("schedule", "list", "--json").out == ""


def test_revisions_and_pauses_with_an_end(hooked: Cli) -> None:
    hooked.done("schedule", "put", "a", "--target", "hook", "--every", "1h", "--if-revision", "0")
    again = hooked("schedule", "put", "a", "--target", "hook", "--every", "2h", "--if-revision", "0")
    assert again.code not in (0, 2)
    assert "at revision 0, got 1" in again.err
    past = hooked("schedule", "pause", "a", "--until", "-1h")
    assert past.code == 2
    assert "in the future" in past.err
    paused = hooked.done("schedule", "pause", "a", "--reason", "works", "--until", "+1h", "--if-revision", "1").out
    assert paused.startswith("paused: default/a until 2")
    shown = hooked.done("schedule", "show", "a", "--json").json
    assert (shown["paused"], shown["pause_reason"], shown["revision"]) == (True, "works", 2)
    assert shown["paused_until"].endswith("Z")
    for command in ("pause", "resume", "delete"):
        extra = ("--yes",) if command == "delete" else ()
        refused = hooked("schedule", command, "a", "--if-revision", "1", *extra)
        assert refused.code not in (0, 2), command
        assert "at revision 1, got 2" in refused.err
    hooked.done("schedule", "resume", "a", "--if-revision", "2")
    hooked.done("schedule", "delete", "a", "--if-revision", "3", "--yes")
