"""Stored rules: their text is pinned here, because it is the key of rows that exist."""

import copy
import pickle

import pytest

from bucketd.timing import AtSpec, CronSpec, EverySpec, TimingError, load_rule, next_fire, parse_cron

WEEKDAYS_AT_NINE = (
    '{"days":"both","dom":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31],'
    '"dow":[1,2,3,4,5],"fold":"first","gap":"run_after","hour":[9],"kind":"cron","minute":[0],'
    '"month":[1,2,3,4,5,6,7,8,9,10,11,12],"tz":"Europe/Berlin"}'
)
SPECIAL_DAYS = (
    '{"days":"either","dom":[],"dom_last":[0,3],"dom_last_working":true,"dom_near":[15],"dow":[],"dow_last":[5],'
    '"dow_nth":[[0,1],[3,2]],"fold":"first","gap":"run_after","hour":[0],"kind":"cron","minute":[0],"month":[1],"tz":"UTC"}'
)


def test_rule_text_is_pinned() -> None:
    assert parse_cron("0 9 * * MON-FRI", "Europe/Berlin")[0].rule() == WEEKDAYS_AT_NINE
    assert parse_cron("0 0 LW,L-3,15W,L 1 WED#2,7#1,FRIL")[0].rule() == SPECIAL_DAYS
    assert EverySpec(900).rule() == '{"every_s":900,"kind":"every"}'
    assert AtSpec().rule() == '{"kind":"at"}'


@pytest.mark.parametrize("text", [WEEKDAYS_AT_NINE, SPECIAL_DAYS, '{"every_s":900,"kind":"every"}', '{"kind":"at"}'])
def test_rule_loads(text: str) -> None:
    spec = load_rule(text)
    assert spec.rule() == text
    assert load_rule(text) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert {spec: 1}[load_rule(text)] == 1
    assert spec.kind in text


def test_every_part_of_a_rule_counts() -> None:
    rules = {
        parse_cron(expr, tz, gap=gap, fold=fold)[0].rule()
        for expr in (
            "0 9 * * *",
            "0 9 1 * *",
            "0 9 * 1 *",
            "0 9 * * 1",
            "1 9 * * *",
            "0 8 * * *",
            "0 9 1-31 * 0-6",
            "0 9 L * *",
        )
        for tz in ("UTC", "Europe/Berlin")
        for gap in ("skip", "run_after", "shift")
        for fold in ("first", "second", "both")
    }
    assert len(rules) == 8 * 2 * 3 * 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        "{}",
        '{"kind":"often"}',
        '{"kind":"every"}',
        '{"kind":"every","every_s":900}',
        '{"every_s":0,"kind":"every"}',
        '{"every_s":"9","kind":"every"}',
        '{"kind":"at","x":1}',
        WEEKDAYS_AT_NINE.replace("run_after", "auto"),
        WEEKDAYS_AT_NINE.replace("first", "auto"),
        WEEKDAYS_AT_NINE.replace("Europe/Berlin", "Europe/Atlantis"),
        WEEKDAYS_AT_NINE.replace('"Europe/Berlin"', "[]"),
        WEEKDAYS_AT_NINE.replace('"hour":[9],', ""),
        WEEKDAYS_AT_NINE.replace('"hour":[9]', '"hour":[]'),
        WEEKDAYS_AT_NINE.replace('"hour":[9]', '"hour":[24]'),
        WEEKDAYS_AT_NINE.replace('"hour":[9]', '"hour":[9,8]'),
        WEEKDAYS_AT_NINE.replace('"hour":[9]', '"hour":["9"]'),
        WEEKDAYS_AT_NINE.replace('"minute":[0]', '"minute":[60]'),
        WEEKDAYS_AT_NINE.replace('"minute":[0]', '"minute":[0,0]'),
        WEEKDAYS_AT_NINE.replace('"minute":[0]', '"minute":[true]'),
        WEEKDAYS_AT_NINE.replace('"minute":[0]', '"minute":[0.0]'),
        WEEKDAYS_AT_NINE.replace('"minute":[0]', '"minute":[[]]'),
        WEEKDAYS_AT_NINE.replace('"days":"both"', '"days":"any"'),
        SPECIAL_DAYS.replace("[0,3]", "[31]"),
        SPECIAL_DAYS.replace("[[0,1],[3,2]]", "[[0,6]]"),
        SPECIAL_DAYS.replace("[[0,1],[3,2]]", "[[0,1,2]]"),
        SPECIAL_DAYS.replace("true", "1"),
        SPECIAL_DAYS + " ",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(TimingError) as caught:
        load_rule(text)
    assert caught.value.code in ("bad_rule", "bad_duration", "unknown_time_zone")
    assert str(caught.value).startswith("expected ")


@pytest.mark.parametrize("every_s", [0, -1, True, 1.5, "5"])
def test_interval_is_at_least_a_second(every_s: object) -> None:
    with pytest.raises(TimingError):
        EverySpec(every_s)  # type: ignore[arg-type]


def test_specs_of_one_rule_share_their_tables() -> None:
    """Millions of schedules load thousands of rules: a second copy of a rule costs its own fields alone."""
    one, other = load_rule(WEEKDAYS_AT_NINE), load_rule(WEEKDAYS_AT_NINE)
    assert isinstance(one, CronSpec)
    assert isinstance(other, CronSpec)
    assert one.walls is other.walls
    assert one.offsets is other.offsets
    assert next_fire(one, 0) == next_fire(other, 0)
