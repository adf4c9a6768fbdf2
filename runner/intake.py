"""Step 3 of 5 begins: queue -> backlog.

Reads new messages of all shards and takes over those whose runner has left them alone. A message stays pending in Redis until
every fire in it is decided (committed, or refused for a reason that is counted), so if the process dies here another runner
gets it after `reclaim_idle_s`; whatever was decided already is a duplicate then and goes without effect.
Redis is one server here (or a failover of it); a cluster wants a blocking reader a shard.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from bucketd.runner.backlog import Acknowledger, Backlog, Message
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.outage import Outage
from bucketd.store import fires, queues
from bucketd.store.config import Settings
from bucketd.store.keys import SHARDS, Keys

BLOCK_S = 0.25  # also how long a stopping runner waits for its last read: a cancelled read would leave a message to the reclaim
MOST_MESSAGES = 64  # of a stream and read


@dataclass(frozen=True, slots=True)
class IntakeReport:
    """One read."""

    messages: int = 0
    fires_read: int = 0
    malformed: int = 0
    reclaimed: int = 0


class Intake:
    """Fills the backlog while it has room."""

    def __init__(
        self, settings: Settings, redis: Redis, backlog: Backlog, acknowledger: Acknowledger, heartbeat: Heartbeat
    ) -> None:
        self._redis = redis
        self._streams = Keys(settings.redis_prefix).queues
        self._backlog = backlog
        self._acknowledger = acknowledger
        self._heartbeat = heartbeat
        self._idle_ms = int(settings.reclaim_idle_s * 1000)
        self._look_s = settings.reclaim_idle_s / 3
        self._batch = settings.confirm_batch
        self._mean_fires = (
            1.0  # of a message: a read is to bring about one confirm batch, not to hoard from other runners
        )
        self._outage = Outage("intake")
        self.groups_made = False

    async def prepare(self) -> None:
        """Makes the consumer groups. Raises RedisError."""
        await queues.make_groups(self._redis, self._streams)
        self.groups_made = True

    async def run_once(self) -> IntakeReport:
        """One read of new messages; returns after BLOCK_S without any. Raises RedisError."""
        if not self.groups_made:
            await self.prepare()
        count = max(1, min(MOST_MESSAGES, int(self._batch / (SHARDS * self._mean_fires))))
        consumer = str(self._heartbeat.current.runner_id)
        entries = await queues.read(self._redis, consumer, self._streams, count=count, block_ms=int(BLOCK_S * 1000))
        return self._accept(entries)

    async def reclaim_once(self) -> IntakeReport:
        """One look for messages that other runners have left. Raises RedisError."""
        consumer = str(self._heartbeat.current.runner_id)
        entries = await queues.reclaim(self._redis, consumer, self._streams, idle_ms=self._idle_ms, count=4)
        strange = [entry for entry in entries if not self._acknowledger.holds(entry.stream, entry.entry_id)]
        report = self._accept(strange)
        return IntakeReport(report.messages, report.fires_read, report.malformed, reclaimed=len(strange))

    def _accept(self, entries: list[queues.Entry]) -> IntakeReport:
        number = malformed = 0
        for entry in entries:
            message = Message(entry.stream, entry.entry_id)
            try:
                _, packed = fires.decode_message(entry.raw or b"")
            except fires.Malformed:
                malformed += 1
                self._acknowledger.add(message)
                continue
            message.open = len(packed) // fires.FIRE.size
            number += message.open
            self._mean_fires += (message.open - self._mean_fires) * 0.05
            self._acknowledger.took(message)
            self._backlog.put(message, packed)
        return IntakeReport(len(entries), number, malformed)

    async def survive(self, error: RedisError) -> None:
        """Notes a failure and waits a little; a lost group is made again at the next read."""
        if isinstance(error, ResponseError) and queues.is_no_group(error):
            self.groups_made = False
        await asyncio.sleep(self._outage.failed(error))

    def fine(self) -> None:
        """Notes a success."""
        self._outage.recovered()

    def reclaim_pause_s(self) -> float:
        """Until the next look; jittered, so that runners take turns."""
        return self._look_s * random.uniform(0.7, 1.0)
