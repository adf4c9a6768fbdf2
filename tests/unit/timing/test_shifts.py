"""What other data of a zone move, against lists of fires that are compared whole."""

from datetime import UTC, datetime, timedelta

import pytest

from bucketd.timing import CronError, EverySpec, Spec, fires_between, parse_cron, zone
from bucketd.timing.offsets import DAY_S, ZoneOffsets
from bucketd.timing.shifts import Move, ZoneShift
from bucketd.timing.spec import AtSpec
from bucketd.timing.zones import release_order, zone_data, zone_of
from tests.support.tzif import tzif

HOUR_S = 3_600


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


NOW = at("2026-09-01T00:00")
END = NOW + 400 * DAY_S


def vancouver() -> ZoneShift:
    """As before it stayed on summer time for good."""
    return ZoneShift("America/Vancouver", zone_data("America/Los_Angeles"), NOW, END)


def cron(expression: str, tz: str = "America/Vancouver", **options: str) -> Spec:
    return parse_cron(expression, tz, **options)[0]


def test_releases_have_an_order() -> None:
    releases = ["2025b", "2026a", "2026f", "2026z", "2026aa", "2027a"]
    assert sorted(set(releases), key=release_order) == releases
    for text in ("", "2026", "26a", "2026F", "2026f ", "2026f\n", "2026f.post1"):
        with pytest.raises(ValueError, match="expected a release of tzdata such as 2026f"):
            release_order(text)


def test_a_zone_follows_the_data_it_is_given() -> None:
    assert zone_data("Asia/Tokyo")[:4] == b"TZif"
    with pytest.raises(CronError):
        zone_data("Mars/Olympus")
    other = ZoneOffsets(zone_of(tzif(9 * HOUR_S, [(NOW, 8 * HOUR_S)]), "Asia/Tokyo"))
    assert other.at(NOW - 1).offset_s == 9 * HOUR_S
    assert (other.at(NOW).lo_s, other.at(NOW).offset_s, other.at(END).offset_s) == (NOW, 8 * HOUR_S, 8 * HOUR_S)
    assert zone("Asia/Tokyo").utcoffset(datetime(2026, 9, 1)) == timedelta(hours=9), "the pinned one is another object"
    for broken in (b"", b"TZif", zone_data("Asia/Tokyo")[:60], b"x" * 500):
        with pytest.raises(ValueError, match="expected a TZif file for 'Asia/Tokyo'"):
            zone_of(broken, "Asia/Tokyo")


def test_periods_are_those_of_other_clocks() -> None:
    assert vancouver().periods == [(at("2026-11-01T09:00"), at("2027-03-14T10:00"), -8 * HOUR_S, -7 * HOUR_S)]
    assert ZoneShift("Europe/Berlin", zone_data("Europe/Berlin"), NOW, END).periods == []
    always = ZoneShift("Asia/Tokyo", tzif(8 * HOUR_S), NOW, END)
    assert always.periods == [(NOW, END, 8 * HOUR_S, 9 * HOUR_S)]


def test_the_worked_example() -> None:
    """`0 9 * * *` in Vancouver: 17:00 by 2025b, 16:00 by 2026f."""
    move = vancouver().first_move(cron("0 9 * * *"))
    assert move == Move(at("2026-11-01T17:00"), at("2026-11-01T16:00"))
    assert move is not None
    assert move.at_s == at("2026-11-01T16:00")


@pytest.mark.parametrize(
    ("spec", "moves"),
    [
        (cron("*/15 * * * *"), False),
        (cron("0 0 1 7 *"), False),  # in summer nothing differs
        (cron("0 12 25 12 *"), True),
        (cron("0 */2 * * *"), True),
        (cron("30 1 1 11 *"), False),  # before the change of that day
        (cron("30 1 1 11 *", fold="second"), True),  # by the old data that hour comes twice
        (cron("30 1 1 11 *", fold="both"), True),
        (EverySpec(HOUR_S, (), "America/Vancouver"), False),
        (EverySpec(HOUR_S, (at("2026-12-25T00:00") // DAY_S,), "America/Vancouver"), True),
        (EverySpec(HOUR_S, (at("2026-10-25T00:00") // DAY_S,), "America/Vancouver"), False),
        (EverySpec(12 * HOUR_S, (at("2026-12-25T00:00") // DAY_S,), "America/Vancouver"), False),
        (AtSpec(), False),
    ],
    ids=lambda part: str(part)[:60],
)
def test_what_moves_is_what_differs(spec: Spec, moves: bool) -> None:
    """The slices that are compared hide nothing: the whole lists say the same."""
    shift = vancouver()
    found = shift.first_move(spec)
    old, new = fires_between(shift.by_old(spec), NOW, END), fires_between(spec, NOW, END)
    assert (found is not None) == (old != new) == moves
    if found is not None:
        assert found.at_s == min(set(old) ^ set(new))


def test_a_look_from_later_on_and_one_beside_the_periods() -> None:
    shift, spec = vancouver(), cron("0 9 * * *")
    later = shift.first_move(spec, 0, at("2027-01-05T16:30"))
    assert later == Move(at("2027-01-05T17:00"), at("2027-01-06T16:00"))
    assert shift.first_move(spec, 0, at("2027-03-20T00:00")) is None
    assert not shift.differs_in(at("2026-09-01T00:00"), at("2026-10-20T00:00"))
    assert shift.differs_in(at("2026-10-20T00:00"), at("2026-11-02T00:00"))


def test_a_list_that_ends_by_one_of_them() -> None:
    """By the old data the wall time of the one date that matches is never shown."""
    gap = ZoneShift("Asia/Tokyo", tzif(9 * HOUR_S, [(NOW, 23 * HOUR_S)]), NOW - DAY_S, NOW + 5 * DAY_S)
    spec = cron("0 12 1 9 *", "Asia/Tokyo", gap="skip")
    old, new = fires_between(gap.by_old(spec), NOW - DAY_S, NOW + DAY_S), fires_between(spec, NOW - DAY_S, NOW + DAY_S)
    assert (old, new) == ([], [NOW + 3 * HOUR_S])
    move = gap.first_move(spec)
    assert move is not None
    assert move.new_s == NOW + 3 * HOUR_S
    assert move.at_s == move.new_s
