"""Durations as people and Go programs write them."""

from datetime import timedelta

import pytest

from bucketd.timing import TimingError, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m0s", 5_400),
        ("24h", 86_400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1d12h", 129_600),
        (" 5M ", 300),
        ("0h1s", 1),
        ("90", 90),
        ("120m", 7_200),
        (1, 1),
        (3_600, 3_600),
        (timedelta(minutes=5), 300),
        (timedelta(days=3_650), 315_360_000),
    ],
)
def test_accepted(text: str | int | timedelta, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "0", "0s", "0h0m", "-5m", "+5m", "1.5h", "500ms", "5 m", "m", "1m1h", "1h1h", "1h30", "1y", "1s\n"),
        *("\u0661s", "3651d", "9" * 60 + "s", "9" * 5_000, "1s" * 40, 0, -1, True, 1.5, None, b"5m", ["5m"], 10**12),
        *(timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=1_500), timedelta(days=3_651)),
    ],
)
def test_refused(value: object) -> None:
    with pytest.raises(TimingError) as caught:
        parse_duration(value)  # type: ignore[arg-type]
    assert caught.value.code == "bad_duration"
    assert str(caught.value).startswith("expected a duration")
    assert len(str(caught.value)) < 250
