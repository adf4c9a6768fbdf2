"""croniter and cronsim as differential oracles, on the plain subset in UTC on which all dialects agree."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from cronsim import CronSim

from bucketd.timing import next_fire, parse_cron, previous_fire

START = datetime(2026, 2, 26, 11, 43, tzinfo=UTC)


def plain_field(rng: random.Random, low: int, high: int) -> str:
    """No wrap, no equal bounds, no `n/s`, no star in a list: there the dialects part."""
    kind = rng.randrange(5)
    if kind == 0:
        return "*"
    if kind == 1:
        return ",".join(str(rng.randint(low, high)) for _ in range(rng.randint(1, 3)))
    left = rng.randint(low, high - 1)
    right = rng.randint(left + 1, high)
    if kind == 2:
        return f"{left}-{right}"
    return f"{left}-{right}/{rng.randint(1, right - left)}" if kind == 3 else f"*/{rng.randint(1, high - low)}"


def plain_expression(rng: random.Random) -> str:
    fields = [plain_field(rng, *bounds) for bounds in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))]
    day = rng.choice((2, 4))
    fields[day] = "*"  # the rule for two day fields has its own tests
    return " ".join(fields)


@pytest.mark.parametrize("seed", range(150))
def test_same_fires_as_croniter_and_cronsim(seed: int) -> None:
    rng = random.Random(seed)
    expr = plain_expression(rng)
    start = START + timedelta(minutes=rng.randrange(3_000_000))
    spec, _ = parse_cron(expr)
    theirs, sim = croniter(expr, start), CronSim(expr, start)
    at_s, fires = int(start.timestamp()), []
    for _ in range(12):
        at_s = next_fire(spec, at_s) or 0
        fires.append(at_s)
        assert at_s == int(theirs.get_next(datetime).timestamp()) == int(next(sim).timestamp()), expr
    backwards = croniter(expr, datetime.fromtimestamp(fires[-1], UTC))
    for _ in range(12):
        at_s = previous_fire(spec, at_s) or 0
        assert at_s == int(backwards.get_prev(datetime).timestamp()), expr


@pytest.mark.parametrize(
    "expr", ["0 0 L * *", "0 12 * * 5#3", "15 6 13 * 5", "0 0 1,15 * 1", "0 0 */2 1 1-5", "5 4 L 2 *"]
)
def test_same_special_days_as_cronsim(expr: str) -> None:
    spec, _ = parse_cron(expr)
    at_s, sim = int(START.timestamp()), CronSim(expr, START)
    for _ in range(60):
        at_s = next_fire(spec, at_s) or 0
        assert at_s == int(next(sim).timestamp())
