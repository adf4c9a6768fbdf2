"""Packed arrays arrive in Postgres as what they stand for."""

from uuid import uuid4

import psycopg
import pytest

from bucketd.store.arrays import (
    Instants,
    Int2s,
    Int4s,
    Int8s,
    PackedArray,
    Uuids,
    instant_us,
    int8s,
    packed_instant,
    packed_int2,
)
from bucketd.store.model import instant


@pytest.mark.parametrize("size", [0, 1, 3])
def test_packed_arrays_are_what_they_stand_for(size: int, dsn: str) -> None:
    ids = [uuid4() for _ in range(size)]
    numbers = [(-1) ** n * n for n in range(size)]
    instants = [instant(1_796_000_000_123_456 + n) for n in range(size)]
    cases: list[tuple[PackedArray, str, object]] = [
        (Uuids([found.bytes for found in ids]), "uuid[]", ids),
        (Int2s([packed_int2(n) for n in numbers]), "smallint[]", numbers),
        (Int4s([n.to_bytes(4, "big", signed=True) for n in numbers]), "integer[]", numbers),
        (int8s(numbers), "bigint[]", numbers),
        (Instants([packed_instant(1_796_000_000_123_456 + n) for n in range(size)]), "timestamptz[]", instants),
    ]
    with psycopg.connect(dsn) as connection:
        for packed, kind, expected in cases:
            row = connection.execute(f"select %s::{kind}".encode(), (packed,)).fetchone()
            assert row is not None
            assert row[0] == expected


def test_an_unsigned_number_comes_back_by_the_mask(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select (x::bigint & 4294967295) from unnest(%s::int[]) x", (Int4s([(2**32 - 1).to_bytes(4, "big")]),)
        ).fetchone()
    assert row == (2**32 - 1,)


def test_an_instant_survives_packing() -> None:
    assert instant_us(packed_instant(1_796_000_000_123_456)) == 1_796_000_000_123_456
    assert Int8s([b"\0" * 8]).data == Int8s((b"\0" * 8,)).data
