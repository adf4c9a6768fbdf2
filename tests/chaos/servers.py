"""The servers of a stage: started, started again after whatever became of them, and their data on small disks, if there can be some."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bucketd.embedded import Server, start_postgres, start_redis
from bucketd.embedded.postgres import PostgresServer
from tests.chaos.disk import Disk
from tests.support.postgres_pair import PostgresPair, base_backup

SMALL_DISKS = {"postgres": 600, "redis": 24}  # MB
# A crash of the server is a crash of its process: the machine stays, so nothing need reach the disk.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "max_wal_size": "96MB",
    "min_wal_size": "32MB",
}


class Servers:
    """Postgres and Redis in `directory`, as an async context manager. Whoever is told to start again returns the URL where it is then.

    `small_disks`: their data lies on file systems of their own (see disk.py), so that these can be full.
    """

    def __init__(self, directory: Path, *, small_disks: bool) -> None:
        self.directory = directory
        self.disks = {name: Disk(directory / name, size) for name, size in SMALL_DISKS.items()} if small_disks else {}
        self.postgres: PostgresServer
        self.redis: Server
        self._place = directory / "postgres" / "0"  # of the primary
        self._stack = AsyncExitStack()

    async def restart_postgres(self) -> str:
        """On another port."""
        await asyncio.to_thread(self.postgres.stop)
        self.postgres = await self._start_postgres(self._place)
        return self.postgres.tcp_url

    async def restart_redis(self) -> str:
        """On the same port, with what it finds on its disk."""
        await asyncio.to_thread(self.redis.stop)
        self.redis = await self._start_redis(self.redis.port)
        return self.redis.url

    async def standby(self) -> PostgresPair:
        """One that follows the primary, on the same disk."""
        await asyncio.to_thread(base_backup, self.postgres, self._place, self._next_place())
        pair = PostgresPair(self.postgres, await self._start_postgres(self._next_place()))
        await asyncio.to_thread(pair.catch_up)
        return pair

    async def promote(self, pair: PostgresPair) -> str:
        """The standby is the primary now, and the old one goes with its data; its log is kept."""
        await asyncio.to_thread(pair.promote)
        gone, self._place = self._place, self._next_place()
        await asyncio.to_thread(pair.primary.stop)
        self.postgres = pair.standby
        self._keep_logs(gone)
        await asyncio.to_thread(shutil.rmtree, gone)
        return self.postgres.tcp_url

    async def __aenter__(self) -> Self:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o711)  # started by root, Postgres runs as another user, who has to get through
            for disk in self.disks.values():
                disk.directory.mkdir()
                disk.mount()
                self._stack.callback(disk.unmount)
            self.postgres = await self._start_postgres(self._place)
            self._stack.push_async_callback(lambda: asyncio.to_thread(self.postgres.stop))
            self.redis = await self._start_redis()
            self._stack.push_async_callback(lambda: asyncio.to_thread(self.redis.stop))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keep_logs(self._place)
        self._keep_logs(self.directory / "redis")
        await self._stack.aclose()

    async def _start_postgres(self, place: Path) -> PostgresServer:
        return await asyncio.to_thread(start_postgres, place, settings=SETTINGS)

    async def _start_redis(self, port: int = 0) -> Server:
        return await asyncio.to_thread(start_redis, self.directory / "redis", port=port)

    def _next_place(self) -> Path:
        return self._place.with_name(str(int(self._place.name) + 1))

    def _keep_logs(self, place: Path) -> None:
        for log in place.glob("*.log"):
            shutil.copy(log, self.directory / f"{place.name}-{log.name}")
