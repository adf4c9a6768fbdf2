"""Messages that no node sent, or that were sent long ago, or twice: into the queues with them, singly and in crowds.

What is forged here are copies and rests: fires of real occurrences at wrong times, under wrong versions, in wrong order, and bytes that
are no message. They must be absorbed, acknowledged and counted, and do nothing that the oracle does not know. A fire of a living timing
at an instant that this timing does not have is not among them: nothing in the system makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgpack
from redis.asyncio import Redis

from bucketd.store.fires import FIRE, MESSAGE_VERSION, encode_message, members, tail
from bucketd.store.keys import GROUP, PARTITIONS
from tests.chaos.fault import Draw, Fault, Kind, Shape
from tests.chaos.stage import Stage

DAY_S = 86_400
AGES_S = (0, 1, 4, 15, 30, 70, 150)  # around thresholds, and beyond what buckets and queues keep
EARLY_S = (2, 20, 50, 300, 7_200)  # some are waited for, others are left to settling
ANCIENT_S = (3 * DAY_S, 45 * DAY_S, 3_650 * DAY_S)  # before all schedules, before retention, before everything
STRANGERS = 3_000  # fires of no schedule in one message
COPIED = 20  # newest messages of each queue


class Known(NamedTuple):
    """A schedule's timing by interval. `until_s`: when it ended, for one that is over."""

    id: UUID
    version: int
    every_s: int
    phase: int
    until_s: float | None = None

    def before(self, at_s: float) -> int:
        """Its last instant up to then."""
        return (int(at_s) - self.phase) // self.every_s * self.every_s + self.phase

    def fire(self, at_s: int, version: int | None = None) -> bytes:
        """As the planner would make it."""
        head = self.id.bytes + (self.version if version is None else version).to_bytes(4, "big") + bytes(2)
        return members(head, tail(at_s, self.every_s, self.every_s))[0]


class Forged(NamedTuple):
    """A message, and in whose queue it is put."""

    partition: int
    raw: bytes


Forge: TypeAlias = Callable[[Sequence[Known], float, Random], list[Forged]]  # timings, now, randomness


def duplicates(known: Sequence[Known], now_s: float, random: Random) -> list[Forged]:
    """Of what was due just now or a while ago, each twice in a message and in two messages, in no order."""
    living = [one for one in known if one.until_s is None]
    fires = [(one, one.fire(one.before(now_s - age_s))) for one in living for age_s in AGES_S] * 2
    random.shuffle(fires)
    return _messages(fires) + _messages(fires[:: random.randint(2, 5)])


def early(known: Sequence[Known], now_s: float, random: Random) -> list[Forged]:
    """Of what will be due, in seconds to hours."""
    living = [one for one in known if one.until_s is None]
    return _messages(
        [(one, one.fire(one.before(now_s + ahead_s) + one.every_s)) for one in living for ahead_s in EARLY_S]
    )


def ancient(known: Sequence[Known], now_s: float, random: Random) -> list[Forged]:
    """From before the schedule, its retention, its timing; and of timings that are over, or never were."""
    living = [one for one in known if one.until_s is None]
    fires = [(one, one.fire(one.before(now_s - age_s))) for one in living for age_s in ANCIENT_S]
    fires += [
        (one, one.fire(one.before(now_s), version))
        for one in living
        for version in (0, one.version + 1, 2**31 - 1, 2**32 - 1)
    ]
    fires += [(one, one.fire(one.before(one.until_s) + one.every_s)) for one in known if one.until_s is not None]
    return _messages(fires)


