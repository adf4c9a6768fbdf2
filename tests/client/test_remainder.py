"""The estimate of what is to come is exact for a cron within its budget, and never below the truth."""

from bucketd.client import remainder
from bucketd.client.remainder import at_most
from bucketd.store.waiting import Share
from bucketd.timing import EverySpec, fires_between, parse_cron

NOON_S = 1_793_102_400  # 2026-10-27T12:00Z, days after Berlin's clocks went back
DAY_S = 86_400


def test_crons_are_counted(monkeypatch: object) -> None:
    spec = parse_cron("*/20 1-3 * * *", "Europe/Berlin")[0]
    low_s = NOON_S - 10 * DAY_S
    fires = fires_between(spec, low_s, NOON_S)
    assert at_most([Share(1, "cron", None, 0, 3, 0)], {1: spec}, low_s, NOON_S) == 3 * len(fires)
    assert at_most([Share(1, "cron", None, 7, 3, 0)], {1: spec}, low_s, NOON_S) == 3 * 7, "so many a schedule"
    assert at_most([Share(1, "cron", None, 0, 3, 0)], {1: spec}, NOON_S, low_s) == 0


def test_beyond_the_budget_it_is_no_less_than_the_truth() -> None:
    for text in ("* * * * *", "0 2 * * *", "*/7 */5 1 * *"):
        spec = parse_cron(text, "Europe/Berlin", fold="both")[0]
        for days in (1, 30, 400):
            low_s, share = NOON_S - days * DAY_S, Share(1, "cron", None, 0, 1, 0)
            true = len(fires_between(spec, low_s, NOON_S))
            budget, remainder.COUNTED = remainder.COUNTED, 0
            try:
                assert true <= at_most([share], {1: spec}, low_s, NOON_S) <= (days + 3) * 1_440
            finally:
                remainder.COUNTED = budget
            assert at_most([share], {}, low_s, NOON_S) == days * 1_440, (
                "a spec that cannot be read counts for every minute"
            )


def test_intervals_and_one_shots_need_no_counting() -> None:
    for phase in range(0, 700, 50):
        true = len(fires_between(EverySpec(700), NOON_S, NOON_S + 3_600, phase))
        assert true <= at_most([Share(1, "every", 700, 0, 1, 0)], {}, NOON_S, NOON_S + 3_600) == 6
    assert at_most([Share(1, "at", None, 1, 9, 4)], {}, NOON_S, NOON_S + 60) == 4
