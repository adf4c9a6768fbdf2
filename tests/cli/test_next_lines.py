"""`bucketd next --jsonl`: every rule holds through this door, and no line stops it."""

import io
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.cli.next_lines import LONGEST_LINE, answer, answer_lines
from bucketd.timing import fires_between, next_fire, parse_cron
from tests.cli.conftest import Cli

NEW_YORK = {"tz": "America/New_York"}
AFTER = {"after": "2026-03-07T20:00:00Z"}
DAILY = {"expr": "0 9 * * *"}


def asked(**line: Any) -> Any:
    return json.loads(answer(json.dumps(line).encode()))


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ({"expr": "30 2 * * *", **NEW_YORK, **AFTER, "n": 2}, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
        (
            {"expr": "30 2 * * *", **NEW_YORK, **AFTER, "n": 2, "gap": "shift"},
            ["2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            {"expr": "30 1 * * *", **NEW_YORK, "after": "2026-11-01T00:00Z", "n": 2, "fold": "both"},
            ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"],
        ),
        # after is exclusive, to the microsecond, and may have an offset
        ({**DAILY, "after": "2026-03-07T09:00:00Z", "n": 1}, ["2026-03-08T09:00:00Z"]),
        ({**DAILY, "after": "2026-03-07T08:59:59.999999Z", "n": 1}, ["2026-03-07T09:00:00Z"]),
        ({**DAILY, "after": "2026-03-07T09:00:00.000001Z", "n": 1}, ["2026-03-08T09:00:00Z"]),
        ({**DAILY, "after": "2026-03-07T10:59:59.5+02:00", "n": 1}, ["2026-03-07T09:00:00Z"]),
        ({**DAILY, "after": "1969-12-31T08:59:59.5Z", "n": 1}, ["1969-12-31T09:00:00Z"]),
        # the ends of the calendar
        ({**DAILY, "after": "0001-01-01T00:00:00+14:00", "n": 1}, ["0001-01-01T09:00:00Z"]),
        ({**DAILY, "after": "9999-12-30T09:00:00Z", "n": 5}, ["9999-12-31T09:00:00Z"]),
        ({**DAILY, "after": "9999-12-31T23:00:00-12:00", "n": 5}, []),
        # intervals and instants
        ({"every": "15m", "after": "2026-03-07T20:00:00.5Z", "n": 2}, ["2026-03-07T20:15:00Z", "2026-03-07T20:30:00Z"]),
        ({"every": 3600, "phase": 90, "after": "2026-03-07T20:00Z", "n": 1}, ["2026-03-07T20:01:30Z"]),
        ({"every": "1h", "phase": "90s", "after": "2026-03-07T20:01:30Z", "n": 1}, ["2026-03-07T21:01:30Z"]),
        ({"every": "1h", "phase": 0, "after": "2026-03-07T20:00Z", "n": 1}, ["2026-03-07T21:00:00Z"]),
        ({"at": "2026-03-07T20:00:00.2Z", **AFTER}, ["2026-03-07T20:00:01Z"]),
        ({"at": "2026-03-07T20:00:00Z", **AFTER}, []),
        # null is absent
        ({**DAILY, "every": None, "tz": None, "gap": None, "fold": None, "seed": None, "n": 1, **AFTER},
         ["2026-03-08T09:00:00Z"]),
    ],
)  # fmt: skip
def test_fires(line: dict[str, Any], fires: list[str]) -> None:
    assert asked(id=7, **line) == {"id": 7, "fires": fires}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ({"expr": ""}, "empty"),
        ({"expr": None}, "empty"),
        ({"expr": 5}, "empty"),
        ({"expr": "*" * 257}, "too_long"),
        ({"expr": "\u0661 * * * *"}, "bad_character"),
        ({"expr": "* * * * *\0"}, "bad_character"),
        ({"expr": "TZ=UTC * * * * *"}, "tz_prefix"),
        ({"expr": "@reboot"}, "unknown_macro"),
        ({"expr": "* * * *"}, "field_count"),
        ({"expr": "1,,2 * * * *"}, "bad_token"),
        ({"expr": "60 * * * *"}, "out_of_range"),
        ({"expr": "*/0 * * * *"}, "bad_step"),
        ({"expr": "H(9-1) * * * *", "seed": "s"}, "bad_range"),
        ({"expr": "H * * * *"}, "hash_seed_missing"),
        ({**DAILY, "tz": "Mars/Olympus"}, "unknown_time_zone"),
        ({**DAILY, "tz": ["UTC"]}, "unknown_time_zone"),
        ({"expr": "0 0 30 2 *"}, "never_fires"),
        ({**DAILY, "gap": "later"}, "bad_policy"),
        ({**DAILY, "fold": ["first"]}, "bad_policy"),
        ({"every": "0s"}, "bad_duration"),
        ({"every": 1.5}, "bad_duration"),
        ({"every": True}, "bad_duration"),
        ({"every": "1h", "tz": "Mars/Olympus"}, "unknown_time_zone"),
        ({"every": "1h", "phase": "x"}, "bad_duration"),
        ({"every": "1h", "phase": 3_600}, "bad_request"),
        ({"every": "1h", "phase": False}, "bad_duration"),
        ({"at": "2026-03-07"}, "bad_request"),
        ({"at": "soon"}, "bad_request"),
        ({"at": 5}, "bad_request"),
        ({**DAILY, "after": "2026-03-07T20:00"}, "bad_request"),
        ({**DAILY, "after": "2026-02-30T20:00Z"}, "bad_request"),
        ({**DAILY, "n": 0}, "bad_request"),
        ({**DAILY, "n": 10_001}, "bad_request"),
        ({**DAILY, "n": 10**400}, "bad_request"),
        ({**DAILY, "n": True}, "bad_request"),
        ({**DAILY, "n": "5"}, "bad_request"),
        ({**DAILY, "seed": 5}, "bad_request"),
        ({**DAILY, "seed": "\ud800"}, "bad_request"),
        ({**DAILY, "every": "1h"}, "bad_request"),
        ({}, "bad_request"),
        ({"every": None, "at": None}, "bad_request"),
    ],
)
def test_errors(line: dict[str, Any], code: str) -> None:
    assert asked(id="x", **line) == {"id": "x", "error": code}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"{", b"[]", b"5", b"null", b"\xff\xfe", b"\0", b'{"id":1,"expr":NaN}', b"[" * 100_000,
        b'{"id":1,"every":' + b"9" * 5_000 + b"}", b'{"id":1e999,"expr":"* * * * *"}', b"\xef\xbb\xbf{}",
        b"{" + b" " * LONGEST_LINE + b"}",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_bad_request(raw: bytes) -> None:
    assert json.loads(answer(raw)) == {"id": None, "error": "bad_request"}


