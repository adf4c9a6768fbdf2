"""Histories of Postgres: whether the server that we reach is a primary that others have left behind.

A history is system, database and timeline, as bucketd.history() says. A promotion begins a new timeline. The primary before it may
live on and take writes that nobody will keep; who notices works there no longer. That is a courtesy: to fence it off is for the tool
that promotes.
"""

from __future__ import annotations

import psycopg
from redis.asyncio import Redis

from bucketd.store import scripts
from bucketd.store.keys import Keys

REMEMBERED_S = 60.0  # longer than any period in which a process looks; when nobody is left on the newer one, the old one is the only one


class OldPrimary(psycopg.OperationalError):
    """Others work on a newer timeline of this database. Passes when the connections lead to it."""


async def refuse_old(redis: Redis, keys: Keys, history: str) -> None:
    """Announces the history that the caller works on. Raises OldPrimary, and what redis-py raises."""
    database, _, timeline = history.rpartition("/")
    mine = int(timeline, 16)
    newest = int(await scripts.run(redis, "timeline", [keys.timeline(database)], [mine, int(REMEMBERED_S * 1000)]))
    if newest > mine:
        raise OldPrimary(f"expected timeline {newest}, on which others work, got {mine}: this Postgres is an old primary")
