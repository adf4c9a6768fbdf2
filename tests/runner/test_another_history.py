"""Another history of Postgres under a living runner: what it has read of targets may be lost, and the same revision means another."""

import pytest

from tests.runner.conftest import World
from tests.support.target import Target
from tests.support.waiting import wait_until

ANOTHER = "create or replace function bucketd.history() returns text language sql stable as $$ select '1/1/0000000B' $$"


async def test_targets_are_read_again_at_the_same_revision(
    world: World, target: Target, hook: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """I11: after a failover another edit of the target has the number of the one that was lost."""
    schedule = world.schedule(hook)
    async with world.runner(runner_heartbeat_s=0.1) as runner:
        world.put([world.fire(schedule, world.now_s - 5)])
        await world.until({"succeeded": 1})
        assert len(target.runs) == 1
        world.sql("alter table bucketd.targets disable trigger all")
        world.sql("update bucketd.targets set url = url || 'elsewhere'")
        world.sql("alter table bucketd.targets enable trigger all")
        before = runner.heartbeat.history
        world.sql(ANOTHER)
        await wait_until(lambda: runner.heartbeat.history not in (None, before), 10, "the runner to see it")
        incarnation = runner.heartbeat.current
        world.put([world.fire(schedule, world.now_s - 4)])
        await world.until({"succeeded": 2})
        assert runner.heartbeat.current is incarnation
    assert [request.path.endswith("elsewhere") for request in target.requests] == [False, True]