def malformed(known: Sequence[Known], now_s: float, random: Random) -> list[Forged]:
    """What is no message, torn messages and torn fires, numbers that are none, and very long ones."""
    whole = known[0].fire(known[0].before(now_s)) if known else bytes(FIRE.size)
    message = encode_message(whole[15], [whole])
    values: list[object] = [
        [MESSAGE_VERSION, 3], [MESSAGE_VERSION, 3, whole, 4], [MESSAGE_VERSION], [], {}, None, "text", -1, {"version": 1},
        [-1, 3, whole], [0, 3, whole], [2**63, 3, whole], [1.0, 3, whole], [True, 3, whole], ["x" * 9_999, 3, whole],
        [MESSAGE_VERSION, -1, whole], [MESSAGE_VERSION, PARTITIONS, whole], [MESSAGE_VERSION, b"3", whole],
        [MESSAGE_VERSION, 3, whole[:17]], [MESSAGE_VERSION, 3, whole + b"\0"], [MESSAGE_VERSION, 3, b""], [MESSAGE_VERSION, 3, None],
        [MESSAGE_VERSION, 3, [whole]], [[MESSAGE_VERSION], 3, whole],
    ]  # fmt: skip
    raws = [
        b"",
        b"\xc1",
        b"\x93",
        random.randbytes(64),
        random.randbytes(1_000_003),
        bytes(100_000),
        message[: len(message) // 2],
    ]
    raws += [msgpack.packb(value) for value in values]
    return [Forged(random.randrange(PARTITIONS), raw) for raw in raws]


def strangers(known: Sequence[Known], now_s: float, random: Random) -> list[Forged]:
    """Very many fires of schedules that are not there, some at impossible instants."""
    ids = [random.randbytes(15) + b"\7" for _ in range(STRANGERS)]
    fires = [id + bytes(6) + tail(random.choice((int(now_s), 0, 2**32 - 1)), None, None) for id in ids]
    return [Forged(7, encode_message(7, fires))]


def newer(known: Sequence[Known], now_s: float, random: Random) -> list[Forged]:
    """Of what is due now, in versions that nobody reads: one field more each, and far ones."""
    living = [one for one in known if one.until_s is None]
    return [
        Forged(
            one.id.bytes[15], encode_message(one.id.bytes[15], [one.fire(one.before(now_s))], *added, version=version)
        )
        for one in living[:50]
        for version, added in ((MESSAGE_VERSION + 1, (7,)), (MESSAGE_VERSION + 1, ()), (99, ("x", {"y": 1})))
    ]


def _messages(fires: Iterable[tuple[Known, bytes]]) -> list[Forged]:
    """One a partition, fires in the order given."""
    found: dict[int, list[bytes]] = {}
    for one, fire in fires:
        found.setdefault(one.id.bytes[15], []).append(fire)
    return [Forged(partition, encode_message(partition, packed)) for partition, packed in found.items()]


@dataclass(frozen=True)
class Put:
    """Forged messages at the beginning, and others at the end."""

    name: str
    forge: Forge
    seed: int
    lasts_s: float
    place: str = "queues"
    hits: frozenset[str] = frozenset({"redis", "postgres"})  # it needs both

    async def inject(self, stage: Stage) -> None:
        """Into the queues of others and of crowds."""
        known = [Known(*row) for row in await stage.sql(_KNOWN)]
        random = Random(self.seed)
        pipeline = stage.redis.pipeline(transaction=False)
        for partition, raw in self.forge(known, stage.now(), random):
            queue = stage.keys.queue(partition, random.random() < 0.3)
            pipeline.xadd(queue, {b"m": raw, **random.choice(COUNTS)})
        await pipeline.execute()

    async def heal(self, stage: Stage) -> None:
        """Once more."""
        await self.inject(stage)


# The running count of fires by which a node knows how full a queue is: missing, as by a stranger; small; and absurd.
COUNTS: tuple[dict[Any, Any], ...] = (
    {}, {b"c": 1, b"n": 1}, {b"c": 10**12, b"n": 10**12}, {b"c": -5, b"n": -5}, {b"c": b"x", b"n": b""},
)  # fmt: skip


@dataclass(frozen=True)
class Reordered:
    """The newest messages of each queue stand there a second time, the newest first; those originals that nobody has read stay, or go."""

    keeps: bool
    lasts_s: float
    place: str = "queues"
    hits: frozenset[str] = frozenset({"redis", "postgres"})  # it needs both

    async def inject(self, stage: Stage) -> None:
        """Copies, then perhaps no originals any more: whoever was to read them finds the copies."""
        for queue in stage.keys.queues:
            await reorder(stage.redis, queue, keeps=self.keeps)

    async def heal(self, stage: Stage) -> None:
        """Once more."""
        await self.inject(stage)


async def reorder(redis: Redis, queue: str, *, keeps: bool) -> int:
    """How many were copied."""
    return int(await redis.eval(_REORDER, 1, queue, GROUP, COPIED, int(keeps)))


# What is read already must not be deleted: up to Redis 6.2 such a message is pending for ever.
_REORDER = """
local read = '0-0'
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
for _, group in ipairs(groups.err and {} or groups) do
  if group[2] == ARGV[1] then read = group[8] end
end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '(' .. read, 'COUNT', ARGV[2])
for _, entry in ipairs(newest) do
  redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
  if ARGV[3] == '0' then redis.call('XDEL', KEYS[1], entry[1]) end
end
return #newest"""
_KNOWN = """
select id, timing_version, every_s, phase, null::float8 from bucketd.schedules join bucketd.specs using (spec_id)
where kind = 'every' and tenant in ('pulse', 'beat', 'edited', 'flaky')
union all
select schedule_id, v.timing_version, every_s, v.phase, extract(epoch from valid_until)::float8
from bucketd.schedule_versions v join bucketd.specs s on s.spec_id = v.spec_id
where kind = 'every' and valid_until < bucketd.bucketd_now()"""


def _put(name: str, forge: Forge) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return Put(name, forge, random.getrandbits(32), random.uniform(1.0, 6.0))

    return draw


def _reordered(random: Random, shape: Shape) -> Fault:
    return Reordered(random.random() < 0.5, random.uniform(1.0, 6.0))


FORGES: dict[str, Forge] = {
    "duplicates": duplicates,
    "early ones": early,
    "ancient ones": ancient,
    "malformed ones": malformed,
    "fires of nobody": strangers,
    "of newer versions": newer,
}
KINDS = (
    *(Kind(f"messages: {name}", _put(name, forge)) for name, forge in FORGES.items()),
    Kind("messages: reordered", _reordered),
)
