"""Which slot a command belongs to, and which node serves it. Pure but for `read_map`, which asks a node."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from bucketd.store.keys import SLOTS
from bucketd.store.redis_url import Host

# Commands of ours that have no key; all others name theirs first, but for these that say how many there are, and for XREADGROUP.
KEYLESS = frozenset({"PUBLISH", "PING", "INFO", "TIME", "PUBSUB NUMSUB", "CONFIG GET", "CLUSTER SLOTS", "CLUSTER INFO"})
COUNTED = frozenset({"EVAL", "EVALSHA"})


def key_of(args: Sequence[Any]) -> str | None:
    """The first key of a command as redis-py has it (`XGROUP CREATE` is one word); None if it has none."""
    name = args[0]
    if name in KEYLESS:
        return None
    place = 3 if name in COUNTED else args.index(b"STREAMS") + 1 if name == "XREADGROUP" else 1
    key = args[place]
    return key.decode() if isinstance(key, bytes) else str(key)


def tag_of(key: str) -> str:
    """What is hashed: the text in the first pair of braces, if there is any, else the whole key."""
    begin = key.find("{")
    end = key.find("}", begin + 1)
    return key[begin + 1 : end] if 0 <= begin < end - 1 else key


class SlotMap:
    """Masters by ranges of slots, as one node of the cluster saw it. False while nothing is known."""

    def __init__(self, ranges: Sequence[tuple[int, int, Host]] = (), nodes: frozenset[Host] = frozenset()) -> None:
        self._ranges = sorted(ranges)
        self._starts = [begin for begin, _, _ in self._ranges]
        self._moved: dict[int, Host] = {}
        self.nodes = nodes  # masters and replicas

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def master(self, slot: int) -> Host | None:
        """Who serves a slot; None: nobody does."""
        if slot in self._moved:
            return self._moved[slot]
        place = bisect_right(self._starts, slot) - 1
        if place < 0:
            return None
        _, end, host = self._ranges[place]
        return host if slot <= end else None

    def masters(self) -> list[Host]:
        """Every node that serves slots, in the order of the slots."""
        return list(dict.fromkeys([*(host for _, _, host in self._ranges), *self._moved.values()]))

    @property
    def patched(self) -> bool:
        """Whether it was put right by what nodes said since it was read."""
        return bool(self._moved)

    def move(self, slot: int, host: Host) -> None:
        """A node said that this one serves the slot."""
        assert 0 <= slot < SLOTS, slot
        self._moved[slot] = host
        self.nodes |= {host}


async def read_map(client: Redis, asked: Host) -> SlotMap:
    """Asks a node. Raises what redis-py raises; a server that is no cluster refuses the command."""
    ranges: list[tuple[int, int, Host]] = []
    nodes: set[Host] = set()
    for begin, end, *places in await client.execute_command("CLUSTER SLOTS"):  # type: ignore[no-untyped-call]
        hosts = [_host(place, asked) for place in places]
        ranges.append((int(begin), int(end), hosts[0]))
        nodes.update(hosts)
    return SlotMap(ranges, frozenset(nodes))


def _host(place: Sequence[Any], asked: Host) -> Host:
    """A node that does not know its own address leaves it empty: it is the one that was asked."""
    name = place[0].decode() if isinstance(place[0], bytes) else str(place[0] or "")
    return Host(name if name not in ("", "?") else asked.name, int(place[1]))
