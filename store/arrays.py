"""Array parameters packed by hand: a batch of 2,000 keys costs one `join` a column instead of a Python object a value.

The elements come as they stand in a fire or in an earlier answer: raw big-endian bytes, which is what Postgres's binary
protocol wants. Bind a packed array to a placeholder with a cast, `%(ids)s::uuid[]`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import ClassVar

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">iiIii")  # dimensions, has nulls, element type, length, lower bound
_EMPTY = struct.Struct(">iiI")
_ELEMENT_BYTES = struct.Struct(">i")
EPOCH_2000_S = 946_684_800  # Postgres counts from here


class PackedArray:
    """One array in Postgres's binary form."""

    __slots__ = ("data",)
    element_oid: ClassVar[int] = 0
    array_oid: ClassVar[int] = 0
    width: ClassVar[int] = 0  # bytes of an element

    def __init__(self, elements: Sequence[bytes]) -> None:
        """`elements`: each exactly `width` bytes, big-endian, no nulls."""
        size = len(elements)
        if not size:
            self.data = _EMPTY.pack(0, 0, self.element_oid)
            return
        glue = _ELEMENT_BYTES.pack(self.width)
        self.data = _HEAD.pack(1, 0, self.element_oid, size, 1) + glue + glue.join(elements)


class Uuids(PackedArray):
    """uuid[]"""

    __slots__ = ()
    element_oid, array_oid, width = 2950, 2951, 16


class Int2s(PackedArray):
    """smallint[]"""

    __slots__ = ()
    element_oid, array_oid, width = 21, 1005, 2


class Int4s(PackedArray):
    """integer[]; an unsigned number arrives as its two's complement: `x::bigint & 4294967295` in SQL."""

    __slots__ = ()
    element_oid, array_oid, width = 23, 1007, 4


class Int8s(PackedArray):
    """bigint[]"""

    __slots__ = ()
    element_oid, array_oid, width = 20, 1016, 8


class Instants(PackedArray):
    """timestamptz[] of microseconds since 2000 (see `packed_instant`)."""

    __slots__ = ()
    element_oid, array_oid, width = 1184, 1185, 8


_INT2 = struct.Struct(">h")
_INT8 = struct.Struct(">q")


def int8s(values: Iterable[int]) -> Int8s:
    """bigint[] of ordinary numbers."""
    return Int8s([_INT8.pack(value) for value in values])


def packed_int8(value: int) -> bytes:
    """One element of Int8s."""
    return _INT8.pack(value)


@lru_cache(maxsize=2048)
def packed_int2(value: int) -> bytes:
    """One element of Int2s. Attempts and HTTP statuses are few, so they are packed once."""
    return _INT2.pack(value)


def packed_instant(epoch_us: int) -> bytes:
    """One element of Instants, from microseconds since 1970."""
    return _INT8.pack(epoch_us - EPOCH_2000_S * 1_000_000)


def instant_us(packed: bytes) -> int:
    """Microseconds since 1970 of an element of Instants."""
    value: int = _INT8.unpack(packed)[0]
    return value + EPOCH_2000_S * 1_000_000


def _dumper(kind: type[PackedArray]) -> type[Dumper]:
    class PackedDumper(Dumper):
        format = Format.BINARY
        oid = kind.array_oid

        def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
            super().__init__(cls, context)

        def dump(self, obj: PackedArray) -> Buffer:
            return obj.data

    return PackedDumper


# Our own classes, so a registration for the whole process changes nothing for anybody else.
for _kind in (Uuids, Int2s, Int4s, Int8s, Instants):
    psycopg.adapters.register_dumper(_kind, _dumper(_kind))
