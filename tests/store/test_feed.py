"""The change feed: every committed write is seen exactly once, however late it commits and whatever else stays open."""

import random
from typing import Any
from uuid import UUID

import psycopg

from bucketd.store import feed
from bucketd.timing import EverySpec
from tests.support.rows import Rows


async def changed(connection: psycopg.AsyncConnection[Any], cursor: feed.Cursor) -> tuple[feed.Cursor, list[UUID]]:
    cursor, found = await feed.schedules(connection, cursor.snapshot, 1_000)
    assert found is not None
    return cursor, [row.id for row in found]


async def test_each_write_is_seen_once(connection: psycopg.AsyncConnection[Any], rows: Rows) -> None:
    cursor = await feed.snapshot(connection)
    id = rows.every(60, 7, jitter_s=5)
    cursor, found = await feed.schedules(connection, cursor.snapshot, 10)
    assert found == [
        feed.ChangedSchedule(
            id,
            id.bytes[15],
            rows.of(id, "spec_id"),
            7,
            rows.of(id, "jitter_offset_s"),
            id.bytes + (1).to_bytes(4, "big") + rows.of(id, "tenant_hash").to_bytes(2, "big"),
            False,
            rows.of(id, "extract(epoch from greatest(floor, timing_from))::float8"),
        )
    ]
    cursor, ids = await changed(connection, cursor)
    assert ids == []
    rows.sql("update bucketd.schedules set paused = true, phase = 8 where id = %s", id)
    cursor, found = await feed.schedules(connection, cursor.snapshot, 10)
    assert found is not None
    assert [(row.head[16:20], row.phase, row.paused) for row in found] == [(b"\0\0\0\2", 8, True)]
    rows.sql("update bucketd.schedules set floor = floor + interval '1 day' where id = %s", id)
    assert (await changed(connection, cursor))[1] == [], "settling raises floors without telling anybody"


async def test_a_late_commit_is_seen_when_it_commits(
    connection: psycopg.AsyncConnection[Any], rows: Rows, dsn: str
) -> None:
    rows.every(60)  # target and spec exist
    cursor = await feed.snapshot(connection)
    with psycopg.connect(dsn) as other:
        late = Rows(other).every(60)
        after = rows.every(60)  # a younger transaction commits first
        cursor, ids = await changed(connection, cursor)
        assert ids == [after]
        cursor, ids = await changed(connection, cursor)
        assert ids == [], "an open transaction does not make everything come again"
        other.commit()
    cursor, ids = await changed(connection, cursor)
    assert ids == [late]
    assert (await changed(connection, cursor))[1] == []


async def test_a_rollback_is_never_seen(connection: psycopg.AsyncConnection[Any], rows: Rows, dsn: str) -> None:
    rows.every(60)
    cursor = await feed.snapshot(connection)
    with psycopg.connect(dsn) as other:
        Rows(other).every(60)
        other.rollback()
    assert (await changed(connection, cursor))[1] == []


async def test_any_order_of_begin_read_and_commit(
    connection: psycopg.AsyncConnection[Any], rows: Rows, dsn: str
) -> None:
    """Four writers, savepoints included, in a random order of steps: the feed shows each committed schedule once."""
    random.seed(20_261_130)
    spec, target = rows.spec(EverySpec(60)), rows.target()
    writers = [psycopg.connect(dsn) for _ in range(4)]
    pending: dict[int, list[UUID]] = {n: [] for n in range(4)}
    committed: list[UUID] = []
    seen: list[UUID] = []
    cursor = await feed.snapshot(connection)
    for step in range(300):
        n = random.randrange(4)
        action = random.choice(["write", "write", "savepoint", "commit", "rollback", "read", "read"])
        if action == "read":
            cursor, ids = await changed(connection, cursor)
            seen += ids
        elif action == "commit":
            writers[n].commit()
            committed += pending[n]
            pending[n] = []
        elif action == "rollback":
            writers[n].rollback()
            pending[n] = []
        else:
            if action == "savepoint":
                writers[n].execute("savepoint s")
            row = (
                writers[n]
                .execute(
                    "insert into bucketd.schedules (name, spec_id, target_id) values (%s, %s, %s) returning id",
                    (f"n{step}", spec, target),
                )
                .fetchone()
            )
            assert row is not None
            pending[n].append(row[0])
    for writer in writers:
        writer.close()
    seen += (await changed(connection, cursor))[1]
    assert sorted(seen) == sorted(committed)


async def test_more_than_asked_for_is_told_as_such(connection: psycopg.AsyncConnection[Any], rows: Rows) -> None:
    cursor = await feed.snapshot(connection)
    for _ in range(3):
        rows.every(60)
    assert (await feed.schedules(connection, cursor.snapshot, 2))[1] is None
    found = (await feed.schedules(connection, cursor.snapshot, 3))[1]
    assert found is not None
    assert len(found) == 3


async def test_specs_by_the_same_feed(connection: psycopg.AsyncConnection[Any], rows: Rows, dsn: str) -> None:
    cursor, found = await feed.specs(connection, None)
    assert [spec.kind for spec in found] == ["at"], "the migration makes that one"
    with psycopg.connect(dsn) as other:
        late = Rows(other).spec(EverySpec(77))
        early = rows.spec(EverySpec(78))
        cursor, found = await feed.specs(connection, cursor)
        assert [spec.spec_id for spec in found] == [early]
        other.commit()
    cursor, found = await feed.specs(connection, cursor)
    assert [(spec.spec_id, spec.rule) for spec in found] == [(late, EverySpec(77).rule())]
    rows.every(78, jitter_s=30)
    cursor, found = await feed.specs(connection, cursor)
    assert [(spec.spec_id, spec.max_jitter_s) for spec in found] == [(early, 30)]
    assert (await feed.specs(connection, cursor))[1] == []


async def test_ids_of_a_restored_dump_do_not_come_again_with_each_look(
    connection: psycopg.AsyncConnection[Any], rows: Rows
) -> None:
    """A dump brings the ids of another server along; they may lie far beyond what this one has given out."""
    rows.every(60)
    cursor = await feed.snapshot(connection)
    for table in ("schedules", "specs"):
        rows.sql(f"alter table bucketd.{table} disable trigger all")
        rows.sql(f"update bucketd.{table} set change_xid = '123456789012'")
        rows.sql(f"alter table bucketd.{table} enable trigger all")
    cursor, ids = await changed(connection, cursor)
    assert ids == []
    assert (await feed.specs(connection, cursor))[1] == []
    id = rows.every(60)
    assert (await changed(connection, cursor))[1] == [id]


async def test_xmax_rises_with_each_transaction(connection: psycopg.AsyncConnection[Any], rows: Rows) -> None:
    before = await feed.snapshot(connection)
    rows.every(60)
    after = await feed.snapshot(connection)
    assert feed.xmax(after.snapshot) > feed.xmax(before.snapshot)
    assert after.follows(before)
    assert not before.follows(after)
    assert not after._replace(history="another").follows(before)
    assert feed.xmax("10:12:10,11") == 12
