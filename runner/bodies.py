"""The text of a request: JSON joined from parts, the payload spliced in as stored.

What all fires of one spec and instant share (three instants in ISO form, the beginning of the run id) is made once and cached;
per run there are one join, one hex and one quoted name.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from struct import Struct
from typing import Any, NamedTuple

from bucketd.store.arrays import packed_instant
from bucketd.store.fires import FAR
from bucketd.store.model import epoch_us, instant

_TAIL = Struct(">III")


class Moment(NamedTuple):
    """The parts of a run that come from its instants alone."""

    at: bytes  # element of arrays.Instants
    id_prefix: str
    instants: str  # the three JSON members


quoted_tenant = lru_cache(maxsize=4096)(quoted)


@lru_cache(maxsize=8192)
def moment_of_tail(tail: bytes) -> Moment:
    """From scheduled_at, previous and next distance as they stand in a fire."""
    at_s, previous_s, next_s = _TAIL.unpack(tail)
    before = None if previous_s in (0, FAR) else (at_s - previous_s) * 1_000_000
    after = None if next_s in (0, FAR) else (at_s + next_s) * 1_000_000
    return _moment(at_s * 1_000_000, before, after)


@lru_cache(maxsize=8192)
def moment_of(at: datetime) -> Moment:
    """From a row: what came before and after is not stored there."""
    return _moment(epoch_us(at), None, None)


def _moment(at_us: int, before_us: int | None, after_us: int | None) -> Moment:
    at = instant(at_us)
    fraction = f"_{at.microsecond:06d}" if at.microsecond else ""
    return Moment(
        packed_instant(at_us),
        f"{at:%Y%m%dT%H%M%S}{fraction}Z-",
        f'"scheduled_at":{_iso(at_us)},"previous_at":{_iso(before_us)},"next_at":{_iso(after_us)}',
    )


def _iso(at_us: int | None) -> str:
    return "null" if at_us is None else f'"{instant(at_us).isoformat().removesuffix("+00:00")}Z"'


def body(run_id: str, name: str, tenant: str, instants: str, attempt: int, payload: str) -> str:
    """The JSON object of one run. `payload` is JSON text and goes in untouched."""
    return (
        f'{{"run_id":"{run_id}","schedule":{quoted(name)},"tenant":{quoted_tenant(tenant)},{instants},'
        f'"attempt":{attempt},"payload":{payload}}}'
    )


_PAYLOAD = ',"payload":'


def taken_apart(text: str) -> tuple[dict[str, Any], str]:
    """What `body` joined: the members of the envelope, and the payload as stored.

    The first `"payload":` is the member: within a text quotes are escaped, and no member before it has that name.
    """
    end = text.index(_PAYLOAD)
    return json.loads(text[:end] + "}"), text[end + len(_PAYLOAD) : -1]
