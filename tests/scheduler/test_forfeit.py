"""A partition that is lost twice at once: its lease in Redis, and at the fence, where a drain meets a newer owner's epoch."""

import asyncio

from pydantic import SecretStr

from bucketd.store.keys import PARTITIONS
from tests.scheduler.world import World
from tests.support.proxy import Proxy


async def test_a_drain_finds_out_while_redis_is_asked_about_the_leases(world: World) -> None:
    async with Proxy(world.settings.redis_url.get_secret_value()) as way:
        scheduler = await world.scheduler(redis_url=SecretStr(way.url))
        node, lost = scheduler.node, range(0, PARTITIONS, 2)
        for partition in lost:
            await world.redis.set(world.keys.lease(partition), "another's", px=60_000)
        way.freeze()
        renewal = asyncio.create_task(scheduler.ownership._renew())
        await asyncio.sleep(0)  # it has asked about all that is owned, and waits
        for partition in lost:
            scheduler.ownership.forfeit(node.owned[partition])
        way.freeze(False)
        assert await renewal == len(lost)
    assert set(node.owned) == set(range(1, PARTITIONS, 2))
