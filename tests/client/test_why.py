"""`schedules.why`: each verdict out of the state of the database that it is about."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from bucketd import Client, at, cron, every
from bucketd.client import why as reasons
from bucketd.client.timings import Timing
from bucketd.errors import InvalidInput, NotFound
from bucketd.explain.answer import Answer, Verdict
from bucketd.store.model import run_id
from bucketd.timing import fires_between, load_rule

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=s) for s in (1, 60, 3_600, 86_400))
HOURLY = every("1h", phase=0)


class Story:
    """A client of ann's, its schedule `s` with one occurrence an hour, and the cluster's clock to move by hand."""

    def __init__(self, client: Client, sql: psycopg.Connection[Any]) -> None:
        self.client, self._sql = client, sql
        self.id = UUID(int=0)

    def put(self, timing: Timing = HOURLY, name: str = "s", **fields: Any) -> datetime:
        """Puts `s`; the first whole hour after that."""
        self.id = self.client.schedules.put(name, timing, target="hook", **fields).id
        return self.next_hour()

    def next_hour(self) -> datetime:
        return self.now().replace(minute=0, second=0, microsecond=0) + HOUR

    def now(self) -> datetime:
        now: datetime = self.one("select bucketd.bucketd_now()")
        return now.astimezone(UTC)

    def one(self, statement: str, *parameters: Any) -> Any:
        row = self._sql.execute(statement.encode(), parameters or None).fetchone()
        return row and row[0]

    def sql(self, statement: str, *parameters: Any) -> None:
        self._sql.execute(statement.encode(), parameters or None)

    def turn_to(self, at: datetime) -> None:
        """Moves the cluster's clock to an instant."""
        self.sql("update bucketd.cluster set clock_offset = clock_offset + %s", at - self.now())

    def settle(self, through: datetime) -> None:
        """Says that everything due by then is settled: nobody works here who would do it."""
        self.sql("update bucketd.partitions set settled_through = %s", through)

    def row(self, at: datetime, status: str, **columns: Any) -> str:
        """A run of `s`; its id."""
        final = status in ("succeeded", "skipped", "cancelled", "dead")
        values = {
            "scheduled_at": at, "schedule_id": self.id, "tenant": "default", "status": status, "origin": "fire",
            "target_id": self.one("select target_id from bucketd.targets where name = 'hook'"),
            "finished_at": at + SECOND if final else None, **columns,
        }  # fmt: skip
        marks = ", ".join(["%s"] * len(values))
        self.sql(f"insert into bucketd.runs ({', '.join(values)}) values ({marks})", *values.values())
        return run_id(self.id, at)

    def runner(self) -> None:
        """A runner that lives."""
        self.sql(
            "insert into bucketd.runners (runner_id, host, pid, message_version, started_at, heartbeat_at)"
            " select %s, 'h', 1, 1, n, n + interval '1 day' from (select bucketd.bucketd_now() as n) c",
            uuid4(),
        )

    def why(self, at: datetime, name: str = "s") -> Answer:
        return self.client.schedules.why(name, at)


@pytest.fixture
def dated(story: "Story") -> "Story":
    """In December 2026, so that dates can stand in a test. There are no days for rows then, once that is long ago."""
    story.turn_to(datetime(2026, 12, 1, tzinfo=UTC))
    return story


@pytest.fixture
def story(dsn: str, sql: psycopg.Connection[Any]) -> Iterator[Story]:
    with Client(dsn, actor="ann") as client:
        client.targets.put("hook", "http://localhost:9/hook")
        yield Story(client, sql)


def said(answer: Answer) -> tuple[Verdict, str]:
    """The code, and all of the text."""
    return answer.verdict, " | ".join((answer.text, *answer.facts))


