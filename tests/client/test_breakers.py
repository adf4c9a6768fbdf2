"""Open circuit breakers as people see them and close them; a hold of their own stands beside it."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from bucketd import AsyncClient, Client, every
from bucketd.client import OpenBreaker, Release
from bucketd.errors import InvalidInput, NotFound
from bucketd.store import breakers
from bucketd.store.operation import drive
from tests.client.conftest import Rows

HOUR = timedelta(hours=1)
WHY = "20 of 20 calls within 10 s failed"


@pytest.fixture
def opened(client: Client, sql: psycopg.Connection[Any]) -> OpenBreaker:
    """The breaker of `hook`, open, as a runner does it."""
    client.schedules.put("s", every("1h", phase=0), target="hook", misfire="run_once")
    row = sql.execute("select target_id from bucketd.targets where name = 'hook'").fetchone()
    assert row
    with sql.transaction():
        assert drive(breakers.open_(row[0], WHY, openings=3, pause_s=60.0), sql)
    (found,) = client.status().breakers
    return found


def test_it_is_shown_and_closed_and_what_it_held_is_judged(client: Client, rows: Rows, opened: OpenBreaker) -> None:
    assert (opened.target, opened.reason, opened.openings) == ("hook", WHY, 3)
    assert 50 < (opened.probe_at - opened.since).total_seconds() <= 60
    assert client.status().holds == 0
    made = client.schedules.get("s").id
    older, newer = rows.add(made, 2 * HOUR, "held"), rows.add(made, HOUR, "held")
    answer = client.schedules.why("s", newer)
    assert answer.text.startswith(f"It is held back by the breaker of target hook ({WHY}), open since ")
    assert answer.text.endswith("; its closing decides by the misfire policy.")
    assert "next probe at" in answer.text

    client.hold(target="hook", reason="mine")
    assert [(hold.kind, hold.reason, hold.openings) for hold in client.holds()] == [
        ("breaker", WHY, 3),
        ("user", "mine", None),
    ]
    assert client.release(target="hook") == Release(), "the breaker holds them still"
    for dry_run in (True, False):
        with pytest.raises(NotFound, match="a hold of target 'hook'"):
            client.release(target="hook", dry_run=dry_run)
    client.hold(target="hook", reason="mine")
    assert client.release(target="hook", breaker=True, dry_run=True) == Release(), "so does the hold"
    assert client.status().breakers == (opened,)
    client.release(target="hook", breaker=True)
    assert [hold.kind for hold in client.holds()] == ["user"]
    assert client.release(target="hook") == Release(deferred=1, skipped=1)
    assert (rows.status(made, older)[0], rows.status(made, newer)[0]) == ("skipped", "deferred")
    assert [change.actor for change in client.audit(kind="hold").items][-1] == "breaker"


def test_closing_it_frees_its_runs(client: Client, rows: Rows, opened: OpenBreaker) -> None:
    rows.add(client.schedules.get("s").id, HOUR, "held")
    assert client.release(target="hook", breaker=True, dry_run=True) == Release(deferred=1)
    assert client.release(target="hook", breaker=True) == Release(deferred=1)
    with pytest.raises(NotFound, match="an open breaker of target 'hook'"):
        client.release(target="hook", breaker=True)
    either: tuple[dict[str, Any], ...] = ({"all": True}, {"tenant": "default"})
    for chosen in either:
        with pytest.raises(InvalidInput, match="the target whose breaker"):
            client.release(breaker=True, **chosen)


async def test_by_the_async_client(dsn: str, opened: OpenBreaker) -> None:
    async with AsyncClient(dsn) as client:
        assert (await client.status()).breakers == (opened,)
        assert await client.release(target="hook", breaker=True) == Release()
        assert (await client.status()).breakers == ()
