"""The fire: 33 bytes that stand for one on-time occurrence in Redis, and the queue message that carries many.

A fire holds no payload and no secret. Layout, big-endian, in the order in which the planner can build it cheapest (Postgres
returns id + version packed; the rest is the same for every schedule of a spec and instant):

    16  schedule id
     4  timing version
     4  scheduled_at, epoch seconds, unsigned (to 2106)
     4  seconds from the previous occurrence, 0 = none, 2**32 - 1 = that or longer
     4  seconds to the next occurrence, likewise
     1  flags (reserved, 0)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import msgpack

FIRE = struct.Struct(">16sIIIIB")
HEAD_BYTES = 20  # schedule id + timing version
_TAIL = struct.Struct(">IIIB")
MESSAGE_VERSION = 1
FAR = 2**32 - 1  # a distance in a fire: "that or longer", so it is unknown


class Fire(NamedTuple):
    """One decoded fire; instants and distances in seconds."""

    schedule_id: bytes
    timing_version: int
    scheduled_at_s: int
    previous_s: int
    next_s: int
    flags: int


def tail(scheduled_at_s: int, previous_s: int | None, next_s: int | None) -> bytes:
    """The part of a fire that all schedules of one spec and instant share. None: there is no such occurrence."""
    try:
        return _TAIL.pack(scheduled_at_s, previous_s or 0, next_s or 0, 0)
    except struct.error:  # a distance of more than 136 years; clamping every one would cost as much as packing it
        return _TAIL.pack(scheduled_at_s, min(previous_s or 0, FAR), min(next_s or 0, FAR), 0)


def members(heads: bytes, shared_tail: bytes) -> list[bytes]:
    """Fires from packed heads (id + version, 20 bytes each) and their common tail."""
    return [heads[i : i + HEAD_BYTES] + shared_tail for i in range(0, len(heads), HEAD_BYTES)]


def unpack(packed: bytes) -> list[Fire]:
    """Fires of a packed run of them. Raises struct.error if the length is no multiple of a fire's."""
    return [Fire._make(fields) for fields in FIRE.iter_unpack(packed)]


class Malformed(ValueError):
    """A queue message that this code cannot read; the caller acknowledges and counts it (settling covers what it held)."""


def encode_message(partition: int, fires: Iterable[bytes]) -> bytes:
    """A queue message as the drain script writes it: msgpack [version, partition, packed fires]."""
    packed: bytes = msgpack.packb([MESSAGE_VERSION, partition, b"".join(fires)])
    return packed


def decode_message(raw: bytes) -> tuple[int, bytes]:
    """(partition, packed fires) of a queue message.

    Raises Malformed for an unknown version, a wrong shape or a torn fire.
    """
    try:
        version, partition, packed = msgpack.unpackb(raw, raw=True)  # Lua writes strings, and ours are bytes
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Malformed(f"expected msgpack [version, partition, fires], got {len(raw)} unreadable bytes") from error
    if version != MESSAGE_VERSION or not isinstance(packed, bytes) or not isinstance(partition, int):
        raise Malformed(f"expected message version {MESSAGE_VERSION}, got {version!r}")
    if not 0 <= partition <= 255 or not packed or len(packed) % FIRE.size:
        raise Malformed(f"expected whole fires of {FIRE.size} bytes, got {len(packed)} bytes of partition {partition}")
    return partition, packed