def z(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


# What has a row.


@pytest.mark.parametrize(
    ("status", "columns", "verdict", "text"),
    [
        ("succeeded", {"attempt": 1, "http_status": 200}, "fired", "120 ms late and succeeded after 880 ms (HTTP 200)"),
        ("succeeded", {"attempt": 3, "missed": 7}, "fired", "succeeded at attempt 3"),
        ("succeeded", {"attempt": 3, "missed": 7}, "fired", "stands for 7 missed occurrences"),
        ("running", {"attempt": 2, "claim": 5}, "running", "attempt 2 is running since"),
        ("dead", {"attempt": 5, "reason": "attempts"}, "dead", "all of its 5 attempts failed"),
        ("dead", {"attempt": 1, "reason": "http_404"}, "dead", "attempt 1 failed for good (http_404)"),
        ("skipped", {"reason": "misfire", "missed": 4}, "skipped", "could not start within the misfire threshold"),
        ("skipped", {"reason": "past_deadline"}, "skipped", "before its deadline"),
        ("cancelled", {"reason": "cancelled", "attempt": 1}, "cancelled", "by hand"),
        ("cancelled", {"reason": "dropped"}, "cancelled", "the backlog was dropped"),
        ("deferred", {"origin": "settle", "wake": 0}, "waiting", "waits for a runner since"),
        ("deferred", {"origin": "catch_up", "wake": 0, "background": True}, "waiting", "behind live work; no runner"),
        ("deferred", {"origin": "backfill", "wake": 0}, "waiting", "a backfill asked for it"),
        ("waiting", {"wake": 0}, "waiting", "another run of its schedule"),
    ],
)
def test_a_row_tells_its_fate(story: Story, status: str, columns: dict[str, Any], verdict: str, text: str) -> None:
    slot = story.put()
    story.turn_to(slot + 10 * MINUTE)
    if "wake" in columns:
        columns = {**columns, "wake_at": slot}
        columns.pop("wake")
    started = slot + timedelta(milliseconds=120) if columns.get("attempt") else None
    run = story.row(slot, status, started_at=started, **columns)
    answer = story.why(slot)
    assert answer.verdict == verdict
    assert text in said(answer)[1]
    assert answer.run
    assert (answer.run.id, answer.slot, answer.due) == (run, slot, slot)
    assert (answer.before, answer.after) == (None, slot + HOUR)


def test_a_retry_tells_when_and_what_failed(story: Story) -> None:
    slot = story.put()
    story.turn_to(slot + MINUTE)
    failures = '[{"attempt": 1, "at": "2026-11-30T09:00:01Z", "status": 503, "error": null}]'
    story.row(slot, "retrying", attempt=1, wake_at=slot + 5 * MINUTE, started_at=slot, failures=failures)
    verdict, text = said(story.why(slot))
    assert verdict is Verdict.RETRYING
    assert f"it failed at attempt 1; the next attempt is at {z(slot + 5 * MINUTE)}" in text
    assert "attempt 1 failed at 2026-11-30T09:00:01Z: HTTP 503" in text
    story.sql("update bucketd.runs set reason = 'runner_lost', wake_at = %s", slot)
    assert "its runner was lost at attempt 1; the next attempt is due; no runner is alive." in story.why(slot).text
    story.sql("update bucketd.runs set attempt = 0")
    assert "gave it back before it was called" in story.why(slot).text


def test_who_skipped_cancelled_triggered_and_deleted(story: Story, dsn: str) -> None:
    story.put()
    with Client(dsn, actor="bob") as bob:
        skipped = bob.schedules.skip_next("s")
        triggered = bob.runs.get(bob.schedules.trigger("s"))
        assert "triggered by hand, beside the schedule by bob" in said(story.why(triggered.scheduled_at))[1]
        bob.runs.cancel(triggered.id)
    assert said(story.why(skipped))[0] is Verdict.SKIPPED
    assert "It will not run: a user skipped it by bob at" in story.why(skipped).text
    cancelled = story.why(triggered.scheduled_at)
    assert cancelled.verdict is Verdict.CANCELLED
    assert "cancelled by hand by bob" in cancelled.text
    waiting = story.row(story.next_hour() + HOUR, "deferred", wake_at=story.now())
    story.client.schedules.delete("s")
    gone = story.why(story.next_hour() + HOUR)
    assert gone.run
    assert gone.run.id == waiting
    assert "because its schedule was deleted by ann" in gone.text
    assert "It was deleted at" in said(gone)[1]


def test_a_held_row_names_the_hold(story: Story) -> None:
    slot = story.put()
    story.client.hold(tenant="default", reason="the bank is closed")
    story.client.hold(target="hook")
    story.client.hold(tenant="other")
    story.turn_to(slot + MINUTE)
    story.row(slot, "held", wake_at="infinity", origin="settle")
    verdict, text = said(story.why(slot))
    assert verdict is Verdict.HELD
    assert "the hold of tenant default (the bank is closed), made at" in text
    assert "the hold of target hook, made at" in text
    assert "by ann" in text
    assert "other" not in text
    story.client.release(target="hook")
    story.sql("delete from bucketd.holds")
    story.sql("update bucketd.runs set status = 'held', wake_at = 'infinity'")
    assert "no hold covers it any more" in story.why(slot).text


# What has none and will have one, or a count.


def test_ahead_held_ahead_and_paused_ahead(story: Story) -> None:
    slot = story.put()
    answer = story.why(slot + 2 * HOUR)
    assert answer.verdict is Verdict.AHEAD
    assert f"schedulers have it in Redis from {z(slot + 2 * HOUR - 2 * MINUTE)} on" in said(answer)[1]
    story.turn_to(slot - MINUTE)
    assert "in Redis by now" in said(story.why(slot))[1]
    story.client.hold(all=True, reason="night")
    held = story.why(slot)
    assert held.verdict is Verdict.HELD
    assert "will be held back by the hold of everything (night)" in held.text
    story.client.schedules.pause("s", reason="too noisy", until=slot + 90 * MINUTE)
    paused = story.why(slot)
    assert paused.verdict is Verdict.PAUSED
    assert f"is paused then from {z(story.now())[:-3]}" in paused.text
    assert f"until {z(slot + 90 * MINUTE)}, by ann (too noisy)." in paused.text
    assert story.why(slot + 2 * HOUR).verdict is Verdict.HELD


def test_just_due_then_nobody_comes(story: Story) -> None:
    slot = story.put()
    story.settle(slot - SECOND)
    story.turn_to(slot + 3 * SECOND)
    verdict, text = said(story.why(slot))
    assert verdict is Verdict.QUEUED
    assert "it is on its way to a runner" in text
    assert "runners alive: 0" in text
    story.turn_to(slot + 5 * MINUTE)
    verdict, text = said(story.why(slot))
    assert verdict is Verdict.UNSETTLED
    assert "no runner is alive" in text
    assert f"is settled through {z(slot - SECOND)}" in text
    story.runner()
    assert "no scheduler is at work" in story.why(slot).text
    story.sql("update bucketd.partitions set owner = %s where partition_id = %s", uuid4(), story.id.bytes[15] ^ 1)
    assert f"nothing was settled since {z(slot - SECOND)}" in story.why(slot).text
    story.sql(
        "update bucketd.partitions set settled_through = %s where partition_id <> %s",
        slot + 4 * MINUTE,
        story.id.bytes[15],
    )
    assert "its partition has no owner at the moment" in story.why(slot).text
    story.sql("update bucketd.partitions set owner = %s", uuid4())
    assert "may be queued still" in story.why(slot).text
    story.client.hold(target="hook")
    assert said(story.why(slot))[0] is Verdict.HELD
    story.client.release(target="hook")
    story.settle(slot + 4 * MINUTE)
    assert said(story.why(slot))[0] is Verdict.UNEXPLAINED


def test_owed_with_its_position(story: Story) -> None:
    slot = story.put()
    story.turn_to(slot + 3 * HOUR)
    partition = story.id.bytes[15]
    story.sql(
        "insert into bucketd.backfills (kind, partition_id, from_at, until_at) values ('settle', %s, %s, %s)",
        partition, slot - HOUR, slot + 2 * HOUR,
    )  # fmt: skip
    story.settle(slot + 2 * HOUR)
    verdict, text = said(story.why(slot))
    assert verdict is Verdict.OWED
    assert f"Nobody watched from {z(slot - HOUR)} to {z(slot + 2 * HOUR)}" in text
    assert "0 of 1 schedule of its partition are done" in text
    story.sql("update bucketd.backfills set error = 'no space left', finished_at = bucketd.bucketd_now()")
    assert "was given up: no space left" in said(story.why(slot))[1]
    story.sql("update bucketd.backfills set cursor_id = %s", story.id)
    assert said(story.why(slot))[0] is Verdict.UNEXPLAINED  # done, and yet no row


def test_a_spec_in_quarantine(story: Story) -> None:
    slot = story.put()
    story.sql(
        "update bucketd.specs set error = 'OverflowError: too far', failed_at = bucketd.bucketd_now()"
        " where spec_id = (select spec_id from bucketd.schedules)"
    )
    ahead = story.why(slot)
    assert "since" in ahead.text
    story.turn_to(slot + HOUR)
    story.settle(slot + 59 * MINUTE)
    for answer in (ahead, story.why(slot)):
        assert answer.verdict is Verdict.QUARANTINED
        assert "OverflowError: too far" in answer.text
    story.sql("update bucketd.specs set rule = 'nonsense' where spec_id = (select spec_id from bucketd.schedules)")
    assert story.why(slot).verdict is Verdict.QUARANTINED


@pytest.mark.parametrize("missed", [6, 3])
def test_counted_in_the_run_that_stands_for_it(story: Story, missed: int) -> None:
    """Seven were missed, of which the newest has the row, and the first had one before."""
    slot = story.put()
    story.turn_to(slot + 7 * HOUR + MINUTE)
    story.row(slot, "succeeded", attempt=1, started_at=slot)
    story.row(slot + 2 * HOUR, "succeeded", attempt=1, started_at=slot)
    run = story.row(slot + 7 * HOUR, "succeeded", attempt=1, origin="settle", missed=missed, started_at=story.now())
    story.sql("update bucketd.schedules set floor = %s", slot + 7 * HOUR)
    story.settle(slot + 7 * HOUR)
    answer = story.why(slot + HOUR)
    if missed < 5:  # too few for all of the five that are missing
        assert answer.verdict is Verdict.BELOW_FLOOR
        assert story.why(slot + 4 * HOUR).verdict is Verdict.COUNTED
        return
    assert answer.verdict is Verdict.COUNTED
    assert f"in the run of {z(slot + 7 * HOUR)}, which stands for 6 missed ones" in answer.text
    assert answer.run
    assert answer.run.id == run


def test_counted_in_a_run_that_lies_far_ahead(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """More occurrences on than are looked at: it is where the floor was raised to."""
    monkeypatch.setattr(reasons, "CARRIER_SLOTS", 3)
    slot = story.put()
    story.turn_to(slot + 9 * HOUR)
    run = story.row(slot + 8 * HOUR, "skipped", reason="misfire", missed=8, origin="settle")
    story.settle(slot + 8 * HOUR)
    assert story.why(slot).verdict is Verdict.UNEXPLAINED
    story.sql("update bucketd.schedules set floor = %s", slot + 8 * HOUR)
    found = story.why(slot).run
    assert found
    assert found.id == run


# What never gets one.


def test_not_in_the_spec_with_the_nearest(dated: Story) -> None:
    dated.put(cron("0 8 * * MON", tz="Europe/Berlin"))
    tuesday = datetime(2027, 1, 5, 7, 0, tzinfo=UTC)
    answer = dated.why(tuesday)
    assert answer.verdict is Verdict.NOT_IN_SPEC
    assert "is not in the spec `0 8 * * MON` Europe/Berlin (version 1)" in answer.text
    assert "that is Tue 2027-01-05 08:00:00+01:00 Europe/Berlin" in answer.facts
    assert (answer.before, answer.after) == (tuesday - DAY, tuesday + 6 * DAY)
    assert (answer.slot, answer.due) == (None, None)


def test_the_same_minute_and_the_due_instant(story: Story) -> None:
    story.put(every("1h", phase=37))
    answer = story.why(hour := story.next_hour() + HOUR)
    assert (answer.slot, answer.verdict) == (hour + 37 * SECOND, Verdict.AHEAD)
    assert f"{z(hour)} is no occurrence itself" in answer.facts[0]
    name, jitter = "", 0
    while jitter < 60:  # drawn from the id; a smaller one would leave it in its minute
        name += "j"
        story.put(name=name, jitter_s=1800)
        jitter = story.one("select jitter_offset_s from bucketd.schedules where name = %s", name)
    hour = story.next_hour() + HOUR
    answer = story.why(hour + timedelta(seconds=jitter), name)
    assert (answer.slot, answer.due, answer.verdict) == (hour, hour + timedelta(seconds=jitter), Verdict.AHEAD)
    assert f"its jitter of {jitter} s made due then" in answer.facts[0]
    assert story.why(hour, name).due == answer.due


def test_excluded_by_its_own_dates_and_by_a_calendar(dated: Story) -> None:
    dated.client.calendars.put("bank", [date(2027, 12, 25)])
    dated.put(cron("0 8 * * *", tz="Asia/Tokyo"), exclude=[date(2027, 12, 24)], calendars=["bank"])
    eve, holiday = (datetime(2027, 12, day, 23, 0, tzinfo=UTC) for day in (23, 24))
    verdict, text = said(dated.why(eve))
    assert verdict is Verdict.EXCLUDED
    assert f"{z(eve)} would be an occurrence, but 2027-12-24 is excluded by its own excluded dates" in text
    verdict, text = said(dated.why(holiday))
    assert verdict is Verdict.EXCLUDED
    assert "2027-12-25 is excluded by calendar 'bank'." in text
    assert dated.why(holiday + HOUR).verdict is Verdict.NOT_IN_SPEC
    assert dated.why(holiday + DAY).verdict is Verdict.AHEAD


NEW_YORK = "America/New_York"
JUMP = datetime(2027, 3, 14, 7, 0, tzinfo=UTC)  # 02:00 becomes 03:00
WALL = datetime(2027, 3, 14, 2, 30)


@pytest.mark.parametrize(
    ("gap", "slot", "verdict", "text"),
    [
        ("run_after", JUMP, Verdict.AHEAD, "02:30 does not exist on 2027-03-14, runs at 03:00"),
        ("shift", JUMP + 30 * MINUTE, Verdict.AHEAD, "02:30 does not exist on 2027-03-14, runs at 03:30"),
        ("skip", None, Verdict.IN_GAP, "by gap=skip: 02:30 does not exist on 2027-03-14 in America/New_York"),
    ],
)
def test_a_missing_wall_time(dated: Story, gap: str, slot: datetime | None, verdict: Verdict, text: str) -> None:
    dated.put(cron("30 2 * * *", tz=NEW_YORK, gap=gap))
    answer = dated.why(WALL)
    assert (answer.verdict, answer.slot) == (verdict, slot)
    assert text in said(answer)[1]
    assert "the clocks go from 02:00 to 03:00" in said(answer)[1]
    unasked = dated.why(WALL - 20 * MINUTE)
    assert unasked.verdict is Verdict.NOT_IN_SPEC
    assert "The wall time asked about is not in the spec" in unasked.text
    if slot:
        assert dated.why(slot).slot == slot
        assert text in said(dated.why(slot))[1]
    else:
        assert dated.why(JUMP).verdict is Verdict.IN_GAP
        assert dated.why(JUMP + HOUR).verdict is Verdict.NOT_IN_SPEC


@pytest.mark.parametrize("fold", ["first", "second", "both"])
def test_a_wall_time_that_occurs_twice(dated: Story, fold: str) -> None:
    dated.put(cron("30 1 * * *", tz=NEW_YORK, fold=fold))
    first, second = (datetime(2027, 11, 7, hour, 30, tzinfo=UTC) for hour in (5, 6))
    wall = dated.why(datetime(2027, 11, 7, 1, 30))
    assert wall.slot == (second if fold == "second" else first)
    assert f"01:30 occurs twice on 2027-11-07 in America/New_York: {z(first)} and {z(second)}" in said(wall)[1]
    for at_, name in ((first, "first"), (second, "second")):
        answer = dated.why(at_)
        if fold in (name, "both"):
            assert (answer.verdict, answer.slot) == (Verdict.AHEAD, at_)
        else:
            assert (answer.verdict, answer.slot) == (Verdict.IN_FOLD, None)
            assert f"This is the {name} 01:30 on 2027-11-07" in answer.text
            assert f"by fold={fold} it runs at the {fold}" in answer.text


def test_a_wall_time_that_is_plain_is_read_in_the_zone(dated: Story) -> None:
    dated.put(cron("0 9 * * *", tz="Asia/Tokyo"))
    assert dated.why(datetime(2027, 1, 5, 9, 0)).slot == datetime(2027, 1, 5, 0, 0, tzinfo=UTC)


def test_before_it_was_created_and_after_it_was_deleted(story: Story, dsn: str) -> None:
    slot = story.put()
    answer = story.why(slot - DAY)
    verdict, text = said(answer)
    assert (verdict, answer.slot, answer.due) == (Verdict.NOT_YET_CREATED, None, None)
    assert (answer.before, answer.after) == (None, slot)
    assert "was created at" in text
    assert "by ann" in text
    story.turn_to(slot + 10 * MINUTE)
    with Client(dsn, actor="bob") as bob:
        bob.schedules.delete("s")
    verdict, text = said(story.why(slot + HOUR))
    assert verdict is Verdict.DELETED
    assert f"It was deleted at {z(slot + 10 * MINUTE)[:-3]}" in text
    assert "by bob" in text
    assert "there is no run of" in story.why(slot).text
    assert story.why(slot - DAY).verdict is Verdict.NOT_YET_CREATED
    with pytest.raises(InvalidInput, match="its zone with it"):
        story.why(datetime(2027, 1, 1))
    story.turn_to(slot + 70 * MINUTE)
    story.put()
    again = story.why(slot)
    assert again.verdict is Verdict.NOT_YET_CREATED
    assert "an earlier schedule of this name was deleted at" in said(again)[1]
    with pytest.raises(NotFound, match="never existed"):
        story.why(slot, "nobody")


def test_paused_by_whom_and_why(story: Story, dsn: str) -> None:
    slot = story.put()
    story.turn_to(slot - 5 * MINUTE)
    with Client(dsn, actor="bob") as bob:
        bob.schedules.pause("s", reason="a move")
        story.turn_to(slot + 65 * MINUTE)
    story.client.schedules.resume("s")
    story.turn_to(slot + 3 * HOUR)
    story.settle(slot + 179 * MINUTE)
    verdict, text = said(story.why(slot))
    assert verdict is Verdict.PAUSED
    assert f"was paused then from {z(slot - 5 * MINUTE)[:-3]}" in text
    assert f"until {z(slot + 65 * MINUTE)[:-3]}" in text
    assert "by bob (a move)" in text
    assert "resumed at" in text
    assert "by ann; what lay in the pause does not run" in text
    assert story.why(slot + HOUR).verdict is Verdict.PAUSED
    assert story.why(slot + 2 * HOUR).verdict is Verdict.UNEXPLAINED


def test_a_pause_that_ends_by_itself(story: Story) -> None:
    """It is lifted some minutes before; up to its end nothing runs."""
    slot = story.put() + HOUR  # one that ends within minutes is lifted at once, and the next slot may be that near
    story.client.schedules.pause("s", until=slot + MINUTE)
    story.turn_to(slot - MINUTE)
    story.sql("select set_config('bucketd.actor', 'bucketd: the pause has ended', false)")
    story.sql("update bucketd.schedules set paused = false")
    assert story.why(slot).verdict is Verdict.PAUSED
    story.turn_to(slot + HOUR + SECOND)
    assert story.why(slot).verdict is Verdict.PAUSED
    assert "by bucketd: the pause has ended" in said(story.why(slot))[1]
    assert story.why(slot + HOUR).verdict is Verdict.QUEUED


def test_a_pause_of_one_that_was_created_paused(story: Story) -> None:
    slot = story.put(paused=True)
    story.turn_to(slot + MINUTE)
    assert "The schedule was paused then." in story.why(slot).text
    story.client.schedules.resume("s")
    assert f"was paused then until {z(story.now())[:-3]}" in story.why(slot).text


def test_due_before_the_pause_and_not_started_by_then(story: Story) -> None:
    slot = story.put()
    story.settle(slot - SECOND)
    story.turn_to(slot + MINUTE)
    story.client.schedules.pause("s", reason="stop")
    assert "by ann (stop), before this was started" in said(story.why(slot))[1]
    story.turn_to(slot + 2 * MINUTE)
    story.client.schedules.resume("s")
    answer = story.why(slot)
    assert answer.verdict is Verdict.PAUSED
    assert "a pause drops it" in answer.text
    story.sql("delete from bucketd.audit where action in ('pause', 'resume')")
    assert story.why(slot).verdict is Verdict.BELOW_FLOOR


def test_outside_of_its_bounds(story: Story) -> None:
    hour = story.put(starts_at=(story.next_hour() + 2 * HOUR), ends_at=story.next_hour() + 5 * HOUR)
    answer = story.why(hour + HOUR)
    assert answer.verdict is Verdict.BEFORE_START
    assert f"starts_at is {z(hour + 2 * HOUR)}" in answer.text
    assert (answer.before, answer.after) == (None, hour + 2 * HOUR)
    answer = story.why(hour + 5 * HOUR)
    assert answer.verdict is Verdict.AFTER_END
    assert f"its end was {z(hour + 5 * HOUR)}" in answer.text
    assert (answer.before, answer.after) == (hour + 4 * HOUR, None)
    story.put(max_runs=3)
    assert story.why(hour + 2 * HOUR).verdict is Verdict.AHEAD
    answer = story.why(hour + 3 * HOUR)
    assert answer.verdict is Verdict.AFTER_END
    assert "max_runs = 3 was used up at" in answer.text


def test_an_older_version_had_another_timing(story: Story, dsn: str) -> None:
    hour = story.put(cron("30 * * * *"))
    story.turn_to(hour + 2 * HOUR)
    with Client(dsn, actor="bob") as bob:
        bob.schedules.put("s", cron("15 * * * *"), target="hook")
    story.settle(hour + 2 * HOUR)
    answer = story.why(hour + 75 * MINUTE)
    assert answer.verdict is Verdict.OTHER_TIMING
    assert f"the schedule was `30 * * * *` UTC (version 1, changed at {z(hour + 2 * HOUR)[:-3]}" in answer.text
    assert "by bob" in answer.text
    assert "version 2 does" in answer.text
    assert (answer.before, answer.after) == (hour + 30 * MINUTE, hour + 90 * MINUTE)
    old = story.why(hour + 90 * MINUTE)
    assert (old.slot, old.verdict) == (hour + 90 * MINUTE, Verdict.UNEXPLAINED)  # it held then, and has no row
    later = story.why(hour + 150 * MINUTE)
    assert later.verdict is Verdict.NOT_IN_SPEC  # any more
    assert "is not in the spec `15 * * * *` UTC (version 2)." in later.text
    assert "an occurrence of the timing before: `30 * * * *` UTC (version 1, changed at" in said(later)[1]
    neither = story.why(hour + 160 * MINUTE)
    assert (neither.verdict, neither.facts) == (Verdict.NOT_IN_SPEC, ())


def test_one_of_very_many_versions(story: Story) -> None:
    """Each quarter of an hour another one; each answer knows who held then, and ended it."""
    hour = story.put(cron("59 * * * *"))
    for n in range(25):
        story.turn_to(hour + n * 15 * MINUTE)
        story.put(cron(f"{n} * * * *"))
    story.settle(story.now())
    for n in (0, 3, 17, 24):
        answer = story.why(hour + n * 15 * MINUTE + 10 * MINUTE)
        assert answer.verdict in (Verdict.NOT_IN_SPEC, Verdict.OTHER_TIMING)
        assert f"`{n} * * * *` UTC (version {n + 2}" in answer.text
        assert n == 24 or f"changed at {z(hour + (n + 1) * 15 * MINUTE)[:-3]}" in answer.text


def test_older_than_what_is_kept(story: Story) -> None:
    slot = story.put()
    story.turn_to(slot + 3 * DAY)
    story.settle(slot + 3 * DAY)
    story.sql("update bucketd.cluster set retention_floor = %s, days_from = %s", slot + 2 * DAY, slot + 2 * DAY)
    answer = story.why(slot)
    assert answer.verdict is Verdict.EXPIRED
    assert f"runs are kept from {z(slot + 2 * DAY)} on" in answer.text


def test_a_one_shot(story: Story) -> None:
    slot = story.next_hour()
    story.put(at(slot))
    assert story.why(slot).verdict is Verdict.AHEAD
    answer = story.why(slot + HOUR)
    assert (answer.verdict, answer.before, answer.after) == (Verdict.NOT_IN_SPEC, slot, None)


def test_random_timings_and_instants(dated: Story) -> None:
    """Whatever is asked is answered, and by the rule that the schedule was put with."""
    random = Random(20261130)
    zones = ("UTC", "Europe/Berlin", NEW_YORK, "Australia/Lord_Howe", "Africa/Cairo", "America/Sao_Paulo")
    said_so: Counter[Verdict] = Counter()
    for n in range(60):
        tz = random.choice(zones)
        expression = " ".join(random.choice(choices) for choices in FIELDS)
        gap, fold = random.choice(("run_after", "skip", "shift")), random.choice(("first", "second", "both"))
        days = [date(2027, 3, 28), date(2027, 11, 7)] if n % 3 else []
        timing = random.choice((cron(expression, tz, gap, fold), every(random.choice((7, 60, 4_000)), tz=tz)))
        try:
            dated.put(timing, name=f"r{n}", exclude=days, jitter_s=random.choice((0, 0, 600)))
        except InvalidInput:
            continue  # never fires
        spec, phase = (
            load_rule(dated.one(RULE, f"r{n}")),
            dated.one("select phase from bucketd.schedules where name = %s", f"r{n}"),
        )
        for _ in range(12):
            at_s = int(datetime(2027, 3, random.choice((13, 14, 27, 28)), tzinfo=UTC).timestamp())
            at_s += random.randrange(0, 2 * 86_400, random.choice((1, 60, 900)))
            answer = dated.why(datetime.fromtimestamp(at_s, UTC), f"r{n}")
            listed = fires_between(spec, at_s // 60 * 60, at_s // 60 * 60 + 60, phase)
            if listed:
                assert answer.slot
                assert (answer.verdict, answer.slot.timestamp() in listed) == (Verdict.AHEAD, True)
            elif answer.slot is not None:  # it was due then, by its jitter
                assert answer.due
                assert (answer.verdict, answer.due.timestamp() // 60) == (Verdict.AHEAD, at_s // 60)
            else:
                assert answer.verdict in (Verdict.NOT_IN_SPEC, Verdict.EXCLUDED, Verdict.IN_GAP, Verdict.IN_FOLD)
            said_so[answer.verdict] += 1
    assert set(said_so) >= {Verdict.AHEAD, Verdict.NOT_IN_SPEC, Verdict.EXCLUDED}


RULE = "select p.rule from bucketd.schedules s join bucketd.specs p on p.spec_id = s.spec_id where s.name = %s"
FIELDS = (("0", "30", "*/15", "*"), ("*", "2", "1-3", "H"), ("*", "L", "14,28"), ("*", "3"), ("*", "SUN"))


def test_bad_input(story: Story) -> None:
    story.put()
    for bad in (datetime(1969, 1, 1, tzinfo=UTC), datetime(2107, 1, 1, tzinfo=UTC), datetime(9999, 12, 31), "now"):
        with pytest.raises(InvalidInput):
            story.client.schedules.why("s", bad)  # type: ignore[arg-type]
