"""The runner's parts without servers: backlog, admission, the book of claims, bodies."""

import asyncio
import json
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.runner.admission import LEAST_WINDOW, Admission
from bucketd.runner.backlog import CROWD_BATCH, Backlog, Message
from bucketd.runner.bodies import body, moment_of, moment_of_tail
from bucketd.runner.outage import Cause, cause
from bucketd.runner.run import ClaimBook, Incarnation, Run, counted
from bucketd.store import fires
from bucketd.store.clock import utc
from bucketd.store.config import Settings
from bucketd.store.fires import tail
from bucketd.store.model import parse_run_id, run_id

AT = 1_796_000_000


def packed(*ids: int, at: int = AT) -> bytes:
    return b"".join(UUID(int=n).bytes + b"\0\0\0\1\0\0" + tail(at, None, 60) for n in ids)


def put(backlog: Backlog, data: bytes, *, crowd: bool = False) -> Message:
    message = Message("s", b"1")
    message.open = len(data) // fires.FIRE.size
    backlog.put(message, data, crowd=crowd)
    return message


async def test_a_backlog_gives_fires_in_order_with_their_messages() -> None:
    backlog = Backlog(100)
    first, second = put(backlog, packed(1, 2, 3)), put(backlog, packed(4, 5))
    taken, owners, _ = backlog.take(4)
    assert [UUID(bytes=fire[0]).int for fire in taken] == [1, 2, 3, 4]
    assert owners == [first] * 3 + [second]
    assert taken[0][1:] == (b"\0\0\0\1", tail(AT, None, 60))
    assert backlog.size == 1
    assert backlog.some.is_set()
    assert len(backlog.take(4)[0]) == 1
    assert not backlog.some.is_set()


async def test_a_backlog_never_gives_a_key_twice_at_once() -> None:
    backlog = Backlog(100)
    put(backlog, packed(1, 2, 1) + packed(1, at=AT + 60))
    taken, owners, _ = backlog.take(10)
    assert len(taken) == len(owners) == 3  # id 1 at two instants is two keys
    assert backlog.size == 1
    assert len(backlog.take(10)[0]) == 1


async def test_a_full_backlog_stops_reading_until_what_it_keeps_is_decided() -> None:
    backlog = Backlog(3)
    put(backlog, packed(1, 2, 3))
    assert not backlog.room(crowd=False).is_set()
    taken, owners, _ = backlog.take(3)
    assert backlog.room(crowd=False).is_set()
    backlog.keep_for(taken, owners, 0.01)
    assert backlog.size == 0
    assert not backlog.room(crowd=False).is_set()
    await asyncio.wait_for(backlog.some.wait(), 1)
    assert backlog.take(3)[0] == taken


async def test_a_crowd_is_taken_after_all_others_in_small_batches_and_never_by_everybody() -> None:
    backlog = Backlog(4_000, confirmers=3)
    put(backlog, packed(*range(1_000, 4_000)), crowd=True)
    put(backlog, packed(1, 2))
    assert (len(backlog.take(2_000)[0]), backlog.size) == (2, 3_000)
    batches = [backlog.take(2_000) for _ in range(2)]
    assert [(len(taken), crowd) for taken, _, crowd in batches] == [(CROWD_BATCH, True)] * 2
    assert not backlog.some.is_set(), "one confirmer is left for whoever comes next"
    put(backlog, packed(3))
    assert backlog.some.is_set()
    assert [UUID(bytes=fire[0]).int for fire in backlog.take(2_000)[0]] == [3]
    assert not backlog.some.is_set()
    backlog.crowd_decided()
    assert backlog.some.is_set()


async def test_a_crowd_that_is_alone_has_all_confirmers_and_whole_batches() -> None:
    backlog = Backlog(4_000, confirmers=3)
    put(backlog, packed(*range(1_000, 7_000)), crowd=True)
    assert [len(backlog.take(2_000)[0]) for _ in range(3)] == [2_000] * 3


async def test_a_full_line_of_a_crowd_keeps_no_other_reading_out() -> None:
    backlog = Backlog(3, confirmers=3)
    put(backlog, packed(1, 2, 3), crowd=True)
    assert (backlog.room(crowd=True).is_set(), backlog.room(crowd=False).is_set()) == (False, True)


SETTINGS = Settings.load({}, concurrency=100, confirm_batch=1000)


def test_the_window_grows_while_work_waits_and_shrinks_when_calls_do() -> None:
    admission = Admission(SETTINGS)
    assert admission.room(1000) == 100
    sizes = []
    for _ in range(7):
        room = admission.room(1000)
        sizes.append(room)
        admission.reserve(room)
        admission.claimed(room, room, room * 100)
        admission.queued(room)
        admission.queued(-room)
        admission.ended(room)
    assert sizes == [100, 200, 400, 800, 1000, 1000, 1000]
    assert admission.window <= 2100
    before = admission.window
    admission.waited(1.5)
    admission.waited(1.5)  # at once again: one second's waiting halves once
    assert admission.window == before // 2
    assert before // 2 > LEAST_WINDOW


