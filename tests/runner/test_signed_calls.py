"""A runner signs what it sends, with the secrets as they stand; and calls nobody unsigned who has one."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from bucketd.receiver import Receiver, Refused, Run
from bucketd.store import secrets
from bucketd.store.config import Settings
from bucketd.store.keyring import KeyRing, new_key
from bucketd.store.operation import drive
from bucketd.store.signing import new_secret
from tests.runner.conftest import World
from tests.support.target import Reply, Request, Target

KEY = new_key()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With a key ring."""
    return settings.model_copy(update={"secret_keys": SecretStr(KEY)})


@pytest.fixture
def keeper(world: World) -> Iterator["Keeper"]:
    with psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as connection:
        yield Keeper(world, connection)


class Keeper:
    """Sets secrets of targets by their id."""

    def __init__(self, world: World, connection: psycopg.Connection[Any]) -> None:
        self._world = world
        self._connection = connection

    def rotate(self, target_id: int, *, keep_old_s: int = 3600, key: str = KEY) -> str:
        secret = new_secret()
        name = self._world.value("select name from bucketd.targets where target_id = %s", target_id)
        drive(secrets.rotate(name, secret, keep_old_s, KeyRing(key)), self._connection)
        return secret


def runs_of(receiver: Receiver, request: Request) -> list[Run]:
    return list(receiver.verified(request.headers, request.raw).runs)


async def test_calls_carry_the_signatures_of_the_secrets_as_they_stand(
    world: World, target: Target, hook: int, keeper: Keeper
) -> None:
    """Also those of a runner that knew the target before: a rotation raises the target's revision."""
    schedule = world.schedule(hook, name="nächtlich", tenant="acme", payload='{"a": [1]}')
    made: list[str] = []
    async with world.runner():
        for n in range(4):
            world.put([world.fire(schedule, world.now_s - 9 + n)])
            await target.wait_runs(n + 1, 10)
            made.append(keeper.rotate(hook, keep_old_s=3600 if n < 2 else 0))
        world.sql("delete from bucketd.target_secrets")
        world.put([world.fire(schedule, world.now_s - 2)])
        await target.wait_runs(5, 10)
    unsigned, first, two, three, dropped = target.requests
    assert "webhook-signature" not in unsigned.headers
    assert "webhook-signature" not in dropped.headers
    (run,) = runs_of(Receiver(made[0]), first)
    assert (run.schedule, run.tenant, run.attempt, run.payload) == ("nächtlich", "acme", 1, {"a": [1]})
    assert run.run_id == first.body["run_id"]
    assert run.scheduled_at.isoformat().replace("+00:00", "Z") == first.body["scheduled_at"]
    assert first.headers["webhook-signature"].count("v1,") == 1
    assert two.headers["webhook-signature"].count("v1,") == 2
    for secret in made[:2]:
        assert runs_of(Receiver(secret), two)
    assert three.headers["webhook-signature"].count("v1,") == 1  # keep_old_s=0: the old one ended at once
    for secret in made[:2]:
        with pytest.raises(Refused, match="expected a signature"):
            runs_of(Receiver(secret), three)


async def test_a_batch_is_signed_as_a_whole(world: World, target: Target, keeper: Keeper) -> None:
    hook = world.target(target.url, batch_max=50, batch_linger_ms=50)
    secret = keeper.rotate(hook)
    world.put(world.fire(world.schedule(hook, payload=str(n)), world.now_s - 5) for n in range(20))
    async with world.runner():
        await world.until({"succeeded": 20})
    received = [run for request in target.requests for run in runs_of(Receiver(secret), request)]
    assert sorted(run.payload for run in received) == list(range(20))
    assert len({run.run_id for run in received}) == 20


async def test_a_raw_body_is_signed_and_says_its_run_in_headers(world: World, target: Target, keeper: Keeper) -> None:
    hook = world.target(target.url, body="raw")
    secret = keeper.rotate(hook)
    schedule = world.schedule(hook, name="ä b", tenant="acme", payload='{"a":  1}')
    world.put([world.fire(schedule, world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
    (request,) = target.requests
    assert request.raw == b'{"a":  1}'
    (run,) = runs_of(Receiver(secret, raw=True), request)
    assert (run.schedule, run.tenant, run.attempt, run.payload) == ("ä b", "acme", 1, {"a": 1})
    assert run.previous_at
    assert run.next_at
    assert (run.next_at - run.previous_at).total_seconds() == 120
    with pytest.raises(Refused, match="expected the envelope"):
        runs_of(Receiver(secret), request)


async def test_a_secret_that_cannot_be_opened_keeps_the_call_back(world: World, target: Target, keeper: Keeper) -> None:
    """It is an attempt that failed and says why; nothing is sent, single or batch, for unsigned it would be believed."""
    columns = {"retry_base_s": 1000.0, "retry_cap_s": 1000.0}
    hooks = [world.target(target.url, **columns), world.target(target.url, batch_max=5, **columns)]
    for hook in hooks:
        keeper.rotate(hook, key=new_key())
        world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"retrying": 2})
    assert target.requests == []
    for run in world.runs():
        assert "BUCKETD_SECRET_KEYS" in run["failures"][0]["error"]
        assert run["http_status"] is None


async def test_an_old_secret_that_has_ended_need_not_be_opened(world: World, target: Target, keeper: Keeper) -> None:
    hook = world.target(target.url, retry_base_s=1000.0, retry_cap_s=1000.0)
    keeper.rotate(hook, key=new_key())
    secret = keeper.rotate(hook)
    world.sql("update bucketd.target_secrets set old_until = bucketd.bucketd_now()")
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
    (request,) = target.requests
    assert runs_of(Receiver(secret), request)


async def test_a_retry_is_signed_anew(world: World, target: Target, hook: int, keeper: Keeper) -> None:
    secret = keeper.rotate(hook)
    target.replies.append(Reply(500))
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
    receiver = Receiver(secret)
    assert [receiver.check(request.headers, request.raw).runs[0].attempt for request in target.requests] == [1, 2]
    first, second = target.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    with pytest.raises(Refused, match="a later attempt"):
        receiver.check(first.headers, first.raw)


async def test_no_secret_reaches_the_log_or_the_rows_of_a_run_that_failed(
    world: World, target: Target, hook: int, keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    secret = keeper.rotate(hook)
    target.script = lambda request: Reply(404)
    with caplog.at_level("DEBUG"):
        async with world.runner():
            world.put([world.fire(world.schedule(hook), world.now_s - 5)])
            await world.until({"dead": 1})
    hidden = secret.removeprefix("whsec_").rstrip("=")
    rows = json.dumps([*world.runs(), *world.sql("select * from bucketd.dead_letters")], default=str)
    assert hidden not in rows + caplog.text
    assert KEY not in rows + caplog.text


async def test_what_a_request_says_of_the_time_is_the_clusters(world: World, target: Target, hook: int) -> None:
    """This machine's clock may be an hour off, and a receiver would refuse every call."""
    world.shift_clock("1 hour")
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
    (request,) = target.requests
    assert abs(int(request.headers["webhook-timestamp"]) - world.now_s) < 30
