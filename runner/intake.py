"""Step 3 of 5 begins: queue -> backlog.

Reads new messages of all shards and takes over those whose runner has left them alone. A message stays pending in Redis until
every fire in it is decided (committed, or refused for a reason that is counted), so if the process dies here another runner
gets it after `reclaim_idle_s`; whatever was decided already is a duplicate then and goes without effect.
One server is read with one blocking read over all shards; a cluster wants one a shard, so that a master that is away stops no other.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from bucketd.runner.backlog import Acknowledger, Backlog, Message
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.outage import Outage
from bucketd.runner.standstill import Standstill
from bucketd.store import fires, queues
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.keys import SHARDS, Keys
from bucketd.store.log import warn
from bucketd.store.redis_client import address_of
from bucketd.store.redis_url import Kind

# A read; also how long a stopping runner waits for its last one: a cancelled read would leave a message to the reclaim.
BLOCK_S = 0.25
BLOCK_APART_S = 1.0  # of a cluster: 32 readers that ask four times a second cost an idle runner 2.5 % of a core
CONNECTIONS = 64  # to one server: of a cluster it may have the readers of all shards
MOST_MESSAGES = 64  # of a stream and read


@dataclass(frozen=True, slots=True)
class IntakeReport:
    """One read."""

    messages: int = 0
    fires_read: int = 0
    malformed: int = 0
    reclaimed: int = 0


def block_s(settings: Settings) -> float:
    """How long a read waits for the first message. Raises ConfigError."""
    return BLOCK_APART_S if address_of(settings).kind is Kind.CLUSTER else BLOCK_S


@dataclass(slots=True, eq=False)
class Reader:
    """What one blocking read covers: queues of crowds or of others, that one server has."""

    streams: tuple[str, ...]
    crowd: bool
    outage: Outage = field(default_factory=lambda: Outage("intake"))
    groups_made: bool = False


class Intake:
    """Fills the backlog while it has room."""

    def __init__(
        self, settings: Settings, redis: Redis, backlog: Backlog, acknowledger: Acknowledger, heartbeat: Heartbeat
    ) -> None:
        self._redis = redis
        self._keys = Keys(settings.redis_prefix)
        self._backlog = backlog
        self._acknowledger = acknowledger
        self._heartbeat = heartbeat
        self._idle_ms = int(settings.reclaim_idle_s * 1000)
        self._look_s = settings.reclaim_idle_s / 3
        self._block_ms = round(block_s(settings) * 1000)
        self._batch = settings.confirm_batch
        self._newest = settings.message_version
        # Of a message, of others and of crowds: a read is to bring about one confirm batch, not to hoard from other runners.
        self._mean_fires = [1.0, 1.0]
        self._reclaiming = Outage("reclaim")
        self._standstill = Standstill()
        self.readers = [
            Reader(streams, crowd)
            for crowd, queues_ in ((False, self._keys.main_queues), (True, self._keys.crowd_queues))
            for streams in queues.read_together(redis, queues_)
        ]

    async def run_once(self, reader: Reader) -> IntakeReport:
        """One read of new messages; returns after `block_s` without any. Raises RedisError."""
        if not reader.groups_made:
            await queues.make_groups(self._redis, reader.streams)
            reader.groups_made = True
        count = max(1, min(MOST_MESSAGES, int(self._batch / (SHARDS * self._mean_fires[reader.crowd]))))
        consumer = str(self._heartbeat.current.runner_id)
        entries = await queues.read(self._redis, consumer, reader.streams, count=count, block_ms=self._block_ms)
        reader.outage.recovered()
        return self._accept(entries)

    async def reclaim_once(self) -> IntakeReport:
        """One look for messages that other runners have left, whatever Redis's clock says. Raises RedisError."""
        consumer = str(self._heartbeat.current.runner_id)
        asked_at = monotonic()
        pending = await queues.pending(self._redis, self._keys.queues, count=MOST_MESSAGES)
        if stuck := self._standstill.found(pending, asked_at, monotonic()):
            warn("redis_clock_set_back", messages=len(stuck))
            await queues.redate(self._redis, stuck)
        entries = await queues.reclaim(self._redis, consumer, self._keys.queues, idle_ms=self._idle_ms, count=4)
        self._reclaiming.recovered()
        strange = [entry for entry in entries if not self._acknowledger.holds(entry.stream, entry.entry_id)]
        report = self._accept(strange)
        return IntakeReport(report.messages, report.fires_read, report.malformed, reclaimed=len(strange))

    def _accept(self, entries: list[queues.Entry]) -> IntakeReport:
        number = malformed = 0
        for entry in entries:
            message = Message(entry.stream, entry.entry_id)
            try:
                _, packed = fires.decode_message(entry.raw or b"", newest=self._newest)
            except fires.Malformed:
                malformed += 1
                self._acknowledger.add(message)
                continue
            message.open = len(packed) // fires.FIRE.size
            number += message.open
            crowd = entry.stream in self._keys.crowd_queues
            self._mean_fires[crowd] += (message.open - self._mean_fires[crowd]) * 0.05
            self._acknowledger.took(message)
            self._backlog.put(message, packed, crowd=crowd)
        return IntakeReport(len(entries), number, malformed)

    @property
    def reads(self) -> bool:
        """Whether each server of Redis answered its last read."""
        return all(reader.groups_made and not reader.outage.lasts for reader in self.readers)

    async def survive(self, error: RedisError, reader: Reader | None = None) -> None:
        """Notes a failure, of a reader or of the reclaim, and waits a little; a lost group is made again at the next read."""
        if reader is not None and isinstance(error, ResponseError) and queues.is_no_group(error):
            reader.groups_made = False
        outage = self._reclaiming if reader is None else reader.outage
        await asyncio.sleep(outage.failed(error))

    def reclaim_pause_s(self) -> float:
        """Until the next look; jittered, so that runners take turns."""
        return self._look_s * random.uniform(0.7, 1.0)
