"""Schedules come and change while a cluster runs: what is planned, what still runs, and what never does."""

import time

import pytest

from bucketd import InvalidInput
from bucketd.client import at, every
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import TENANT, Load, minute_after, seconds, utc
from tests.support.waiting import wait_until

RAW = """
with spec as (
    insert into bucketd.specs (kind, rule, every_s) values ('every', '{"every_s":2,"kind":"every"}', 2)
    on conflict (md5(rule)) do update set rule = excluded.rule
    returning spec_id
)
insert into bucketd.schedules (tenant, name, spec_id, phase, target_id, starts_at, ends_at)
select 'default', 'raw', spec_id, 1, target_id, to_timestamp(%s), to_timestamp(%s) from spec, bucketd.targets where name = %s"""

RAW_AT = """
update bucketd.schedules set phase = %s, spec_id = (select spec_id from bucketd.specs where kind = 'at') where name = %s"""


async def test_a_schedule_made_by_raw_sql_is_planned(cluster: Cluster) -> None:
    """Nobody nudges: the look at the change feed each second is enough."""
    await cluster.start(nodes=1, runners=1)
    begin = int(cluster.now()) + 3
    cluster.sql(RAW, begin, begin + 4, TARGET)
    due = {(TENANT, "raw"): seconds(2, 1, begin, begin + 4)}
    await cluster.target.wait_runs(2, 20)
    await cluster.quiet()
    evidence = collect(cluster, due)
    check(evidence)
    assert max(call.arrived - call.at for call in evidence.calls) < 1.0


async def test_a_schedule_due_in_a_second_while_its_minute_is_already_planned(cluster: Cluster) -> None:
    await cluster.start(nodes=2, runners=1)
    instants = []
    for n in range(3):
        instants.append(int(cluster.now() + 1) + 1)  # in 1 to 2 s
        cluster.client.schedules.put(f"soon-{n}", at(utc(instants[-1])), target=TARGET)
        await cluster.target.wait_runs(n + 1, 10)
    await cluster.quiet()
    evidence = collect(cluster, {(TENANT, f"soon-{n}"): {float(at_s)} for n, at_s in enumerate(instants)})
    check(evidence)
    assert max(call.arrived - call.at for call in evidence.calls) < 1.0


async def test_an_edit_just_after_the_due_instant_does_not_lose_that_run(cluster: Cluster) -> None:
    """The fire waits in the queue, with the old version, while the schedule is edited."""
    await cluster.start(nodes=1, runners=0)
    due_at = int(cluster.now()) + 3
    cluster.client.schedules.put("edited", at(utc(due_at)), target=TARGET)
    cluster.client.schedules.put("retimed", every(3600, phase=due_at % 3600), target=TARGET)
    await cluster.until(due_at + 0.3)
    cluster.client.schedules.put("edited", at(utc(due_at + 3600)), target=TARGET)
    cluster.client.schedules.put("retimed", every(3600, phase=(due_at + 1800) % 3600), target=TARGET)
    cluster.start_runner()
    await cluster.target.wait_runs(2, 20)
    await cluster.quiet()
    check(collect(cluster, {(TENANT, "edited"): {float(due_at)}, (TENANT, "retimed"): {float(due_at)}}))


async def test_an_edit_never_fires_a_past_instant(cluster: Cluster) -> None:
    """The new timing would have had instants seconds ago, after the schedule was created."""
    await cluster.start(nodes=1, runners=1)
    hour = 3600
    begin = int(cluster.now())
    far = (begin - 60) % hour
    for name in ("to-every", "to-at"):
        cluster.client.schedules.put(name, every(hour, phase=far), target=TARGET)
    await cluster.until(begin + 4)
    cluster.client.schedules.put("to-every", every(hour, phase=(begin + 2) % hour), target=TARGET)
    with pytest.raises(InvalidInput, match="in the future"):
        cluster.client.schedules.put("to-at", at(utc(begin + 2)), target=TARGET)
    cluster.sql(RAW_AT, begin + 2, "to-at")
    minute = minute_after(cluster.now())
    # Settling would be the one to bring it up: the node that takes over looks back further than any other.
    cluster.nodes[0].kill9()
    cluster.start_node()
    await wait_until(
        lambda: cluster.one("select count(distinct owner) from bucketd.partitions where epoch > 1") > 0,
        30,
        "the take-over",
    )
    await cluster.until(min(minute, begin + 9))
    check(collect(cluster, {}))
    assert not cluster.target.runs


async def test_triggers_run_at_once_and_skip_next_skips_one(cluster: Cluster) -> None:
    await cluster.start(nodes=1, runners=1)
    begin = int(cluster.now()) + 3
    load = Load()
    load.every("tick", 1, 2, begin, begin + 6)
    load.put(cluster)
    (name,) = (name for _, name in load.due)
    skipped = cluster.client.schedules.skip_next(name)
    assert skipped.timestamp() == min(load.due[TENANT, name])
    asked = time.monotonic()
    cluster.client.schedules.trigger(name)
    await cluster.target.wait_runs(1, 10)
    assert time.monotonic() - asked < 2.0
    await cluster.until(begin + 6)
    await cluster.target.wait_runs(load.fires, 20)
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    assert [row.reason for row in evidence.rows if row.status == "skipped"] == ["user"]
