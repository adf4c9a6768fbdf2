"""Laws that every accepted expression obeys, in windows around changes of offset and far from them."""

from datetime import UTC, datetime

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from bucketd.timing import CronError, CronSpec, fires_between, load_rule, next_fire, parse_cron, previous_fire
from bucketd.timing.offsets import offsets_of
from tests.support.walk import walk_cron
from tests.unit.timing.strategies import changes, expressions, policies

DAY_S = 86_400


def accepted(expr: str, tz: str, gap: str = "auto", fold: str = "auto") -> CronSpec:
    try:
        return parse_cron(expr, tz, gap=gap, fold=fold)[0]
    except CronError as error:
        if error.code == "never_fires":
            reject()
        raise


@settings(max_examples=250, deadline=None)
@given(expressions, changes, policies)
def test_agrees_with_the_walk(expr: str, change: tuple[str, int], policy: tuple[str, str]) -> None:
    tz, at_s = change
    spec = accepted(expr, tz, *policy)
    start_s, end_s = at_s - 30 * 3_600, at_s + 30 * 3_600
    walked = walk_cron(expr, tz, moment(start_s), moment(end_s), *policy)
    assert fires_between(spec, start_s, end_s) == [int(fire.timestamp()) for fire in walked]


@settings(max_examples=60, deadline=None)
@given(
    expressions, st.integers(-1_500_000_000, 7_000_000_000), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"])
)
def test_agrees_with_the_walk_anywhere(expr: str, start_s: int, tz: str) -> None:
    spec = accepted(expr, tz)
    start_s -= start_s % 60
    walked = walk_cron(expr, tz, moment(start_s), moment(start_s + DAY_S))
    assert fires_between(spec, start_s, start_s + DAY_S) == [int(fire.timestamp()) for fire in walked]


@settings(max_examples=300, deadline=None)
@given(expressions, changes, policies, st.integers(-200_000, 200_000))
def test_fires_form_one_ascending_list(
    expr: str, change: tuple[str, int], policy: tuple[str, str], shift_s: int
) -> None:
    """Strictly increasing; the same list from any of its members, forwards and backwards."""
    spec = accepted(expr, change[0], *policy)
    after_s = change[1] + shift_s
    fires: list[int] = []
    at_s = next_fire(spec, after_s)
    while at_s is not None and len(fires) < 40:
        assert at_s > (fires[-1] if fires else after_s)
        assert next_fire(spec, at_s - 1) == at_s
        assert previous_fire(spec, at_s + 1) == at_s
        if fires:
            assert previous_fire(spec, at_s) == fires[-1]
        fires.append(at_s)
        at_s = next_fire(spec, at_s)
    if fires:
        before_s = previous_fire(spec, fires[0])
        assert before_s is None or before_s <= after_s
        assert fires_between(spec, after_s + 1, fires[-1] + 1) == fires
        assert fires_between(spec, after_s + 1, fires[-1] + 1, limit=3) == fires[:3]


@settings(max_examples=200, deadline=None)
@given(expressions, changes, st.sampled_from(["run_after", "skip", "shift"]))
def test_each_fire_shows_its_wall_time_or_is_made_up(expr: str, change: tuple[str, int], gap: str) -> None:
    spec = accepted(expr, change[0], gap, "both")
    start_s, end_s = change[1] - 2 * DAY_S, change[1] + 2 * DAY_S
    offsets = offsets_of(change[0])
    for fire_s in fires_between(spec, start_s, end_s):
        stretch = offsets.at(fire_s)
        if shows_match(spec, fire_s + stretch.offset_s):
            continue
        if gap == "run_after":
            assert fire_s == stretch.lo_s
        else:
            assert gap == "shift"
            assert shows_match(spec, fire_s + stretch.before_s)


@settings(max_examples=150, deadline=None)
@given(expressions, changes)
def test_both_passes_are_first_and_second(expr: str, change: tuple[str, int]) -> None:
    start_s, end_s = change[1] - 2 * DAY_S, change[1] + 2 * DAY_S
    first, second, both = (
        set(fires_between(accepted(expr, change[0], "run_after", fold), start_s, end_s))
        for fold in ("first", "second", "both")
    )
    assert both == first | second


@settings(max_examples=60, deadline=None)
@given(expressions, policies, st.integers(0, 4_000_000_000))
def test_policies_change_nothing_in_utc(expr: str, policy: tuple[str, str], after_s: int) -> None:
    plain, other = accepted(expr, "UTC"), accepted(expr, "UTC", *policy)
    assert next_fire(plain, after_s) == next_fire(other, after_s)
    assert previous_fire(plain, after_s) == previous_fire(other, after_s)


@settings(max_examples=150, deadline=None)
@given(expressions, changes, policies)
def test_stored_rule_reads_back(expr: str, change: tuple[str, int], policy: tuple[str, str]) -> None:
    spec = accepted(expr, change[0], *policy)
    loaded = load_rule(spec.rule())
    assert loaded == spec
    assert hash(loaded) == hash(spec)
    assert loaded.rule() == spec.rule()
    assert "auto" not in spec.rule()
    assert len(spec.rule()) < 1_200


@settings(max_examples=100, deadline=None)
@given(expressions, expressions)
def test_equal_rules_have_equal_text(one: str, other: str) -> None:
    left, right = accepted(one, "UTC"), accepted(other, "UTC")
    assert (left == right) == (left.rule() == right.rule())


def shows_match(spec: CronSpec, wall_s: int) -> bool:
    return spec.walls.next(wall_s) == wall_s


def moment(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
