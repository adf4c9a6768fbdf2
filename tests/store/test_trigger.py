"""What the trigger of schedules sets, whoever writes: versions, floors, revisions. Raw SQL and COPY are first-class."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from bucketd.timing import EverySpec, parse_cron
from tests.support.rows import Rows

STAMPED = "timing_version, timing_from, floor, revision, change_xid::text, timing_xid::text, updated_at, jitter_offset_s, due_phase"


@pytest.fixture
def rows(shared: psycopg.Connection[Any]) -> Rows:
    return Rows(shared)


def stamps(rows: Rows, id: UUID) -> tuple[Any, ...]:
    return tuple(rows.sql(f"select {STAMPED} from bucketd.schedules where id = %s", id)[0])


def versions(rows: Rows, id: UUID) -> list[tuple[Any, ...]]:
    return rows.sql(
        "select timing_version, spec_id, phase, jitter_offset_s, valid_from, valid_until"
        " from bucketd.schedule_versions where schedule_id = %s order by timing_version",
        id,
    )


def test_a_new_schedule_begins_now_whatever_the_writer_says(rows: Rows) -> None:
    rows.turn_clock(3_600)
    now = rows.now()
    past = datetime(2020, 1, 1, tzinfo=UTC)
    id = rows.every(60, 5, timing_version=9, timing_from=past, floor=past, revision=7, created_at=past, change_xid="1",
                    jitter_offset_s=99, due_phase=99)  # fmt: skip
    version, since, floor, revision, change, timing, _, jitter_s, due_phase = stamps(rows, id)
    assert (version, revision, jitter_s, due_phase) == (1, 1, 0, 5)
    assert since == floor == rows.of(id, "created_at")
    assert now <= since.timestamp() <= rows.now()
    assert change == timing != "1"
    assert rows.of(id, "partition_id") == id.bytes[15]


@pytest.mark.parametrize("column", ["timing_version", "revision", "jitter_offset_s", "due_phase"])
def test_stamps_cannot_be_written(rows: Rows, column: str) -> None:
    id = rows.every(60)
    before = stamps(rows, id)
    rows.sql(f"update bucketd.schedules set {column} = {column} + 5 where id = %s", id)
    assert stamps(rows, id) == before


def test_an_update_that_changes_nothing_changes_nothing(rows: Rows) -> None:
    id = rows.every(60, 7, payload='{"a": 1}', labels='{"b": "c"}', jitter_s=20)
    before = stamps(rows, id)
    rows.sql(
        'update bucketd.schedules set phase = 7, payload = \'{"a": 1}\', labels = \'{"b": "c"}\' where id = %s', id
    )
    rows.sql(
        "update bucketd.schedules set change_xid = '7', timing_from = '2020-01-01', updated_at = now() where id = %s",
        id,
    )
    assert stamps(rows, id) == before
    assert versions(rows, id) == []


@pytest.mark.parametrize(
    "change",
    [
        "payload = '{\"a\": 2}'",
        "name = 'other'",
        "expression = 'e'",
        "timeout_s = 9",
        "misfire = 'skip'",
        'labels = \'{"x": "y"}\'',
    ],
)
def test_an_edit_that_is_no_timing_moves_no_version(rows: Rows, change: str) -> None:
    id = rows.every(60)
    before = stamps(rows, id)
    rows.sql(f"update bucketd.schedules set {change} where id = %s", id)
    after = stamps(rows, id)
    assert after[:3] == before[:3]
    assert after[3] == 2, "revision"
    assert int(after[4]) > int(before[4]), "the feed shows it"
    assert after[5] == before[5], "timing_xid"
    assert versions(rows, id) == []


def test_an_edit_of_timing_closes_the_old_version(rows: Rows) -> None:
    id = rows.every(60, 7)
    spec, since = rows.of(id, "spec_id", "timing_from")
    rows.sql("update bucketd.schedules set phase = 8 where id = %s", id)
    rows.sql("update bucketd.schedules set spec_id = %s, phase = 0 where id = %s", rows.spec(EverySpec(90)), id)
    assert rows.of(id, "timing_version", "revision") == (3, 3)
    (first, second) = versions(rows, id)
    assert first[:4] == (1, spec, 7, 0)
    assert second[:4] == (2, spec, 8, 0)
    assert first[4] == since
    assert first[5] == second[4], "intervals meet and do not overlap"
    assert second[5] == rows.of(id, "timing_from")
    assert rows.of(id, "floor") == since, "an edit raises no floor: it never drops what was due"


def test_the_floor_only_rises_and_that_is_no_edit(rows: Rows) -> None:
    id = rows.every(60)
    before = stamps(rows, id)
    later = before[2] + timedelta(hours=1)
    rows.sql("update bucketd.schedules set floor = %s where id = %s", later, id)
    assert stamps(rows, id) == (*before[:2], later, *before[3:])
    rows.sql("update bucketd.schedules set floor = %s where id = %s", before[2], id)
    rows.sql("update bucketd.schedules set floor = %s, payload = '1' where id = %s", before[2], id)
    assert rows.of(id, "floor") == later


def test_resume_raises_the_floor_and_pause_does_not(rows: Rows) -> None:
    id = rows.every(60)
    rows.turn_clock(600)
    floor, timing_xid = rows.of(id, "floor", "timing_xid::text")
    rows.sql("update bucketd.schedules set paused = true where id = %s", id)
    assert rows.of(id, "floor", "timing_xid::text") == (floor, timing_xid)
    rows.turn_clock(600)
    now = rows.now()
    rows.sql("update bucketd.schedules set paused = false where id = %s", id)
    assert now <= rows.of(id, "floor").timestamp() <= rows.now()
    assert rows.of(id, "timing_xid::text") != timing_xid, "settling looks behind its watermark for a late resume"
    assert rows.of(id, "timing_version") == 1
    assert versions(rows, id) == []


def test_jitter_is_stable_and_stays_below_the_period(rows: Rows) -> None:
    id = UUID("00000000-0000-4000-8000-00000000002a")
    rows.every(30, 29, id=id, jitter_s=3_600)
    jitter_s, due_phase = rows.of(id, "jitter_offset_s", "due_phase")
    assert 0 <= jitter_s < 30
    assert due_phase == (29 + jitter_s) % 30
    rows.sql("delete from bucketd.schedules where id = %s", id)
    rows.every(30, 29, id=id, jitter_s=3_600)
    assert rows.of(id, "jitter_offset_s") == jitter_s
    offsets = {rows.of(rows.cron("0 9 * * *", jitter_s=600), "jitter_offset_s", "due_phase") for _ in range(40)}
    assert len(offsets) > 20
    assert all(0 <= offset == due_phase <= 600 for offset, due_phase in offsets)


def test_a_spec_knows_the_largest_jitter_of_its_schedules(rows: Rows) -> None:
    spec = rows.spec(parse_cron("0 8 * * *")[0])
    of_spec = "select max_jitter_s, change_xid::text from bucketd.specs where spec_id = %s"
    before = rows.sql(of_spec, spec)[0]
    rows.cron("0 8 * * *", jitter_s=300)
    grown = rows.sql(of_spec, spec)[0]
    assert grown[0] == 300
    assert int(grown[1]) > int(before[1]), "the feed of specs shows it"
    rows.cron("0 8 * * *", jitter_s=20)
    rows.cron("0 8 * * *")
    assert rows.sql(of_spec, spec)[0] == grown


def test_a_phase_edit_moves_the_phase_of_due(rows: Rows) -> None:
    id = rows.every(60, 7, jitter_s=59)
    rows.sql("update bucketd.schedules set phase = 50 where id = %s", id)
    jitter_s, due_phase = rows.of(id, "jitter_offset_s", "due_phase")
    assert due_phase == (50 + jitter_s) % 60
    rows.sql("update bucketd.schedules set jitter_s = 0 where id = %s", id)
    assert rows.of(id, "jitter_offset_s", "due_phase", "timing_version") == (0, 50, 3)


def test_copy_is_stamped_like_any_insert(rows: Rows, shared: psycopg.Connection[Any]) -> None:
    spec, target, ids = rows.spec(EverySpec(60)), rows.target(), [uuid4() for _ in range(50)]
    with (
        shared.cursor() as cursor,
        cursor.copy(b"copy bucketd.schedules (id, name, spec_id, phase, jitter_s, target_id) from stdin") as copy,
    ):
        for n, id in enumerate(ids):
            copy.write_row((id, f"copied-{n}", spec, n, 10, target))
    found = rows.sql("select timing_version, revision, timing_from = floor, due_phase = (phase + jitter_offset_s) %% 60"
                     " from bucketd.schedules where name like %s", "copied-%")  # fmt: skip
    assert found == [(1, 1, True, True)] * 50


def test_one_transaction_writes_one_change(rows: Rows, shared: psycopg.Connection[Any]) -> None:
    with shared.transaction():
        one, other = rows.every(60), rows.every(90)
        xid = rows.one("select pg_current_xact_id()::text")
    assert rows.of(one, "change_xid::text") == rows.of(other, "change_xid::text") == xid


def test_the_revision_of_a_target_moves_with_it(rows: Rows) -> None:
    target = rows.target()
    revision = "select revision from bucketd.targets where target_id = %s"
    rows.sql("update bucketd.targets set timeout_s = timeout_s where target_id = %s", target)
    assert rows.one(revision, target) == 1
    rows.sql("update bucketd.targets set timeout_s = 9 where target_id = %s", target)
    assert rows.one(revision, target) == 2


def test_deleting_a_schedule_takes_its_versions_along(rows: Rows) -> None:
    id = rows.every(60)
    rows.sql("update bucketd.schedules set phase = 8 where id = %s", id)
    rows.sql("delete from bucketd.schedules where id = %s", id)
    assert versions(rows, id) == []
