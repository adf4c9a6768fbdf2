"""Which schedules are due: the planner's two questions to Postgres, answered from one covering index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, pack
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from bucketd.store.arrays import Int4s
from bucketd.store.keys import PARTITIONS
from bucketd.store.statements import statements

_SQL = statements("plan")


class Heads(NamedTuple):
    """Schedules of one partition, packed one after the other."""

    partition: int
    packed: bytes


# A schedule in an answer: the place of its spec in the question, from 1; in a range its due phase and jitter offset; then its head.
WHOLE = Struct(">i22s")
RANGE = Struct(">iqi22s")


class PhaseRange(NamedTuple):
    """Due phases [lo, hi) of one spec."""

    spec_id: int
    lo: int
    hi: int


def mask_of(partitions: Iterable[int]) -> bytes:
    """256 bits as Postgres's get_bit numbers them: from the right within each byte."""
    bits = bytearray(PARTITIONS // 8)
    for partition in partitions:
        bits[partition >> 3] |= 1 << (partition & 7)
    return bytes(bits)


async def whole(
    connection: AsyncConnection[Any], specs: Sequence[int], partitions: Iterable[int], living_s: int
) -> list[Heads]:
    """All schedules of these specs without jitter that had not ended by `living_s`, as `WHOLE`."""
    if not specs:
        return []
    parameters = {"specs": _int4s(specs), "mask": mask_of(partitions), "living": living_s}
    cursor = await connection.execute(_SQL["whole"], parameters, binary=True)
    return [Heads(*row) for row in await cursor.fetchall()]


async def ranges(
    connection: AsyncConnection[Any], wanted: Sequence[PhaseRange], partitions: Iterable[int], living_s: int
) -> list[Heads]:
    """The schedules of these specs whose due phase lies in the asked range and that had not ended by `living_s`, as `RANGE`."""
    if not wanted:
        return []
    specs, los, his = (list(column) for column in zip(*wanted, strict=True))
    parameters = {"specs": specs, "los": los, "his": his, "mask": mask_of(partitions), "living": living_s}
    cursor = await connection.execute(_SQL["ranges"], parameters, binary=True)
    return [Heads(*row) for row in await cursor.fetchall()]


def _int4s(numbers: Sequence[int]) -> Int4s:
    """As an array: one call for all of them."""
    packed = pack(f">{len(numbers)}i", *numbers)
    return Int4s([packed[at : at + 4] for at in range(0, len(packed), 4)])
