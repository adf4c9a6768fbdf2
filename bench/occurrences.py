"""How fast is a next fire, beside the libraries that users come from?

Purpose: planning and settling enumerate the fires of every spec, so a next fire must cost microseconds at most. The
aim is 100,000 a second on one core for common rules.
Command: ``python -m bench.occurrences --json`` (last line one JSON object; about 4 s).
Method: one thread, warm tables; a chain of fires from 2026-01-01 in the zone given, best of 3 passes. ``scattered``
asks after random instants of 2026 and 2027 instead, ``window`` lists a year with `fires_between`. Before it is timed,
each peer's chain is compared with ours; it stops before the first change of offset, where the peers' rules differ.
Machine: 2 shared cores, Python 3.11.
Last result, slowest to fastest rule: next_fire 0.66 to 1.04 M/s, scattered 0.56 to 0.65 M/s, window 0.37 to 18 M/s;
croniter 7.0.0 17 to 25 k/s, cronsim 2.8 27 to 92 k/s.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from croniter import croniter
from cronsim import CronSim

from bucketd.timing import CronSpec, fires_between, next_fire, parse_cron, zone

START_S = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
YEAR_S = 365 * 86_400
RULES = [
    ("*/5 * * * *", "UTC"),
    ("0 9 * * 1-5", "America/New_York"),
    ("30 2 * * *", "Europe/Berlin"),
    ("0 0 1 * *", "Asia/Tokyo"),
]
CHAIN = 20_000
PEER_CHAIN = 400
CHECKED = 60


def main() -> None:
    parser = argparse.ArgumentParser(description="next fires per second, beside croniter and cronsim")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    quiet = parser.parse_args().json
    rules = []
    for expr, tz in RULES:
        figures = measure(expr, tz)
        rules.append({"expr": expr, "tz": tz, **figures})
        if not quiet:
            print(f"{expr:16} {tz:18}", *(f"{name} {figure:>10,}/s" for name, figure in figures.items()))
    slowest = min(figures["next_fire_per_s"] for figures in map(_figures, rules))
    print(json.dumps({"next_fire_per_s": slowest, "rules": rules, "peers_agree": True}))


def measure(expr: str, tz: str) -> dict[str, int]:
    spec, _ = parse_cron(expr, tz)
    begin = datetime.fromtimestamp(START_S, zone(tz))
    check(spec, expr, begin)
    rng = random.Random(1)
    instants = [START_S + rng.randrange(2 * YEAR_S) for _ in range(CHAIN)]
    window = len(fires_between(spec, START_S, START_S + YEAR_S))
    return {
        "next_fire_per_s": rate(lambda: chain(spec), CHAIN),
        "scattered_per_s": rate(lambda: scattered(spec, instants), CHAIN),
        "window_per_s": rate(lambda: fires_between(spec, START_S, START_S + YEAR_S), window),
        "croniter_per_s": rate(lambda: croniter_chain(expr, begin, PEER_CHAIN), PEER_CHAIN),
        "cronsim_per_s": rate(lambda: cronsim_chain(expr, begin, PEER_CHAIN), PEER_CHAIN),
    }


def chain(spec: CronSpec) -> None:
    at_s: int | None = START_S
    for _ in range(CHAIN):
        # Not beyond what a scheduler looks at: tables of far centuries are another question.
        at_s = next_fire(spec, START_S if at_s is None or at_s > START_S + 20 * YEAR_S else at_s)


def scattered(spec: CronSpec, instants: list[int]) -> None:
    for at_s in instants:
        next_fire(spec, at_s)


def croniter_chain(expr: str, begin: datetime, count: int) -> list[int]:
    fires = croniter(expr, begin)
    return [int(fires.get_next(float)) for _ in range(count)]


def cronsim_chain(expr: str, begin: datetime, count: int) -> list[int]:
    fires = CronSim(expr, begin)
    return [int(next(fires).timestamp()) for _ in range(count)]


def check(spec: CronSpec, expr: str, begin: datetime) -> None:
    before_summer_s = START_S + 60 * 86_400
    ours = fires_between(spec, START_S + 1, before_summer_s, limit=CHECKED)
    for peer in (croniter_chain, cronsim_chain):
        theirs = [fire for fire in peer(expr, begin, CHECKED) if fire < before_summer_s]
        if theirs != ours:
            raise SystemExit(f"{peer.__name__} disagrees on {expr}: expected {ours[:5]}, got {theirs[:5]}")


def rate(work: Callable[[], object], count: int) -> int:
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return int(count / best)


def _figures(rule: dict[str, object]) -> dict[str, int]:
    return {name: figure for name, figure in rule.items() if isinstance(figure, int)}


if __name__ == "__main__":
    main()
