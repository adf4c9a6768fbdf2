"""Planner, drainer, confirm and settler step by step, by a clock that stands still within a step.

Meanwhile fires of some shards are lost as after a flush, those of others find no runner for a while, and for some seconds there is
no scheduler. The timeline knows by when its cluster came to what was due.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from random import Random
from typing import Any
from uuid import uuid4

import psycopg

from bucketd.scheduler.node import Scheduler
from bucketd.store import confirm, queues, runners
from bucketd.store.claims import new_claim
from bucketd.store.clock import Clock
from bucketd.store.fires import ASKED, FIRE, decode_message
from bucketd.store.keys import SHARDS, shard_of
from tests.scheduler.draws import PARTITIONS
from tests.scheduler.edits import CALM_SHARDS, Edits
from tests.scheduler.world import World
from tests.support.edit_model import Span

STEPS = 150  # with writes; one a second
AFTERWARDS = range(STEPS, STEPS + 240, 10)  # until all that was due is settled
UNMANNED = range(70, 95)  # steps without a scheduler: what is written meanwhile is seen by the one that takes over
THRESHOLD_S = 60  # a fire that is confirmed later is judged by its policy, perhaps not before it is settled
FROZEN = """create or replace function bucketd.bucketd_now() returns timestamptz language sql volatile as
    $$ select timestamptz 'epoch' + clock_offset from bucketd.cluster $$"""


class Stopped(Clock):
    """A clock that shows what it was set to."""

    def __init__(self, at_s: float) -> None:
        super().__init__()
        self.at_s = at_s

    def observe(self, postgres_s: float, asked_at: float, answered_at: float) -> None:
        """Postgres's is stopped at the same instant."""

    def now(self) -> float:
        return self.at_s


class Timeline:
    """Steps of one world, and when its cluster came to what was due."""

    def __init__(self, world: World, connection: psycopg.AsyncConnection[Any], seed: int) -> None:
        self.world = world
        self.random = Random(seed + 1)
        self.start_s = 0
        self.now_s = 0.0
        self._connection = connection
        self._scheduler: Scheduler | None = None
        self._runner = uuid4()
        self._weather = {shard: self._draw_weather() for shard in range(CALM_SHARDS, SHARDS)}
        self._planned: list[float] = []
        # When what had been drained by then (first figure) came to confirm, by shard (infinity: it was lost); and when what was
        # due by then was settled, by partition.
        self._handed: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        self._settled: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)

    def _draw_weather(self) -> dict[int, str]:
        """By step: fires are lost, or nobody takes them."""
        found: dict[int, str] = {}
        for _ in range(2):
            first = self.random.randrange(20, STEPS)
            found |= dict.fromkeys(
                range(first, first + self.random.randint(5, 100)), self.random.choice(["lost", "away"])
            )
        return found

    async def begin(self) -> None:
        """The clock stops at the first second of an hour, and everything before is settled."""
        rows = self.world.rows
        rows.turn_clock(3600 - rows.now() % 3600 - 30)
        self.world.begin()
        self.start_s = self.world.minute
        rows.sql(FROZEN)
        await self._turn_to(self.start_s)
        await runners.join(self._connection, self._runner, host="stand-in", pid=1)
        await queues.make_groups(self.world.redis, self.world.keys.queues)

    async def step(self, step: int, edits: Edits) -> None:
        """A second or so: the clock, the writes, then each service once."""
        # Half of the steps, and so of the writes, are at a whole second, where instants lie.
        await self._turn_to(self.start_s + step + self.random.choice([0, 0, 0, 0.25, 0.5, 0.75]))
        edits.write(step, self.now_s)
        await self._man(step)
        if self._scheduler is not None:
            await self._scheduler.planner.run_once()
            await self.world.drain(self._scheduler)
            self._planned.append(self.now_s)
        await self._hand_over({shard: weather.get(step, "") for shard, weather in self._weather.items()})
        if self._scheduler is not None and (await self.world.settle(self._scheduler)).partitions:
            self._note_settled()

    async def _turn_to(self, at_s: float) -> None:
        self.now_s = at_s
        self.world.rows.sql("update bucketd.cluster set clock_offset = make_interval(secs => %s::float8)", at_s)
        if self._scheduler is not None:
            self._scheduler.node.clock = Stopped(at_s)

    async def _man(self, step: int) -> None:
        """The scheduler leaves, another one comes; leases are kept on the way."""
        if step in UNMANNED:
            if self._scheduler is not None:
                await self._scheduler.ownership.leave()
            self._scheduler = None
        elif self._scheduler is None:
            self._scheduler = await self.world.scheduler(own=False, lease_ttl_s=60)
            self._scheduler.node.clock = Stopped(self.now_s)
            await self._scheduler.ownership.run_once()
        elif step % 10 == 0:
            await self._scheduler.ownership.run_once()

    async def _hand_over(self, weather: dict[int, str]) -> None:
        """Takes what is in the queues and confirms it, as a runner does: all of it, but for shards with a weather."""
        keys, redis = self.world.keys, self.world.redis
        taken = {keys.queues[shard]: shard for shard in range(SHARDS) if weather.get(shard) != "away"}
        await runners.beat(self._connection, self._runner, dead_after_s=30)
        while entries := await queues.read(redis, "stand-in", list(taken), count=1_000, block_ms=1):
            packed = [
                decode_message(entry.raw)[1] for entry in entries if entry.raw and not weather.get(taken[entry.stream])
            ]
            await self._confirm([one[i : i + FIRE.size] for one in packed for i in range(0, len(one), FIRE.size)])
            done: defaultdict[str, list[bytes]] = defaultdict(list)
            for entry in entries:
                done[entry.stream].append(entry.entry_id)
            await queues.acknowledge(redis, done)
        for shard in taken.values():
            self._handed[shard].append((self._planned[-1], math.inf if weather.get(shard) else self.now_s))

    async def _confirm(self, fires: list[bytes]) -> None:
        for start in range(0, len(fires), 2_000):
            arrays = confirm.columns([ASKED.unpack(one) for one in fires[start : start + 2_000]])
            lines = await confirm.confirm(
                self._connection, self._runner, new_claim(), arrays, dead_after_s=30, again=False
            )
            assert not {line[1] for line in lines} & {confirm.Verdict.EARLY, confirm.Verdict.RUNNER_DEAD}

    def _note_settled(self) -> None:
        for partition, through_s in self.world.rows.sql(
            "select partition_id, extract(epoch from settled_through)::bigint from bucketd.partitions"
        ):
            self._settled[partition].append((through_s, self.now_s))

    def decided_s(self, partition: int, due_s: int, stood: Span) -> float:
        """By when the cluster had come to what was due then; infinity: not by the end. What no look of the planner saw between two
        writes is in no bucket, and settling finds it."""
        look = bisect_left(self._planned, stood.begin_s)
        planned = look < len(self._planned) and self._planned[look] < stood.end_s
        handed_s = _first(self._handed[shard_of(partition)], due_s) if planned else math.inf
        return handed_s if handed_s - due_s <= THRESHOLD_S else _first(self._settled[partition], due_s)

    def settled_s(self) -> float:
        """Everything due up to here is settled."""
        return min(self._settled[partition][-1][0] for partition in range(PARTITIONS))


def _first(log: list[tuple[float, float]], due_s: int) -> float:
    place = bisect_left(log, (due_s, -math.inf))
    return log[place][1] if place < len(log) else math.inf
