"""What was read and is not decided yet, and the acknowledgement of what is."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.runner.outage import Outage
from bucketd.store import queues
from bucketd.store.clock import monotonic
from bucketd.store.confirm import FireBytes
from bucketd.store.fires import ASKED, FIRE

CROWD_BATCH = 500  # fires of a crowd in one statement while others come: they take 10 ms
BESIDE_S = 5.0  # others come as long as the last ones came so lately
LINGER_S = 0.003  # acknowledgements of this time share a round trip


class Message:
    """One queue message. `open`: how many of its fires are not decided."""

    __slots__ = ("entry_id", "open", "stream")

    def __init__(self, stream: str, entry_id: bytes) -> None:
        self.stream = stream
        self.entry_id = entry_id
        self.open = 0


class _Line:
    """Fires of one kind of queue, packed as they came; `again`: those that were taken and come back; `room`: whether more may be read."""

    def __init__(self) -> None:
        self.again: deque[tuple[FireBytes, Message]] = deque()
        self.parts: deque[tuple[Message, bytes]] = deque()
        self.size = 0
        self.room = asyncio.Event()
        self.room.set()


class Backlog:
    """Fires to confirm. Packed as they came until they are taken: 34 bytes a fire.

    Those of crowds (scheduler/crowds.py) stand in a line of their own and are taken when no others are there; while others do come,
    in small statements, and never by all confirmers at once, so that one is free for whoever comes next.
    Bound: reading of a line stops at `bound` fires (two confirm batches); the last read may add MOST_MESSAGES a shard.
    """

    def __init__(self, bound: int, *, confirmers: int = 1) -> None:
        self._main, self._crowd = _Line(), _Line()
        self._bound = bound
        self._confirmers = confirmers
        self._crowded = 0  # confirmers that have a batch of a crowd
        self._others_at = float("-inf")  # when fires came that are of no crowd
        self._waiting = 0  # kept elsewhere for a while (early, failed), counted here
        self.some = asyncio.Event()  # there is something to take

    @property
    def size(self) -> int:
        """Fires that can be taken."""
        return self._main.size + self._crowd.size

    def room(self, *, crowd: bool) -> asyncio.Event:
        """Set while more may be read."""
        return (self._crowd if crowd else self._main).room

    def put(self, message: Message, packed: bytes, *, crowd: bool = False) -> None:
        """Adds a whole message."""
        line = self._crowd if crowd else self._main
        line.parts.append((message, packed))
        line.size += len(packed) // FIRE.size
        if not crowd:
            self._others_at = monotonic()
        self._changed()

    def keep_for(self, fires: Sequence[FireBytes], owners: Sequence[Message], seconds: float) -> None:
        """Puts undecided fires back, to be taken again not before `seconds` from now."""
        self._waiting += len(fires)
        self._changed()
        asyncio.get_running_loop().call_later(seconds, self._put_back, fires, owners)

    def _put_back(self, fires: Sequence[FireBytes], owners: Sequence[Message]) -> None:
        self._waiting -= len(fires)
        self._main.again.extend(zip(fires, owners, strict=True))
        self._main.size += len(fires)
        self._changed()

    def take(self, limit: int) -> tuple[list[FireBytes], list[Message], bool]:
        """Up to `limit` fires, beside each the message it belongs to, and whether they are a crowd's: then `crowd_decided` follows.

        No key twice: one statement could not tell them apart.
        """
        crowd = not self._main.size and self._crowd.size > 0
        line = self._crowd if crowd else self._main
        if crowd:
            limit = min(limit, CROWD_BATCH) if self._beside() else limit
            self._crowded += 1
        fires, owners = self._take(line, limit)
        if len({fire[0] for fire in fires}) != len(fires):
            fires, owners = self._distinct(fires, owners)
        self._changed()
        return fires, owners, crowd

    def crowd_decided(self) -> None:
        """A batch of a crowd that was taken is through."""
        self._crowded -= 1
        self._changed()

    def _beside(self) -> bool:
        return monotonic() - self._others_at < BESIDE_S

    def _take(self, line: _Line, limit: int) -> tuple[list[FireBytes], list[Message]]:
        fires: list[FireBytes] = []
        owners: list[Message] = []
        while line.again and len(fires) < limit:
            fire, owner = line.again.popleft()
            fires.append(fire)
            owners.append(owner)
        while line.parts and len(fires) < limit:
            message, packed = line.parts.popleft()
            size = (limit - len(fires)) * FIRE.size
            if len(packed) > size:
                line.parts.appendleft((message, packed[size:]))
                packed = packed[:size]
            fires += ASKED.iter_unpack(packed)
            owners += [message] * (len(packed) // FIRE.size)
        line.size -= len(fires)
        return fires, owners

    def _distinct(self, fires: list[FireBytes], owners: list[Message]) -> tuple[list[FireBytes], list[Message]]:
        chosen: dict[bytes, tuple[FireBytes, Message]] = {}
        rest = 0
        for fire, owner in zip(fires, owners, strict=True):
            if chosen.setdefault(fire[0] + fire[2][:4], (fire, owner))[0] is not fire:
                self._main.again.append((fire, owner))
                rest += 1
        self._main.size += rest
        return [fire for fire, _ in chosen.values()], [owner for _, owner in chosen.values()]

    def _changed(self) -> None:
        free = self._confirmers - (self._confirmers > 1 and self._beside())
        _set(self.some, self._main.size > 0 or (self._crowd.size > 0 and self._crowded < free))
        _set(self._main.room, self._main.size + self._waiting < self._bound)
        _set(self._crowd.room, self._crowd.size < self._bound)


def _set(event: asyncio.Event, holds: bool) -> None:
    if holds:
        event.set()
    else:
        event.clear()


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
