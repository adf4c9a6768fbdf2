"""What was read and is not decided yet, and the acknowledgement of what is."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from struct import Struct

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.runner.outage import Outage
from bucketd.store import queues
from bucketd.store.confirm import FireBytes
from bucketd.store.fires import FIRE

_COLUMNS = Struct(">16s4s12sx")  # a fire without its flags, as confirm wants it
assert _COLUMNS.size == FIRE.size
LINGER_S = 0.003  # acknowledgements of this time share a round trip


class Message:
    """One queue message. `open`: how many of its fires are not decided."""

    __slots__ = ("entry_id", "open", "stream")

    def __init__(self, stream: str, entry_id: bytes) -> None:
        self.stream = stream
        self.entry_id = entry_id
        self.open = 0


class Backlog:
    """Fires to confirm. Packed as they came until they are taken: 33 bytes a fire.

    Bound: reading stops at `bound` fires (two confirm batches); the last read may add MOST_MESSAGES a shard.
    """

    def __init__(self, bound: int) -> None:
        self._parts: deque[tuple[Message, bytes]] = deque()
        self._again: deque[tuple[FireBytes, Message]] = deque()
        self._bound = bound
        self._waiting = 0  # kept elsewhere for a while (early, failed), counted here
        self.size = 0
        self.some = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    def put(self, message: Message, packed: bytes) -> None:
        """Adds a whole message."""
        self._parts.append((message, packed))
        self._count(len(packed) // FIRE.size)

    def keep_for(self, fires: Sequence[FireBytes], owners: Sequence[Message], seconds: float) -> None:
        """Puts undecided fires back, to be taken again not before `seconds` from now."""
        self._waiting += len(fires)
        self._count(0)
        asyncio.get_running_loop().call_later(seconds, self._put_back, fires, owners)

    def _put_back(self, fires: Sequence[FireBytes], owners: Sequence[Message]) -> None:
        self._waiting -= len(fires)
        self._again.extend(zip(fires, owners, strict=True))
        self._count(len(fires))

    def take(self, limit: int) -> tuple[list[FireBytes], list[Message]]:
        """Up to `limit` fires, and beside each the message it belongs to.

        No key twice: one statement could not tell them apart.
        """
        fires: list[FireBytes] = []
        owners: list[Message] = []
        while self._again and len(fires) < limit:
            fire, owner = self._again.popleft()
            fires.append(fire)
            owners.append(owner)
        while self._parts and len(fires) < limit:
            message, packed = self._parts.popleft()
            size = (limit - len(fires)) * FIRE.size
            if len(packed) > size:
                self._parts.appendleft((message, packed[size:]))
                packed = packed[:size]
            fires += _COLUMNS.iter_unpack(packed)
            owners += [message] * (len(packed) // FIRE.size)
        self._count(-len(fires))
        if len({fire[0] for fire in fires}) != len(fires):
            return self._distinct(fires, owners)
        return fires, owners

    def _distinct(self, fires: list[FireBytes], owners: list[Message]) -> tuple[list[FireBytes], list[Message]]:
        chosen: dict[bytes, tuple[FireBytes, Message]] = {}
        rest = 0
        for fire, owner in zip(fires, owners, strict=True):
            if chosen.setdefault(fire[0] + fire[2][:4], (fire, owner))[0] is not fire:
                self._again.append((fire, owner))
                rest += 1
        self._count(rest)
        return [fire for fire, _ in chosen.values()], [owner for _, owner in chosen.values()]

    def _count(self, change: int) -> None:
        self.size += change
        if self.size:
            self.some.set()
        else:
            self.some.clear()
        if self.size + self._waiting < self._bound:
            self.room.set()
        else:
            self.room.clear()


class Acknowledger:
    """XACK + XDEL of messages whose last fire is decided (I6: never before).

    Bounded by what the backlog lets in. If Redis is away they are kept and sent later; a redelivery meanwhile is a duplicate.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._held: dict[tuple[str, bytes], Message] = {}
        self._done: list[Message] = []
        self._some = asyncio.Event()
        self._outage = Outage("acknowledge")

    @property
    def held(self) -> int:
        """Messages that are read and not acknowledged."""
        return len(self._held)

    def holds(self, stream: str, entry_id: bytes) -> bool:
        """Whether this process has that message already."""
        return (stream, entry_id) in self._held

    def took(self, message: Message) -> None:
        self._held[message.stream, message.entry_id] = message

    def decided(self, owners: Iterable[Message]) -> None:
        """One fire of each of these messages is decided."""
        for message, number in Counter(owners).items():
            message.open -= number
            if message.open == 0:
                self.add(message)

    def add(self, message: Message) -> None:
        """The message is through."""
        self._held[message.stream, message.entry_id] = message
        self._done.append(message)
        self._some.set()

    async def run_once(self) -> int:
        """Acknowledges what is through; how many messages. Raises RedisError, and has lost nothing then."""
        batch = self._done
        self._done = []
        self._some.clear()
        try:
            if batch:
                await queues.acknowledge(self._redis, _by_stream(batch))
        except RedisError:
            self._done = batch + self._done
            self._some.set()
            raise
        for message in batch:
            del self._held[message.stream, message.entry_id]
        return len(batch)

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(LINGER_S)
            try:
                await self.run_once()
                self._outage.recovered()
            except RedisError as error:
                await asyncio.sleep(self._outage.failed(error))

    async def let_go(self, consumer: str, idle_ms: int) -> int:
        """For a stopping runner: hands what is undecided to whoever looks next; how many messages. Raises RedisError."""
        open_ones = [message for message in self._held.values() if message.open]
        if open_ones:
            await queues.let_go(self._redis, consumer, _by_stream(open_ones), idle_ms=idle_ms)
        return len(open_ones)


def _by_stream(messages: Iterable[Message]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.stream, []).append(message.entry_id)
    return found
