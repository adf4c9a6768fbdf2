"""Figures of the cluster: shown by one node, as they are, bounded, and not when they are old."""

import pytest

from bucketd.scheduler import surveyor as module
from bucketd.store import breakers
from bucketd.store.clock import monotonic
from bucketd.store.exposition import Histogram, Sample
from bucketd.store.keys import SHARDS, shard_of
from bucketd.store.metrics import CLUSTER, OF_SCHEDULER, TARGETS
from bucketd.store.operation import drive
from tests.scheduler.world import World

Shown = dict[tuple[str, tuple[str, ...]], float]


def shown(found: list[Sample]) -> Shown:
    """Samples by metric and labels, each of them a defined one."""
    defined = {one.name: one for one in OF_SCHEDULER}
    values: Shown = {}
    for sample in found:
        assert not isinstance(sample.value, Histogram)
        assert len(sample.labels) == len(defined[sample.name].labels)
        values[sample.name, sample.labels] = sample.value
    return values


async def test_the_owner_shows_the_state_of_the_cluster(world: World) -> None:
    ids = [world.rows.every(1) for _ in range(3)]
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 9)
    drained = await world.drain(scheduler)
    assert drained
    world.rows.sql("insert into bucketd.holds (scope, tenant) values ('tenant', 'acme')")
    world.rows.sql("update bucketd.specs set error = 'unknown', failed_at = now() where every_s = 1")
    now = world.rows.now()
    for status, wake in (("held", "infinity"), ("deferred", "2020-01-01"), ("deferred", "2100-01-01")):
        now -= 1
        world.rows.sql(
            "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, wake_at)"
            " values (to_timestamp(floor(%s::float8)), %s, 1, %s, 'settle', 'default', %s::timestamptz)",
            now, ids[0], status, wake,
        )  # fmt: skip
    await scheduler.surveyor.run_once()
    found = shown(list(scheduler.surveyor.samples()))
    queues = {labels: fires for (name, labels), fires in found.items() if name == "bucketd_queue_fires"}
    assert len(queues) == 2 * SHARDS
    assert sum(queues.values()) == drained
    assert {shard for (shard, _), fires in queues.items() if fires} == {str(shard_of(id.bytes[15])) for id in ids}
    assert found["bucketd_holds", ("tenant",)] == 1
    assert found["bucketd_holds", ("all",)] == 0
    assert found["bucketd_specs_failed", ()] == 1
    assert found["bucketd_runs_held", ()] == 1
    assert found["bucketd_runs_overdue", ()] == 1
    assert found["bucketd_partitions_unowned", ()] == 0
    assert found["bucketd_days_missing", ()] == 0
    assert found["bucketd_days_ahead_seconds", ()] > 86_400
    assert found["bucketd_oldest_unsettled_seconds", ()] == pytest.approx(10, abs=30)
    assert {one.name for one in CLUSTER} - {name for name, _ in found} == {"bucketd_breaker_openings"}


async def test_open_breakers_are_named_up_to_a_bound(world: World) -> None:
    scheduler = await world.scheduler()
    count = TARGETS + 3
    made = (
        "insert into bucketd.targets (name, url) select 't' || n, 'http://127.0.0.1:9/' from generate_series(1, %s) n"
    )
    world.rows.sql(made, count)
    for (target_id,) in world.rows.sql("select target_id from bucketd.targets order by target_id"):
        with world.rows.connection.transaction():
            drive(breakers.open_(target_id, "fails", openings=2, pause_s=60), world.rows.connection)
    await scheduler.surveyor.run_once()
    found = shown(list(scheduler.surveyor.samples()))
    named = {labels: value for (name, labels), value in found.items() if name == "bucketd_breaker_openings"}
    assert named == {(f"t{n}",): 2 for n in range(1, TARGETS + 1)}
    assert found["bucketd_breakers_open", ()] == count


async def test_one_node_shows_them_and_only_while_they_are_young(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [await world.scheduler(own=False) for _ in range(2)]
    for _ in range(3):  # the second one joins, the first one releases, the second one takes
        for node in nodes:
            await node.ownership.run_once()
    surveys = [await node.surveyor.run_once() for node in nodes]
    assert sum(survey is not None for survey in surveys) == 1
    showing = [node for node in nodes if list(node.surveyor.samples())]
    assert len(showing) == 1
    [owner] = showing
    assert module.PARTITION in owner.node.owned
    later = monotonic() + module.KEEP_S
    monkeypatch.setattr(module, "monotonic", lambda: later + 1)
    assert list(owner.surveyor.samples()) == []
    monkeypatch.setattr(module, "monotonic", lambda: later - 30)
    assert list(owner.surveyor.samples())
    await owner.ownership.release([module.PARTITION])
    assert list(owner.surveyor.samples()) == []
