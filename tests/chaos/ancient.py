"""A schedule that has been there for days before the play: nothing of it is due in the play, but old fires of it can come back."""

from __future__ import annotations

from uuid import UUID

from bucketd.store.fires import members, tail

_ID = UUID("77777777-7777-4777-8777-777777777777")
PUT = """
with spec as (
    insert into bucketd.specs (kind, rule, every_s) values ('every', '{"every_s":86400,"kind":"every"}', 86400)
    on conflict (md5(rule)) do update set rule = excluded.rule
    returning spec_id
)
insert into bucketd.schedules (id, tenant, name, spec_id, phase, target_id)
select %s, 'ancient', 'ancient', spec_id, 43200, target_id from spec, bucketd.targets where name = 'plain'"""


def schedule_id() -> UUID:
    """Its id."""
    return _ID


def fire_of(at_s: int, next_s: int) -> bytes:
    """An occurrence of it, at noon of some day, by its first timing."""
    (fire,) = members(_ID.bytes + (1).to_bytes(4, "big") + bytes(2), tail(at_s, None, next_s))
    return fire
