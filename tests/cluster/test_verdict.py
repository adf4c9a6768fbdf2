"""The demo's verdict sees each offence, and its expectation agrees with the tests' own walk."""

from dataclasses import replace

import pytest

from bucketd.demo import seed
from bucketd.demo.deliveries import Delivery
from bucketd.demo.expect import Occurrence, occurrences
from bucketd.demo.verdict import Row, Verdict, judge
from tests.support.load import utc
from tests.support.walk import walk_cron, walk_every

AT = 1_000_000
ONE: Occurrence = ("load", "job", AT)
CALL = Delivery(AT + 0.02, "run-1", 1, ONE)
ROW = Row(ONE, "succeeded", 1, 0, AT + 0.1)


def verdict(calls: list[Delivery], rows: list[Row], due: set[Occurrence] | None = None) -> Verdict:
    return judge({ONE} if due is None else due, set(), calls, rows, AT, (0.0, 0.0))


def test_a_plain_success() -> None:
    found = verdict([CALL], [ROW])
    assert found.good
    assert (found.due, found.delivered, found.repeated) == (1, 1, 0)
    assert found.lateness_ms["calm"][0] == pytest.approx(20, abs=0.1)


def test_a_higher_attempt_after_a_kill_is_allowed_and_counted() -> None:
    found = verdict([CALL, replace(CALL, attempt=2, arrived_s=AT + 0.05)], [replace(ROW, attempt=2)])
    assert found.good
    assert found.repeated == 1


@pytest.mark.parametrize(
    ("found", "offence"),
    [
        (verdict([], []), "missing"),
        (verdict([CALL, replace(CALL, arrived_s=AT + 0.05)], [ROW]), "doubled"),
        (verdict([CALL, replace(CALL, attempt=2, arrived_s=AT + 0.2)], [ROW]), "doubled"),
        (verdict([CALL, replace(CALL, run_id="run-2")], [ROW]), "doubled"),
        (verdict([replace(CALL, arrived_s=AT - 0.001)], [ROW]), "early"),
        (verdict([CALL], [ROW], due=set()), "unexpected"),
        (verdict([CALL], [replace(ROW, status="running", finished_s=None)]), "unfinished"),
    ],
)
def test_an_offence(found: Verdict, offence: str) -> None:
    assert not found.good
    assert list(getattr(found, offence)) == [ONE]


def test_the_expectation_agrees_with_the_walk() -> None:
    now_s = 1_792_920_000  # a day in which Europe leaves summer time, 2026-10-25
    jobs = [*seed.product(seed.QUICK, now_s), *seed.load(seed.QUICK, now_s - 60)]
    begin, end = now_s - 86_400, now_s
    walked: set[Occurrence] = set()
    for job in jobs:
        if job.cron is not None:
            instants = walk_cron(job.cron, job.zone, utc(begin), utc(end))
        elif job.every_s is not None:
            assert job.starts_s is not None
            assert job.ends_s is not None
            instants = walk_every(job.every_s, job.phase_s, utc(max(begin, job.starts_s)), utc(min(end, job.ends_s)))
        else:
            assert job.at_s is not None
            instants = [utc(job.at_s)] if begin <= job.at_s < end else []
        walked |= {(job.tenant, job.name, int(instant.timestamp())) for instant in instants}
    assert occurrences(jobs, begin, end) == walked
