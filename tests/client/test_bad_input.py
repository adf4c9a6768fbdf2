"""Bad input: a clear error that names the field, and nothing is changed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from bucketd import Client, at, cron, every
from bucketd.errors import CronError, InvalidCron, InvalidInput
from tests.client.conftest import count

NOW = datetime.now(UTC)
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database: they leave next to nothing."""
    return emptied_dsn


SCHEDULE: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": ""}),
    ("name", {"name": "x" * 256}),
    ("name", {"name": "a\0b"}),
    ("name", {"name": "a\nb"}),
    ("name", {"name": "\x85"}),
    ("name", {"name": "\ud800"}),
    ("name", {"name": 5}),
    ("tenant", {"tenant": ""}),
    ("tenant", {"tenant": "a\0"}),
    ("target", {"target": "nowhere"}),
    ("target", {"target": "\0"}),
    ("payload", {"payload": "x" * 65_535}),
    ("payload", {"payload": "é" * 32_768}),
    ("payload", {"payload": {1, 2}}),
    ("payload", {"payload": float("nan")}),
    ("payload", {"payload": "\ud800"}),
    ("payload", {"payload": CYCLE}),
    ("labels", {"labels": {"a": 1}}),
    ("labels", {"labels": {"a": []}}),
    ("labels", {"labels": {1: "a"}}),
    ("labels", {"labels": ["a"]}),
    ("labels", {"labels": {"a": "\0"}}),
    ("timeout_s", {"timeout_s": 0}),
    ("timeout_s", {"timeout_s": 86_401}),
    ("timeout_s", {"timeout_s": True}),
    ("timeout_s", {"timeout_s": 1.5}),
    ("max_attempts", {"max_attempts": 0}),
    ("max_attempts", {"max_attempts": 101}),
    ("max_attempts", {"max_attempts": 1.0}),
    ("retry_base_s", {"retry_base_s": -0.1}),
    ("retry_base_s", {"retry_base_s": "10"}),
    ("retry_cap_s", {"retry_cap_s": 604_801}),
    ("retry_cap_s", {"retry_cap_s": float("nan")}),
    ("overlap", {"overlap": "never"}),
    ("misfire", {"misfire": "maybe"}),
    ("misfire_threshold_s", {"misfire_threshold_s": 0}),
    ("deadline_s", {"deadline_s": 0}),
    ("deadline_s", {"deadline_s": 2**31}),
    ("jitter_s", {"jitter_s": 3_601}),
    ("starts_at", {"starts_at": datetime(2030, 1, 1)}),
    ("ends_at", {"ends_at": "2030-01-01"}),
    ("ends_at", {"starts_at": NOW, "ends_at": NOW}),
    ("paused", {"paused": 1}),
    ("timing", {"timing": "* * * * *"}),
    ("timing", {"timing": at(NOW - timedelta(days=1))}),
    ("starts_at", {"timing": at(NOW + timedelta(days=1)), "starts_at": NOW + timedelta(days=2)}),
    ("ends_at", {"timing": at(NOW + timedelta(days=1)), "ends_at": NOW + timedelta(hours=1)}),
]


@pytest.mark.parametrize(("field", "change"), SCHEDULE, ids=lambda v: ascii(v)[:40])
def test_a_schedule_with_a_bad_field(
    client: Client, sql: psycopg.Connection[Any], field: str, change: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"name": "a", "timing": every("15m"), "target": "hook"} | change
    with pytest.raises(InvalidInput, match="expected") as caught:
        client.schedules.put(**arguments)
    assert caught.value.field == field
    assert count(sql, "schedules") == 0


def test_the_largest_payload_is_stored(client: Client) -> None:
    payload = "x" * 65_534
    client.schedules.put("a", every("15m"), target="hook", payload=payload)
    assert client.schedules.get("a").payload == payload


TARGET: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": "\0"}),
    ("url", {"url": "ftp://h/x"}),
    ("url", {"url": "http://"}),
    ("url", {"url": "http:///x"}),
    ("url", {"url": "h/x"}),
    ("url", {"url": "http://h:99999/"}),
    ("url", {"url": "http://h:0/"}),
    ("url", {"url": "http://h/a b"}),
    ("url", {"url": "http://h/\n"}),
    ("url", {"url": "http://h/\0"}),
    ("url", {"url": "http://u:hush@h/"}),
    ("url", {"url": "http://[::1/"}),
    ("url", {"url": None}),
    ("headers", {"headers": {"a": "b\r\nc: d"}}),
    ("headers", {"headers": {"a": "\0"}}),
    ("headers", {"headers": {"a b": "c"}}),
    ("headers", {"headers": {"": "c"}}),
    ("headers", {"headers": {"Connection": "close"}}),
    ("headers", {"headers": {"Transfer-Encoding": "x"}}),
    ("headers", {"headers": {"Webhook-Id": "x"}}),
    ("headers", {"headers": {"bucketd-attempt": "x"}}),
    ("headers", {"headers": {"Host": "x"}}),
    ("headers", {"headers": {"a": "x", "A": "y"}}),
    ("headers", {"headers": {"a": "☃"}}),
    ("headers", {"headers": {"a": 1}}),
    ("headers", {"headers": ["a"]}),
    ("timeout_s", {"timeout_s": 1_801}),
    ("timeout_s", {"timeout_s": float("nan")}),
    ("connect_timeout_s", {"connect_timeout_s": 0}),
    ("max_attempts", {"max_attempts": 0}),
    ("retry_base_s", {"retry_base_s": -1}),
    ("batch_max", {"batch_max": 10_001}),
    ("batch_linger_ms", {"batch_linger_ms": 0.5}),
    ("batch_by_tenant", {"batch_by_tenant": 1}),
    ("body", {"body": "payload"}),
    ("body", {"body": "raw", "batch_max": 2}),
    ("max_running", {"max_running": 0}),
    ("max_running", {"max_running": 1_000_001}),
    ("rate_per_s", {"rate_per_s": 0}),
    ("rate_per_s", {"rate_per_s": float("inf")}),
    ("complete_within_s", {"complete_within_s": 604_801}),
    ("complete_within_s", {"complete_within_s": 0.5}),
    ("dead_hook_url", {"dead_hook_url": "ftp://h/x"}),
    ("dead_hook_url", {"dead_hook_url": "http://u:hush@h/"}),
    ("dead_hook_url", {"dead_hook_url": ""}),
]