def test_open_runs_and_bytes_are_bounded() -> None:
    admission = Admission(SETTINGS)
    admission.window = 10**9
    admission.reserve(1000)
    admission.claimed(1000, 1000, 1000 * 64 * 1024)
    assert admission.room(1000) <= 128  # 8 MiB a batch
    assert admission.room(1000) + admission.open <= 1024  # 64 MiB open
    admission.ended(1000)
    assert admission.open == 0


async def test_waiters_for_room_are_woken() -> None:
    admission = Admission(SETTINGS)
    admission.reserve(100)
    waiter = asyncio.create_task(admission.wait())
    await asyncio.sleep(0)
    assert not waiter.done()
    admission.claimed(100, 0, 0)
    await asyncio.wait_for(waiter, 1)


def runs_of(book: ClaimBook, incarnation: Incarnation, number: int) -> list[Run]:
    claim = book.new(incarnation)
    runs = [Run(b"x" * 16, b"y" * 8, 1, claim, "t", 1, None, "id", "{}") for _ in range(number)]
    book.opened(claim, number)
    return runs


def test_a_claim_is_spent_with_its_last_runs() -> None:
    book, incarnation = ClaimBook(), Incarnation(uuid4())
    runs = runs_of(book, incarnation, 3)
    first, rest = counted(runs[:1]), counted(runs[1:])
    assert book.spent_by(first) == []
    book.written(first, [])
    assert book.spent_by(rest) == [runs[0].claim.number]
    book.written(rest, [runs[0].claim.number])
    assert len(book) == 0
    assert not book.has_left_over


def test_two_writers_with_the_last_parts_leave_the_claim_to_the_next() -> None:
    book, incarnation = ClaimBook(), Incarnation(uuid4())
    runs = runs_of(book, incarnation, 2)
    one, two = counted(runs[:1]), counted(runs[1:])
    assert book.spent_by(one) == book.spent_by(two) == []
    book.written(one, [])
    book.written(two, [])
    assert book.has_left_over
    spent = book.spent_by(counted([]))
    assert spent == [runs[0].claim.number]
    book.unwritten(counted([]), spent)
    assert book.spent_by(counted([])) == spent


def test_an_ended_incarnation_takes_only_its_own_claims() -> None:
    book, old, new = ClaimBook(), Incarnation(uuid4()), Incarnation(uuid4())
    runs_of(book, old, 2)
    kept = runs_of(book, new, 2)
    assert book.drop(old) == 1
    assert book.numbers() == [kept[0].claim.number]


@given(
    name=st.text(min_size=1),
    tenant=st.text(min_size=1),
    at=st.integers(1, 2**32 - 2**20),
    before=st.integers(0, 2**20) | st.just(2**32 - 1),
    after=st.integers(0, 2**20) | st.just(2**32 - 1),
    payload=st.recursive(st.none() | st.booleans() | st.text() | st.integers(), st.lists, max_leaves=5),
)
def test_a_body_is_json_and_carries_its_run(
    name: str, tenant: str, at: int, before: int, after: int, payload: object
) -> None:
    schedule = uuid4()
    moment = moment_of_tail(tail(at, before, after)[:12])
    made_id = moment.id_prefix + schedule.hex
    parsed = json.loads(body(made_id, name, tenant, moment.instants, 1, json.dumps(payload)))
    assert parsed["schedule"] == name
    assert parsed["tenant"] == tenant
    assert parsed["payload"] == payload
    assert made_id == run_id(schedule, utc(at))
    assert parse_run_id(made_id) == (schedule, utc(at))
    assert (parsed["previous_at"] is None) == (before in (0, 2**32 - 1))
    assert (parsed["next_at"] is None) == (after in (0, 2**32 - 1))
    assert moment_of(utc(at)).at == moment.at


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.OperationalError("connection lost"), Cause.PASSING),
        (psycopg.errors.QueryCanceled(), Cause.PASSING),
        (psycopg.errors.LockNotAvailable(), Cause.PASSING),
        (psycopg.errors.DeadlockDetected(), Cause.PASSING),
        (psycopg.errors.AdminShutdown(), Cause.PASSING),
        (psycopg.errors.DiskFull(), Cause.PASSING),
        (psycopg.errors.ReadOnlySqlTransaction(), Cause.PASSING),
        (psycopg.errors.CheckViolation(), Cause.ROW),
        (psycopg.errors.NumericValueOutOfRange(), Cause.ROW),
        (psycopg.errors.UndefinedTable(), Cause.ROW),
        (psycopg.DataError("cannot dump"), Cause.ROW),
    ],
)
def test_causes_of_failure(error: psycopg.Error, expected: Cause) -> None:
    assert cause(error) is expected
