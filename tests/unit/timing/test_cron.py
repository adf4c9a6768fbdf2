"""What accepted expressions mean: sets, days, H, policies, warnings."""

import hashlib

import pytest

from bucketd.timing import CronSpec, parse_cron


def read(expr: str, seed: str | None = None) -> CronSpec:
    return parse_cron(expr, seed=seed)[0]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("5-5 * * * *", [5]),
        ("08 * * * *", [8]),
        ("5/15 * * * *", [5, 20, 35, 50]),
        ("59/15 * * * *", [59]),
        ("*/90 * * * *", [0]),
        ("0-59/70 * * * *", [0]),
        ("50-10/5 * * * *", [0, 5, 10, 50, 55]),
        ("58-1 * * * *", [0, 1, 58, 59]),
        ("1,1,2-3,3 * * * *", [1, 2, 3]),
        ("*/20,7 * * * *", [0, 7, 20, 40]),
        ("7,* * * * *", list(range(60))),
    ],
)
def test_minutes(expr: str, expected: list[int]) -> None:
    assert list(read(expr).minute) == expected


@pytest.mark.parametrize(
    ("field", "expected"), [("22-2", [0, 1, 2, 22, 23]), ("22-2/2", [0, 2, 22]), ("22-0", [0, 22, 23])]
)
def test_hours(field: str, expected: list[int]) -> None:
    assert list(read(f"0 {field} * * *").hour) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [("NOV-FEB", [1, 2, 11, 12]), ("11-2/3", [2, 11]), ("jan", [1]), ("Mar-5", [3, 4, 5]), ("10/2", [10, 12])],
)
def test_months(field: str, expected: list[int]) -> None:
    assert list(read(f"0 0 * {field} *").days.month) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("7", [0]),
        ("5-7", [0, 5, 6]),
        ("0-7", [0, 1, 2, 3, 4, 5, 6]),
        ("7-7", [0]),
        ("7-2", [0, 1, 2]),
        ("7-2/2", [0, 2]),
        ("FRI-MON", [0, 1, 5, 6]),
        ("SAT-SUN", [0, 6]),
        ("SUN-SUN", [0]),
        ("1/2", [1, 3, 5]),
        ("0-7/7", [0]),
        ("7/2", [0, 2, 4, 6]),
        ("6-1/2", [1, 6]),
        ("*/3", [0, 3, 6]),
    ],
)
def test_weekdays(field: str, expected: list[int]) -> None:
    assert list(read(f"0 0 * * {field}").days.dow) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        (" @MIDNIGHT\t", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@Yearly", "0 0 1 jan *"),
        ("@annually", "0 0 1 1 ?"),
        ("  0\t \t0 ? * mon ", "0 0 * * 1"),
        ("0 0 L,L-0003 * *", "0 0 L-3,L * *"),
        ("0 0 * * FRI#3,5#03", "0 0 * * 5#3"),
        ("0 0 * * SUNL", "0 0 * * 7L"),
        ("0,30 * * * *", "*/30 * * * *"),
        ("* 0-23 * * *", "* * * * *"),
    ],
)
def test_same_rule(one: str, other: str) -> None:
    assert read(one) == read(other)
    assert read(one).rule() == read(other).rule()


@pytest.mark.parametrize(
    ("dom", "dow", "both"),
    [
        ("1", "5", False),
        ("*", "5", True),
        ("1", "*", True),
        ("*/2", "5", True),
        ("1", "*/2", True),
        ("1-31", "5", False),
        ("1", "0-6", False),
        ("?", "5", True),
        ("1", "?", True),
        ("1,*", "5", False),
        ("*,1", "5", True),
        ("L", "5", False),
    ],
)
def test_star_rule(dom: str, dow: str, both: bool) -> None:
    assert read(f"0 0 {dom} * {dow}").days.both is both


@pytest.mark.parametrize(
    ("expr", "gap", "fold"),
    [
        ("30 2 * * *", "run_after", "first"),
        ("*/15 2 * * *", "run_after", "first"),
        ("30 */2 * * *", "run_after", "first"),
        ("30 0-23 * * *", "skip", "both"),
        ("30 */1 * * *", "skip", "both"),
        ("30 12-11 * * *", "skip", "both"),
        ("* 0-22 * * *", "run_after", "first"),
        ("@hourly", "skip", "both"),
    ],
)
def test_class_decides_the_default_policies(expr: str, gap: str, fold: str) -> None:
    spec = read(expr)
    assert (spec.gap, spec.fold) == (gap, fold)


def test_explicit_policies_override() -> None:
    spec, _ = parse_cron("@hourly", gap="shift", fold="second")
    assert (spec.gap, spec.fold) == ("shift", "second")


SEED = "0b4e6f0a-3a54-4f0e-9a34-3d6b1f3f7a11"


def drawn(field: str, position: int) -> int:
    text = f"bucketd-cron-h1|{SEED}|{field}|{position}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def test_hash_is_drawn_as_specified() -> None:
    spec = read("H H H H H", SEED)
    assert spec.minute == (drawn("minute", 0) % 60,)
    assert spec.hour == (drawn("hour", 0) % 24,)
    assert spec.days.dom == (1 + drawn("dom", 0) % 28,)
    assert spec.days.month == (1 + drawn("month", 0) % 12,)
    assert spec.days.dow == (drawn("dow", 0) % 7,)


def test_hash_in_ranges_steps_and_lists() -> None:
    assert read("H(10-19) * * * *", SEED).minute == (10 + drawn("minute", 0) % 10,)
    assert read("H/15 * * * *", SEED).minute == tuple(range(drawn("minute", 0) % 15, 60, 15))
    assert read("* H(9-17)/3 * * *", SEED).hour == tuple(range(9 + drawn("hour", 0) % 3, 18, 3))
    # The position counts all items of the list.
    assert set(read("0,H * * * *", SEED).minute) == {0, drawn("minute", 1) % 60}
    assert set(read("* * * * H(5-7)", SEED).days.dow) == {(5 + drawn("dow", 0) % 3) % 7}


def test_hash_vector_never_moves() -> None:
    """Stored schedules depend on it: these figures may never change under prefix h1."""
    spec = read("H H H H H", SEED)
    assert (spec.minute, spec.hour, spec.days.dom, spec.days.month, spec.days.dow) == VECTOR


VECTOR = ((15,), (22,), (15,), (11,), (4,))


def test_hash_step_may_cover_every_hour() -> None:
    assert read("0 H/1 * * *", SEED).gap == "skip"
    assert len(read("H/60 * * * *", SEED).minute) == 1


@pytest.mark.parametrize(
    ("expr", "count"),
    [
        ("* * * * *", 0),
        ("*/90 * * * *", 1),
        ("0-59/70 * * * *", 1),
        ("*/60 */24 * * *", 0),
        ("59/15 * * * *", 1),
        ("0 0 */2 * 5", 1),
        ("0 0 5 * */2", 1),
        ("0 0 */2 * *", 0),
        ("0 0 1 * 5", 1),
        ("0 0 1-31 * 5", 1),
        ("0 0 ? * 5", 0),
    ],
)
def test_warnings(expr: str, count: int) -> None:
    assert len(parse_cron(expr)[1]) == count


def test_seed_is_ignored_without_hash() -> None:
    assert parse_cron("0 0 * * THU", seed="a") == parse_cron("0 0 * * THU", seed="b")
