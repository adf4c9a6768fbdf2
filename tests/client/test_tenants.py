"""Caps of tenants: put, read and taken away; bad ones are refused."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bucketd import Client
from bucketd.errors import InvalidInput, NotFound
from tests.client.conftest import count
from tests.client.test_lists import all_pages


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    return emptied_dsn


def test_a_cap_is_put_changed_and_taken_away(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = client.tenants.put("acme", max_running=10)
    assert (made.name, made.max_running, made.created, made.changed) == ("acme", 10, True, True)
    before = sql.execute("select xmin, xmax, ctid from bucketd.tenants").fetchone()
    same = client.tenants.put("acme", max_running=10)
    assert (same.created, same.changed, same.updated_at) == (False, False, made.updated_at)
    assert sql.execute("select xmin, xmax, ctid from bucketd.tenants").fetchone() == before
    more = client.tenants.put("acme", max_running=1_000_000)
    assert (more.created, more.changed, more.created_at) == (False, True, made.created_at)
    assert more.updated_at > made.updated_at
    assert client.tenants.get("acme").max_running == 1_000_000
    client.tenants.delete("acme")
    for call in (client.tenants.get, client.tenants.delete):
        with pytest.raises(NotFound, match=r"'acme', which has none; give it one with tenants\.put"):
            call("acme")


def test_pages_of_tenants_cover_each_once(client: Client) -> None:
    for n in range(5):
        client.tenants.put(f"t{n}", max_running=n + 1)
    found, pages = all_pages(lambda cursor: client.tenants.list(limit=2, cursor=cursor))
    assert [(tenant.name, tenant.max_running) for tenant in found] == [(f"t{n}", n + 1) for n in range(5)]
    assert pages == 3


def test_in_the_callers_transaction(client: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        client.tenants.put("acme", max_running=1, connection=connection)
        assert client.on(connection).tenants.get("acme").max_running == 1
        connection.rollback()
    assert client.tenants.list().items == ()


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("name", lambda c: c.tenants.put("", max_running=1)),
        ("name", lambda c: c.tenants.put("a\0", max_running=1)),
        ("name", lambda c: c.tenants.get("x" * 256)),
        ("name", lambda c: c.tenants.delete(7)),
        ("max_running", lambda c: c.tenants.put("a", max_running=0)),
        ("max_running", lambda c: c.tenants.put("a", max_running=1_000_001)),
        ("max_running", lambda c: c.tenants.put("a", max_running=None)),
        ("max_running", lambda c: c.tenants.put("a", max_running=True)),
        ("limit", lambda c: c.tenants.list(limit=0)),
        ("cursor", lambda c: c.tenants.list(cursor="x")),
    ],
)
def test_bad_input_changes_nothing(
    client: Client, sql: psycopg.Connection[Any], field: str, call: Callable[[Client], object]
) -> None:
    with pytest.raises(InvalidInput, match="expected") as caught:
        call(client)
    assert caught.value.field == field
    assert count(sql, "tenants") == 0
