"""Hooks of dead runs: told once if all goes well, at least once whatever happens, and never the payload."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from pydantic import SecretStr

from bucketd.receiver.signed import verify
from bucketd.runner.call import Caller
from bucketd.runner.hooks import CAP_S, LEASE_S, PLACES_OF_TARGET, TRIES, HookReport, Hooks, delay_s
from bucketd.runner.targets import Targets
from bucketd.store import hooks, secrets
from bucketd.store.allow_list import LOOPBACK, AllowList
from bucketd.store.clock import wall
from bucketd.store.config import Settings
from bucketd.store.connect import make_pool
from bucketd.store.keyring import KeyRing, new_key
from bucketd.store.operation import drive
from bucketd.store.signing import key_of, new_secret
from tests.runner.conftest import World
from tests.support.target import Reply, Request, Target
from tests.support.waiting import wait_until

KEY = new_key()
STATE = (
    "select case when hook_at = 'infinity' then 'given up' when hook_at is null then 'done' else 'waits' end as hook, hook_tries"
    " from bucketd.dead_letters order by dead_letter_id"
)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With a key ring."""
    return settings.model_copy(update={"secret_keys": SecretStr(KEY)})


class Stage:
    """A target with a hook at the path /dead, letters of it by SQL, and tellers: each as one runner has it."""

    def __init__(self, world: World, target: Target, pool: AsyncConnectionPool) -> None:
        self.world = world
        self.pool = pool
        self.target = target
        self.target_id = world.target(target.url, name="crm", dead_hook_url=target.url.replace("/hook", "/dead"))
        self._callers: list[Caller] = []

    def bury(self, letters: int = 1) -> None:
        self.world.sql(
            "insert into bucketd.dead_letters"
            " (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, died_at)"
            " select gen_random_uuid(), now(), 'acme', 's', %s, '\"secret\"', 'attempts', 5, now() from generate_series(1, %s)",
            self.target_id,
            letters,
        )

    def teller(self, *, keys: str = KEY, allow: str = LOOPBACK) -> Hooks:
        self._callers.append(Caller(AllowList.parse(allow)))
        return Hooks(self.pool, self._callers[-1], Targets(self.pool, KeyRing(keys)), poll_s=0.05)

    async def look(self, teller: Hooks) -> int:
        """One look, to the end of its calls; how many requests it made."""
        before = len(self.told())
        async with asyncio.TaskGroup() as group:
            await teller.run_once(group)
        return len(self.told()) - before

    async def reported(self, teller: Hooks) -> HookReport:
        async with asyncio.TaskGroup() as group:
            return await teller.run_once(group)

    def told(self) -> list[Request]:
        return [request for request in list(self.target.requests) if request.path == "/dead"]

    def state(self) -> list[tuple[str, int]]:
        """Of each letter how far its hook is, and the tries."""
        return [(row["hook"], row["hook_tries"]) for row in self.world.sql(STATE)]

    def later(self, seconds: float) -> None:
        self.world.sql("update bucketd.cluster set clock_offset = clock_offset + %s * interval '1 second'", seconds)

    async def close(self) -> None:
        for caller in self._callers:
            await caller.close()


@pytest.fixture
async def stage(world: World, target: Target) -> AsyncIterator[Stage]:
    async with make_pool(world.settings, application="test", size=2) as pool:
        made = Stage(world, target, pool)
        yield made
        await made.close()


