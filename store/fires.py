"""The fire: 34 bytes that stand for one on-time occurrence in Redis, and the queue message that carries many.

A fire holds no payload and no secret. Layout, big-endian, in the order in which the planner can build it cheapest (Postgres
returns id, version and hash packed; the rest is the same for every schedule of a spec and instant):

    16  schedule id
     4  timing version
     2  a hash of the tenant: tells crowds apart (see scheduler/crowds.py), and means nothing else
     4  scheduled_at, epoch seconds, unsigned (to 2106)
     4  seconds from the previous occurrence, 0 = none, 2**32 - 1 = that or longer
     4  seconds to the next occurrence, likewise

A message is msgpack [version, partition, packed fires, ..]. Each version adds one field at the end and changes none, so a process reads
its own and all older ones; a newer one it acknowledges unread. Runners announce what they read in their row, and schedulers write the
newest version that every live runner announces: so both can be restarted one by one, in any order, to a newer release or an older one.
Version 2 is what tests put into that place until there is a real one (BUCKETD_TEST_MESSAGE_VERSION): it adds the owner's epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import msgpack

FIRE = struct.Struct(">16sIHIII")
HEAD_BYTES = 22  # schedule id + timing version + hash of the tenant
TENANT_HASH = slice(20, 22)  # where that hash stands
ASKED = struct.Struct(">16s4s2x12s")  # a fire as confirm asks about it: schedule id, timing version, tail
_TAIL = struct.Struct(">III")
MESSAGE_VERSION = 1  # the newest that this release reads and writes
OLDEST_VERSION = 1  # the oldest that any release in use reads
FAR = 2**32 - 1  # a distance in a fire: "that or longer", so it is unknown


class Fire(NamedTuple):
    """One decoded fire; instants and distances in seconds."""

    schedule_id: bytes
    timing_version: int
    tenant_hash: int
    scheduled_at_s: int
    previous_s: int
    next_s: int


def tail(scheduled_at_s: int, previous_s: int | None, next_s: int | None) -> bytes:
    """The part of a fire that all schedules of one spec and instant share. None: there is no such occurrence."""
    try:
        return _TAIL.pack(scheduled_at_s, previous_s or 0, next_s or 0)
    except struct.error:  # a distance of more than 136 years; clamping every one would cost as much as packing it
        return _TAIL.pack(scheduled_at_s, min(previous_s or 0, FAR), min(next_s or 0, FAR))


def members(heads: bytes, shared_tail: bytes) -> list[bytes]:
    """Fires from packed heads (22 bytes each) and their common tail."""
    return [heads[i : i + HEAD_BYTES] + shared_tail for i in range(0, len(heads), HEAD_BYTES)]


def unpack(packed: bytes) -> list[Fire]:
    """Fires of a packed run of them. Raises struct.error if the length is no multiple of a fire's."""
    return [Fire._make(fields) for fields in FIRE.iter_unpack(packed)]


class Malformed(ValueError):
    """A queue message that this code cannot read; the caller acknowledges and counts it (settling covers what it held)."""


def version_to_write(announced: int | None, newest: int) -> int:
    """The newest version that this process knows and that all live runners read. `announced`: the least of what they announce; None:
    there is none, so the next to come may be of any release."""
    return OLDEST_VERSION if announced is None else max(OLDEST_VERSION, min(announced, newest))


def encode_message(partition: int, fires: Iterable[bytes], *added: object, version: int = MESSAGE_VERSION) -> bytes:
    """A queue message as the drain script writes it; `added`: the fields that came after version 1."""
    packed: bytes = msgpack.packb([version, partition, b"".join(fires), *added])
    return packed


def decode_message(raw: bytes, *, newest: int = MESSAGE_VERSION) -> tuple[int, bytes]:
    """(partition, packed fires) of a queue message of a version up to `newest`.

    Raises Malformed for an unknown version, a wrong shape or a torn fire.
    """
    try:
        version, partition, packed, *added = msgpack.unpackb(raw, raw=True)  # Lua writes strings, and ours are bytes
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Malformed(f"expected msgpack [version, partition, fires], got {len(raw)} unreadable bytes") from error
    if type(version) is not int or not OLDEST_VERSION <= version <= newest or len(added) != version - 1:
        raise Malformed(f"expected a message of version {OLDEST_VERSION} to {newest}, got {version!r:.20} and {len(added)} fields more")
    if not isinstance(packed, bytes) or not isinstance(partition, int):
        raise Malformed("expected a partition and bytes, got something else")
    if not 0 <= partition <= 255 or not packed or len(packed) % FIRE.size:
        raise Malformed(f"expected whole fires of {FIRE.size} bytes, got {len(packed)} bytes of partition {partition}")
    return partition, packed
