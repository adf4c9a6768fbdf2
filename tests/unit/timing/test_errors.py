"""Every error code, the order of the checks, and that bad text never gets through or takes long."""

import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.timing import CronError, CronSpec, TimingError, parse_cron

STARS = {"minute": "{} * * * *", "hour": "* {} * * *", "dom": "* * {} * *", "month": "* * * {} *", "dow": "* * * * {}"}

WHOLE = [
    ("", "empty"),
    (" \t ", "empty"),
    (" " * 300, "empty"),
    ("*" * 257, "too_long"),
    ("\n" * 300, "too_long"),
    ("* * * * *\n", "bad_character"),
    ("*\u00a0* * * *", "bad_character"),
    ("* * * * \x00", "bad_character"),
    ("\u0661 * * * *", "bad_character"),
    ("\u00b2 * * * *", "bad_character"),
    ("TZ=UTC * * * * *", "tz_prefix"),
    ("  cron_tz=UTC * * * * *", "tz_prefix"),
    ("@reboot", "unknown_macro"),
    ("@every 5m", "unknown_macro"),
    ("@daily x", "unknown_macro"),
    ("@", "unknown_macro"),
    ("* * * *", "field_count"),
    ("* * * * * *", "field_count"),
    ("0 0 * * * * 2026", "field_count"),
    ("0 0 30 2 *", "never_fires"),
    ("0 0 31 2,4,6,9,11 *", "never_fires"),
    ("0 0 L-30 4 *", "never_fires"),
    ("0 0 L-29 2 *", "never_fires"),
    ("0 0 31W 4 *", "never_fires"),
    ("0 0 1-7 * */1#5", "bad_token"),
    ("0 0 ? 2 30", "out_of_range"),
    ("0 0 30 2 ?", "never_fires"),
]
ANYWHERE = [
    *("1,,2", "1-", "-1", "**", "*5", "+5", "1.5", "R", "6~15", "*/-2", "H-30", "*/", "/5", "1-2-3", "1/2/3", "X"),
    *("H(1-2", "H()", "H(1-)", "HH", "5H", ",", "1,", ",1", "?,1", "?/2", "L/2", "L-", "#", "1#", "#1", "1-L"),
    *("L5", "W15", "1-5-", "0x5", "1_0", "\\"),
]
MISPLACED = [
    ("minute", ["?", "L", "5W", "1#2", "5L", "MON", "JAN", "LW", "L-3"]),
    ("hour", ["?", "L", "5W", "1#2", "5L", "MON", "JAN", "LW", "L-3"]),
    ("dom", ["1#2", "5L", "MON", "JAN", "WL", "1-5W", "LW-1", "15W/2", "L-3-4", "L3"]),
    ("month", ["?", "L", "5W", "1#2", "5L", "MON", "JANUARY", "LW", "JANL", "JA"]),
    ("dow", ["L", "5W", "JAN", "LW", "MONDAY", "L-3", "5#3/2", "1-5#2", "#3", "MON#", "5L/2", "LFRI", "L5"]),
]
RANGES = [
    ("minute", ["60", "0-60", "60/2", "H(0-60)", "H/61", "H(0-9)/11", "99999999999999999999"]),
    ("hour", ["24", "23-24", "H(0-24)", "H/25"]),
    ("dom", ["0", "32", "0-5", "L-0", "L-31", "0W", "32W", "H(0-5)", "H/29", "H(1-31)/32"]),
    ("month", ["0", "13", "JAN-13", "H/13"]),
    ("dow", ["8", "1-8", "8#1", "1#0", "1#6", "8L", "H(1-8)", "H/8"]),
]


@pytest.mark.parametrize(("expr", "code"), WHOLE)
def test_whole_text(expr: str, code: str) -> None:
    assert refusal(expr).code == code


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["* * * * *"]])
def test_not_a_string_is_empty(value: object) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(value)  # type: ignore[arg-type]
    assert caught.value.code == "empty"


@pytest.mark.parametrize("field", STARS)
@pytest.mark.parametrize("token", ANYWHERE)
def test_bad_token_anywhere(field: str, token: str) -> None:
    error = refusal(STARS[field].format(token))
    assert (error.code, error.field) == ("bad_token", field)


@pytest.mark.parametrize(("field", "token"), [(field, token) for field, tokens in MISPLACED for token in tokens])
def test_bad_token_in_the_wrong_field(field: str, token: str) -> None:
    error = refusal(STARS[field].format(token))
    assert (error.code, error.field, error.token) == ("bad_token", field, token.lower())