async def test_a_hook_hears_once_of_each_run_that_dies(world: World, target: Target, stage: Stage) -> None:
    """Of one that its target rejects, and of one that has no attempt left when it is woken."""
    world.sql('update bucketd.targets set headers = \'{"authorization": "Bearer of the target"}\'')
    schedule = world.schedule(stage.target_id, name="nightly", tenant="acme", payload='"secret of the payload"')
    target.script = lambda request: Reply(status=200 if request.path == "/dead" else 422, body="no such customer")
    at_s = world.now_s - 9
    world.run(schedule, at_s - 1, "deferred", attempt=5)
    async with world.runner() as runner:
        world.put([world.fire(schedule, at_s)])
        await wait_until(lambda: len(stage.told()) == 2, 10, "two deaths at the hook")
        await wait_until(lambda: [hook for hook, _ in stage.state()] == ["done"] * 2, 10, "both noted")
        await wait_until(lambda: runner.totals["hooks_told"] == 2, 10, "both counted")
    assert [tries for _, tries in stage.state()] == [1, 1], "nobody told it twice"
    rejected, lost = sorted(stage.told(), key=lambda request: str(request.body["data"]["reason"]))
    letters = {row["reason"]: row for row in world.sql("select * from bucketd.dead_letters")}
    letter = letters["rejected"]
    data = rejected.body["data"]
    assert rejected.headers["webhook-id"] == f"dead_{letter['dead_letter_id']}"
    assert rejected.body == {"type": "run.dead", "timestamp": data["died_at"], "data": data}
    assert datetime.fromisoformat(data.pop("died_at")) == letter["died_at"]
    assert datetime.fromisoformat(data.pop("scheduled_at")).timestamp() == at_s
    (called,) = [request for request in target.requests if request.path == "/hook"]
    assert data == {
        "run_id": called.body["run_id"], "schedule": "nightly", "tenant": "acme", "target": "crm", "reason": "rejected",
        "attempts": 1, "last_error": 'HTTP 422 "no such customer"', "dead_letter_id": letter["dead_letter_id"],
    }  # fmt: skip
    (failure,) = letter["failures"]
    assert datetime.fromisoformat(failure["began"]).timestamp() >= called.wall_s - 10
    assert datetime.fromisoformat(failure["began"]) <= datetime.fromisoformat(failure["at"]) == letter["died_at"]
    assert (lost.body["data"]["reason"], lost.body["data"]["last_error"]) == ("runner_lost", "")
    for request in (rejected, lost):
        assert b"secret of the payload" not in request.raw
        assert "authorization" not in request.headers, "the target's password is not the hook's"
        assert "webhook-signature" not in request.headers


async def test_one_that_fails_is_told_again_and_at_last_given_up(stage: Stage, target: Target) -> None:
    stage.bury()
    teller = stage.teller()
    target.replies.extend([Reply(status=500), Reply(reset=True), Reply(status=302)])
    for tries in range(1, 5):
        assert await stage.look(teller) == 1
        assert stage.state() == [("done" if tries == 4 else "waits", tries)]
        stage.later(delay_s(tries, 1.0))
    assert len({request.headers["webhook-id"] for request in stage.told()}) == 1
    assert await stage.look(teller) == 0

    stage.world.sql("delete from bucketd.dead_letters")
    stage.bury()
    target.script = lambda request: Reply(status=500)
    for tries in range(1, TRIES + 1):
        assert stage.state() == [("waits", tries - 1)]
        assert await stage.look(teller) == 1
        stage.later(CAP_S)
    assert stage.state() == [("given up", TRIES)]
    report, requests = await stage.reported(teller), len(stage.told())
    assert (report.hooks_told, report.hooks_failed, report.hooks_given_up, requests) == (0, 0, 1, 4 + TRIES)
    stage.world.sql("update bucketd.dead_letters set died_at = now()")
    assert stage.state() == [("waits", 0)], "who writes a death into a letter that is there has it told anew"
    assert stage.world.value("select count(*) from bucketd.dead_letters") == 1, (
        "a hook's failure has no letter of its own"
    )


async def test_a_hook_that_fails_is_asked_about_one_letter_at_a_time(stage: Stage, target: Target) -> None:
    stage.bury(4 * PLACES_OF_TARGET)
    teller = stage.teller()
    target.script = lambda request: Reply(status=503)
    assert await stage.look(teller) == PLACES_OF_TARGET
    assert target.most_in_flight <= PLACES_OF_TARGET
    assert await stage.look(teller) == 1
    target.script = lambda request: Reply()
    assert await stage.look(teller) == 1
    stage.later(CAP_S)
    running = asyncio.create_task(teller.run(lambda report: None))
    try:
        await wait_until(lambda: all(hook == "done" for hook, _ in stage.state()), 10, "all told")
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert Counter(tries for _, tries in stage.state()) == {1: 3 * PLACES_OF_TARGET - 1, 2: PLACES_OF_TARGET + 1}


