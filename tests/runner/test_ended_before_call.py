"""A claimed run waits for its turn, and is ended meanwhile: its row is final, so its call must not begin."""

from tests.runner.conftest import World
from tests.runner.doubt import PATIENT, in_doubt
from tests.support.target import Target
from tests.support.waiting import wait_until


async def test_a_run_that_was_ended_while_it_waited_is_not_called(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook, overlap="cancel_running")
    at = world.now_s - 20
    async with world.runner(**PATIENT) as runner:
        async with in_doubt(world, runner):
            world.put([world.fire(schedule, at)])
            await wait_until(lambda: runner.admission.ready == 1, 10, "the run that waits")
            world.put([world.fire(schedule, at + 5)])
            await wait_until(lambda: runner.admission.ready == 2, 10, "the newer run, which ends it")
            assert target.requests == []
        await world.until({"cancelled": 1, "succeeded": 1})
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == 0, 10, "empty accounts")
    cancelled, succeeded = world.runs()
    assert (cancelled["status"], succeeded["status"]) == ("cancelled", "succeeded")
    assert len(target.runs) == 1
