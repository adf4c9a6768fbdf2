"""Which schedules are due: the planner's two questions to Postgres, answered from one covering index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from bucketd.store.keys import PARTITIONS
from bucketd.store.statements import statements

_SQL = statements("plan")


class Heads(NamedTuple):
    """Schedules of one asked spec in one partition: packed id + timing version, and what they share."""

    place: int  # of the spec in the question
    partition: int
    due_phase: int
    jitter_offset_s: int
    packed: bytes


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


async def whole(connection: AsyncConnection[Any], specs: Sequence[int], partitions: Iterable[int]) -> list[Heads]:
    """All schedules of these specs (none of them jittered)."""
    if not specs:
        return []
    cursor = await connection.execute(_SQL["whole"], {"specs": list(specs), "mask": mask_of(partitions)}, binary=True)
    return [Heads(n - 1, partition, 0, 0, packed) for n, partition, packed in await cursor.fetchall()]


async def ranges(
    connection: AsyncConnection[Any], wanted: Sequence[PhaseRange], partitions: Iterable[int]
) -> list[Heads]:
    """The schedules of these specs whose due phase lies in the asked range."""
    if not wanted:
        return []
    specs, los, his = (list(column) for column in zip(*wanted, strict=True))
    parameters = {"specs": specs, "los": los, "his": his, "partitions": list(partitions)}
    cursor = await connection.execute(_SQL["ranges"], parameters, binary=True)
    return [Heads(n - 1, *rest) for n, *rest in await cursor.fetchall()]