@pytest.mark.parametrize(("field", "token"), [(field, token) for field, tokens in RANGES for token in tokens])
def test_out_of_range(field: str, token: str) -> None:
    error = refusal(STARS[field].format("1," + token))
    assert (error.code, error.field, error.token) == ("out_of_range", field, token.lower())


@pytest.mark.parametrize("field", STARS)
@pytest.mark.parametrize("token", ["*/0", "1/0", "1-5/0", "5-1/00", "H/0", "H(1-5)/0"])
def test_bad_step(field: str, token: str) -> None:
    error = refusal(STARS[field].format(token))
    assert (error.code, error.field) == ("bad_step", field)


@pytest.mark.parametrize("field", STARS)
def test_bad_range_and_missing_seed(field: str) -> None:
    assert refusal(STARS[field].format("H(5-1)")).code == "bad_range"
    assert refusal(STARS[field].format("H(5-1)/3")).code == "bad_range"
    for token in ("H", "1,H", "H(1-5)", "H/2"):
        with pytest.raises(CronError) as caught:
            parse_cron(STARS[field].format(token))
        assert (caught.value.code, caught.value.field) == ("hash_seed_missing", field)


@pytest.mark.parametrize(
    "tz",
    [
        *("localtime", "right/UTC", "posix/UTC", "../etc/passwd", "/usr/share/zoneinfo/UTC", "+02:00", "PDT", "utc"),
        *("europe/berlin", "Europe/Berlin ", "", "Europe", "zones", "UTC\x00", None, 3, ["UTC"]),
    ],
)
def test_unknown_time_zone(tz: object) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron("* * * * *", tz)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.field) == ("unknown_time_zone", "tz")


@pytest.mark.parametrize(
    ("expr", "code", "field"),
    [
        ("61 * * * 1,,2", "bad_token", "dow"),
        ("*/0 24 * * *", "out_of_range", "hour"),
        ("H(9-1) * */0 * *", "bad_step", "dom"),
        ("1,,2 x * * *", "bad_token", "minute"),
        ("\n * * * * * *", "bad_character", None),
        ("@\n", "bad_character", None),
    ],
)
def test_checks_run_in_the_documented_order(expr: str, code: str, field: str | None) -> None:
    error = refusal(expr)
    assert (error.code, error.field) == (code, field)


def test_field_count_says_why() -> None:
    assert "seconds and years are not supported" in str(refusal("0 0 0 * * *"))


@pytest.mark.parametrize("policy", [{"gap": "later"}, {"fold": "twice"}, {"gap": ""}, {"fold": None}])
def test_bad_policy(policy: dict[str, str]) -> None:
    with pytest.raises(TimingError) as caught:
        parse_cron("* * * * *", **policy)
    assert caught.value.code == "bad_policy"


def test_error_survives_pickling() -> None:
    error = refusal("* * 32 * *")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.field, copy.token, str(copy)) == (error.code, error.field, error.token, str(error))


_WORDS = ["MON", "JAN", "FRI-MON", "LW", "15W", "H(1-5)", "*/5", "  ", "T"]
_TOKENS = st.sampled_from([*"0123456789*/-,?LWH#() \t@=", *_WORDS])


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=256), st.lists(_TOKENS, max_size=60).map("".join)))
def test_any_text_is_accepted_or_refused_with_a_code(expr: str) -> None:
    begin = time.thread_time()
    found = outcome(expr)
    assert isinstance(found, CronSpec) or (found.code and "expected" in str(found))
    assert time.thread_time() - begin < 0.05  # 10 ms promised; the rest is a slow machine's


@pytest.mark.parametrize(
    "expr",
    [
        ("0-59," * 40 + "1 * * * *"),
        ("* * " + "L," * 120 + "L * *"),
        "0 0 30 2 *",
        "0 0 31W 2,4,6 *",
        "9" * 247 + " * * * *",
        "*/" + "9" * 240 + " * * * *",
        "H(" * 120 + " * * * *",
    ],
)
def test_hostile_text_ends_quickly(expr: str) -> None:
    assert len(expr) <= 256
    begin = time.thread_time()
    outcome(expr)
    assert time.thread_time() - begin < 0.03


def outcome(expr: str) -> CronSpec | CronError:
    try:
        return parse_cron(expr, seed="s")[0]
    except CronError as error:
        return error


def refusal(expr: str) -> CronError:
    with pytest.raises(CronError) as caught:
        parse_cron(expr, seed="seed")
    assert str(caught.value).startswith("expected ")
    return caught.value