@pytest.mark.parametrize(("field", "change"), TARGET, ids=lambda v: ascii(v)[:40])
def test_a_target_with_a_bad_field(
    client: Client, sql: psycopg.Connection[Any], field: str, change: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"name": "t", "url": "https://example.com/x"} | change
    with pytest.raises(InvalidInput, match="expected") as caught:
        client.targets.put(**arguments)
    assert caught.value.field == field
    assert "hush" not in str(caught.value)
    assert count(sql, "targets") == 1


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("field_count", lambda: cron("* * * *")),
        ("out_of_range", lambda: cron("61 * * * *")),
        ("never_fires", lambda: cron("0 0 30 2 *")),
        ("unknown_time_zone", lambda: cron("* * * * *", tz="Mars/Base")),
        ("empty", lambda: cron("")),
    ],
)
def test_a_bad_cron_is_both_kinds_of_error(code: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidCron) as caught:
        make()
    assert isinstance(caught.value, InvalidInput)
    assert isinstance(caught.value, CronError)
    assert caught.value.code == code
    assert (caught.value.field or "").startswith("timing")


@pytest.mark.parametrize(
    "make",
    [
        lambda: every("0s"),
        lambda: every("1.5s"),
        lambda: every("soon"),
        lambda: every(True),
        lambda: every("1h", phase=3_600),
        lambda: every("1h", phase=-1),
        lambda: every("1h", phase=True),
        lambda: at(datetime(2030, 1, 1)),
        lambda: at("2030-01-01"),  # type: ignore[arg-type]
        lambda: at(datetime(2107, 1, 1, tzinfo=UTC)),
        lambda: at(datetime(1969, 1, 1, tzinfo=UTC)),
        lambda: cron("* * * * *", gap="never"),
    ],
)
def test_a_bad_timing(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput, match="expected") as caught:
        make()
    assert caught.value.field == "timing"


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("limit", lambda c: c.schedules.list(limit=0)),
        ("limit", lambda c: c.runs.list(limit=1_001)),
        ("n", lambda c: c.schedules.next("a", 0)),
        ("cursor", lambda c: c.schedules.list(cursor="?")),
        ("cursor", lambda c: c.runs.list(cursor="WzFd")),
        ("cursor", lambda c: c.dead.list(cursor=3)),
        ("status", lambda c: c.runs.list(status="lost")),
        ("from_", lambda c: c.runs.list(from_=NOW, to=NOW)),
        ("run_id", lambda c: c.runs.get("x")),
        ("run_id", lambda c: c.runs.cancel("20261399T000000Z-" + "0" * 32)),
        ("letter_id", lambda c: c.dead.get("7")),
        ("bound", lambda c: c.dead.count(bound=0)),
        ("ids", lambda c: c.dead.replay()),
        ("ids", lambda c: c.dead.discard([1], all=True)),
        ("ids", lambda c: c.dead.replay([0])),
        ("all", lambda c: c.hold()),
        ("all", lambda c: c.hold(all=True, tenant="a")),
        ("all", lambda c: c.release()),
        ("all", lambda c: c.backfill(NOW - timedelta(hours=1), NOW - timedelta(minutes=1))),
        ("from_", lambda c: c.backfill(NOW, NOW, all=True)),
        ("from_", lambda c: c.backfill(datetime(2026, 1, 1), NOW, all=True)),
        ("to", lambda c: c.backfill(NOW, NOW + timedelta(hours=1), all=True)),
    ],
)
def test_a_bad_argument(client: Client, field: str, call: Callable[[Client], object]) -> None:
    with pytest.raises(InvalidInput, match="expected") as caught:
        call(client)
    assert caught.value.field == field


def test_a_backfill_below_the_retention_floor_names_it(client: Client, sql: psycopg.Connection[Any]) -> None:
    with pytest.raises(InvalidInput, match="retention floor 20"):
        client.backfill(NOW - timedelta(days=400), NOW, all=True)
    assert count(sql, "backfills") == 0


def test_a_cursor_of_another_list_is_refused(client: Client) -> None:
    client.targets.put("a", "https://example.com")
    cursor = client.targets.list(limit=1).cursor
    with pytest.raises(InvalidInput, match="list of schedules"):
        client.schedules.list(cursor=cursor)