@pytest.mark.parametrize("identity", [None, 0, -1.5, 'a\u00e4\u2028"', [1, {"b": None}], {}, True, 2**70, "\ud800"])
def test_any_id_is_echoed(identity: Any) -> None:
    assert asked(id=identity, every="1h", **AFTER, n=1) == {"id": identity, "fires": ["2026-03-07T21:00:00Z"]}
    assert asked(id=identity)["id"] == identity


def test_defaults_are_utc_now_and_five() -> None:
    before = datetime.now(UTC)
    fires = [datetime.fromisoformat(at) for at in asked(expr="* * * * *")["fires"]]
    assert len(fires) == 5
    assert 0 < (fires[0] - before).total_seconds() <= 61
    assert asked(expr="* * * * *", unheard_of=1)["id"] is None


@pytest.mark.parametrize("n", [1, 100, 101, 10_000])
def test_many_fires_are_the_same_fires(n: int) -> None:
    """`after` is a fire itself."""
    spec, _ = parse_cron("*/7 1-3 * * *", "America/New_York")
    start_s = int(datetime(2026, 3, 7, 6, tzinfo=UTC).timestamp())
    assert next_fire(spec, start_s - 1) == start_s
    wanted = fires_between(spec, start_s + 1, start_s + 10**9, limit=n)
    fires = asked(expr="*/7 1-3 * * *", **NEW_YORK, after="2026-03-07T06:00:00Z", n=n)["fires"]
    assert [int(datetime.fromisoformat(at).timestamp()) for at in fires] == wanted
    assert len(fires) == n


def test_lines_come_back_in_order_whatever_the_chunks() -> None:
    class Drops(io.BytesIO):
        """Gives a few bytes at a time, as a slow pipe does."""

        def read1(self, size: int | None = -1) -> bytes:
            return super().read1(7)

    lines = [b'{"id":1,"expr":"0 9 * * *"}', b"", b"nonsense", b'{"id":4,"every":"1h"}']
    told = io.StringIO()
    answer_lines(Drops(b"\n".join(lines)), told)
    assert [json.loads(line)["id"] for line in told.getvalue().splitlines()] == [1, None, None, 4]


def test_a_line_without_end_takes_no_memory() -> None:
    told = io.StringIO()
    answer_lines(io.BytesIO(b"x" * (3 * LONGEST_LINE) + b'\n{"id":2,"every":"1h"}\r\n'), told)
    assert [json.loads(line).get("error", "") for line in told.getvalue().splitlines()] == ["bad_request", ""]


def test_command_needs_no_store_and_says_nothing_else(bare: Cli) -> None:
    done = bare.done(
        "next", "--jsonl", stdin='{"id":1,"expr":"0 9 * * *","n":1,"after":"2026-03-07T20:00Z"}\n{"id":2}\n'
    )
    assert done.out == '{"id":1,"fires":["2026-03-08T09:00:00Z"]}\n{"id":2,"error":"bad_request"}\n'
    assert done.err == ""
    refused = bare("next", "* * * * *", "--jsonl")
    assert refused.code == 2
    assert "--jsonl alone" in refused.err


def test_a_program_may_ask_and_wait() -> None:
    """An answer does not wait for the end of the input; an unbuffered interpreter would hide that it does."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-m", "bucketd", "next", "--jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=buffered,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(json.dumps({"id": number, "every": "1h", "n": 1}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def test_shared_expressions_are_quick() -> None:
    lines = [json.dumps({"id": n, "expr": f"{n % 60} 9 * * *", **NEW_YORK, **AFTER}).encode() for n in range(5_000)]
    answer(lines[0])
    begin = time.thread_time()
    for line in lines:
        answer(line)
    assert time.thread_time() - begin < 2.5  # 2,000 a second: far below what a machine at rest does


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_keys = st.sampled_from(["id", "expr", "every", "at", "tz", "after", "gap", "fold", "seed", "n", "phase"])
_likely = st.sampled_from(["0 9 * * *", "H * * * *", "UTC", "1h", "2026-01-01T00:00Z", "skip", "both", "auto", 3])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_keys, _likely | _values, max_size=8))
def test_no_object_breaks_it(line: dict[str, Any]) -> None:
    found = json.loads(answer(json.dumps(line).encode()))
    assert set(found) in ({"id", "fires"}, {"id", "error"})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_it(raw: bytes) -> None:
    assert set(json.loads(answer(raw))) in ({"id", "fires"}, {"id", "error"})
