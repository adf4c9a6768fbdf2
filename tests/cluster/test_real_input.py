"""1,335 periodic jobs that nobody here wrote: applied, a day of them backfilled, against a walk over its minutes."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import Due, collect
from tests.support.invariants import check
from tests.support.load import TENANT, utc
from tests.support.processes import ROOT
from tests.support.waiting import wait_until
from tests.support.walk import duration_s, walk_cron, walk_every

FILE = ROOT.parent / "shared" / "data" / "k8s-periodics.jsonl"
NEVER = 2
DAY_S = 86_400

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"needs {FILE.name}")


def due_by_walking(cluster: Cluster, file: Path, begin: datetime, end: datetime) -> Due:
    """Every job by its own line of the file; the phase of an interval is drawn from the schedule's id, so it is asked for."""
    phases = dict(cluster.sql("select name, phase from bucketd.schedules"))
    found: dict[tuple[str, str], set[float]] = {}
    for line in file.read_text().splitlines():
        job = json.loads(line)
        name = job["name"]
        if name in phases:
            instants = (
                walk_cron(job["cron"], job.get("tz", "UTC"), begin, end)
                if "cron" in job
                else walk_every(duration_s(job["every"]), phases[name], begin, end)
            )
            found[TENANT, name] = {instant.timestamp() for instant in instants}
    return found


@pytest.mark.timeout(240)
@pytest.mark.long
async def test_apply_and_backfill_of_a_day_equal_a_walk_over_its_minutes(cluster: Cluster) -> None:
    jobs = len(FILE.read_text().splitlines())
    refused = cluster.processes.start("apply", str(FILE), "--target", TARGET)
    assert await refused.wait_exit(60) != 0
    assert cluster.one("select count(*) from bucketd.schedules") == 0, "a bad line changed something"
    assert refused.output().count("never_fires") == NEVER

    applied = cluster.processes.start("apply", str(FILE), "--target", TARGET, "--skip-invalid", name="apply-skip")
    await applied.wait_exit(60)
    assert cluster.one("select count(*) from bucketd.schedules") == jobs - NEVER

    end_s = int(cluster.now()) // DAY_S * DAY_S
    begin, end = utc(end_s) - timedelta(days=1), utc(end_s)
    due = due_by_walking(cluster, FILE, begin, end)
    await cluster.start(nodes=1, runners=2)
    command = ["backfill", "--all", "--from", begin.isoformat(), "--to", end.isoformat()]
    assert await cluster.processes.start(*command).wait_exit(120) == 0
    total = sum(len(instants) for instants in due.values())
    finished = "select count(*) from bucketd.backfills where kind = 'user' and finished_at is null"
    await wait_until(lambda: not cluster.one(finished), 60, "the backfill to be expanded")
    await wait_until(lambda: len(cluster.target.requests) >= total, 120, f"{total} calls")
    await cluster.finished(30)
    evidence = collect(cluster, due, live_since(cluster, end_s))
    check(evidence)
    assert {(call.key, call.at) for call in evidence.calls if call.at < end_s} == {
        (key, at) for key in due for at in due[key]
    }


def live_since(cluster: Cluster, end_s: float) -> Due:
    """What the jobs had due since they were applied, while the test ran."""
    return due_by_walking(cluster, FILE, utc(end_s), utc(cluster.now() + 60))