async def test_what_a_runner_took_with_it_is_told_by_another(stage: Stage, target: Target) -> None:
    """And two that look at once tell nothing twice."""
    stage.bury()
    target.script = lambda request: Reply(hang=True)
    dies = asyncio.create_task(stage.look(stage.teller()))
    await wait_until(lambda: len(stage.told()) == 1, 10, "the first try")
    dies.cancel()
    with suppress(asyncio.CancelledError):
        await dies
    target.script = lambda request: Reply()
    other = stage.teller()
    assert await stage.look(other) == 0, "it is still the first one's"
    stage.later(LEASE_S)
    assert await stage.look(other) == 1
    assert stage.state() == [("done", 2)]
    assert len({request.headers["webhook-id"] for request in stage.told()}) == 1

    stage.bury(2 * PLACES_OF_TARGET)
    await asyncio.gather(stage.look(stage.teller()), stage.look(other))
    while await stage.look(other):
        pass
    assert set(stage.state()[1:]) == {("done", 1)}
    ids = Counter(request.headers["webhook-id"] for request in stage.told())
    assert sorted(ids.values()) == [1] * 2 * PLACES_OF_TARGET + [2]


async def test_a_late_answer_does_not_speak_for_a_later_try(stage: Stage) -> None:
    stage.bury()
    places = {stage.target_id: 1}
    async with stage.pool.connection() as connection:
        (late,) = await hooks.take(connection, places, lease_s=1.0)
        assert await hooks.take(connection, places, lease_s=1.0) == []
        stage.later(1.0)
        (newer,) = await hooks.take(connection, places, lease_s=60.0)
        await hooks.told(connection, late)
        await hooks.failed(connection, late, None)
        assert stage.state() == [("waits", 2)]
        await hooks.told(connection, newer)
        assert stage.state() == [("done", 2)]


async def test_signed_or_not_at_all(stage: Stage, world: World) -> None:
    secret = new_secret()
    with psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as connection:
        drive(secrets.rotate("crm", secret, 0, KeyRing(KEY)), connection)
    stage.bury()
    assert await stage.look(stage.teller(keys="")) == 0, "who cannot open the secret tells nothing"
    assert stage.state() == [("waits", 1)]
    stage.later(CAP_S)
    assert await stage.look(stage.teller()) == 1
    (request,) = stage.told()
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert verify([key_of(secret)], headers, request.raw, now_s=wall(), tolerance_s=60).startswith("dead_")


async def test_nobody_hears_of_what_is_not_to_be_told(stage: Stage, world: World) -> None:
    """The hook was taken away, the letter discarded or replayed, the place forbidden; and letters of targets without a hook."""
    teller = stage.teller()
    stage.bury(3)
    world.sql(
        "delete from bucketd.dead_letters where dead_letter_id = (select min(dead_letter_id) from bucketd.dead_letters)"
    )
    world.sql("update bucketd.targets set dead_hook_url = null")
    stage.bury()
    assert stage.state() == [("waits", 0), ("waits", 0), ("done", 0)]
    assert await stage.look(teller) == 0
    assert stage.state() == [("done", 0)] * 3
    world.sql("update bucketd.targets set dead_hook_url = url")
    world.sql("delete from bucketd.dead_letters")
    stage.bury()
    assert await stage.look(stage.teller(allow="")) == 0
    assert stage.state() == [("given up", 1)]


def test_delays_are_drawn_below_bounds_that_double() -> None:
    assert [delay_s(tries, 1.0) for tries in range(1, TRIES)] == [30, 60, 120, 240, 480, 960, 1920]
    assert (delay_s(1, 0.0), delay_s(3, 0.5), delay_s(99, 1.0)) == (0, 60, CAP_S)
