"""Reads all that a picture of the ring needs: one statement, four round trips to Redis."""

from __future__ import annotations

from bucketd.ring.access import Access
from bucketd.ring.picture import Picture, Readings, picture
from bucketd.store import depth, members, observed, partitions
from bucketd.store.keys import PARTITIONS

EVERYTHING = range(PARTITIONS)


async def look(stores: Access) -> Picture:
    """The ring now. Raises what the stores raise."""
    redis, keys = stores.redis, stores.keys
    now_s = await stores.now_s()
    return picture(
        Readings(
            now_s=now_s,
            ring=await members.read(redis, keys, now_s),
            infos=await members.infos(redis, keys),
            standings=await partitions.standings(stores.connection),
            stands=await observed.stands(redis, keys, EVERYTHING),
            freed=await members.freed(redis, keys),
            undrained=await observed.undrained(redis, keys, EVERYTHING, now_s),
            queued=await depth.by_shard(redis, keys),
        )
    )
