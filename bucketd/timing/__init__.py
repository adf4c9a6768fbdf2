"""Pure time: what an expression means, when it fires, and what becomes of a missed slot.

No clock, no I/O but reading tzdata (once a zone).
"""

from bucketd.timing.cron import parse_cron
from bucketd.timing.duration import parse_duration
from bucketd.timing.errors import CronError, TimingError
from bucketd.timing.misfire import Judgement, MisfirePolicy, Verdict, judge
from bucketd.timing.occurrences import count_between, fires_between, next_fire, nth_fire, previous_fire
from bucketd.timing.spec import AtSpec, CronSpec, EverySpec, Spec, load_rule
from bucketd.timing.zones import TZDATA_VERSION, is_zone, zone

__all__ = [
    "TZDATA_VERSION",
    "AtSpec",
    "CronError",
    "CronSpec",
    "EverySpec",
    "Judgement",
    "MisfirePolicy",
    "Spec",
    "TimingError",
    "Verdict",
    "count_between",
    "fires_between",
    "is_zone",
    "judge",
    "load_rule",
    "next_fire",
    "nth_fire",
    "parse_cron",
    "parse_duration",
    "previous_fire",
    "zone",
]
