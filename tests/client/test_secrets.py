"""Secrets of targets: sealed where they lie, shown once, and at most two of them valid."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from bucketd import AsyncClient, Client
from bucketd.errors import ConfigError, Conflict, InvalidInput, NotFound
from bucketd.store import secrets
from bucketd.store.config import Settings
from bucketd.store.keyring import KeyRing, new_key
from bucketd.store.operation import drive
from bucketd.store.secrets import Resealed
from bucketd.store.signing import key_of, new_secret
from tests.support.databases import Databases

KEY = new_key()
RING = KeyRing(KEY)


@pytest.fixture(scope="module")
def module_dsn(databases: Databases) -> Iterator[str]:
    """One database for the tests of this file."""
    with databases.clone() as url:
        yield url


@pytest.fixture
def dsn(module_dsn: str) -> str:
    """It without the targets of the test before."""
    with psycopg.connect(module_dsn) as connection:
        connection.execute("delete from bucketd.targets")
    return module_dsn


def client_with(dsn: str, keys: str) -> Client:
    return Client(settings=Settings.load({}, dsn=dsn, secret_keys=keys))


@pytest.fixture
def keyed(dsn: str) -> Iterator[Client]:
    with client_with(dsn, KEY) as client:
        client.targets.put("hook", "http://localhost:9/hook")
        yield client


def valid(sql: psycopg.Connection[Any], client: Client, name: str = "hook", ring: KeyRing = RING) -> list[bytes]:
    """The target's keys, newest first."""
    return [secret.key for secret in drive(secrets.valid(client.targets.get(name).id, ring), sql)]


def everything(sql: psycopg.Connection[Any]) -> str:
    """All text of all tables of the schema."""
    tables = sql.execute("select table_name from information_schema.tables where table_schema = 'bucketd'").fetchall()
    return "".join(str(sql.execute(f"select * from bucketd.{name}".encode()).fetchall()) for (name,) in tables)


def test_a_secret_is_made_shown_once_and_sealed(keyed: Client, sql: psycopg.Connection[Any]) -> None:
    before = keyed.targets.get("hook")
    secret = keyed.targets.rotate_secret("hook")
    assert valid(sql, keyed) == [key_of(secret)]
    after = keyed.targets.get("hook")
    assert (before.signed, after.signed, after.revision) == (False, True, before.revision + 1)
    written = everything(sql)
    assert "hook" in written
    assert secret.removeprefix("whsec_") not in written
    assert secret not in repr(after)
    change = keyed.audit(limit=1).items[0]
    assert (change.kind, change.action, change.name, change.changes) == ("target", "rotate_secret", "hook", {})
    assert (change.object_id, change.revision) == (str(after.id), after.revision)


def test_two_are_valid_and_never_three(keyed: Client, sql: psycopg.Connection[Any]) -> None:
    first, second, third = (keyed.targets.rotate_secret("hook") for _ in range(3))
    assert valid(sql, keyed) == [key_of(third), key_of(second)]
    kept = sql.execute("select old_until - rotated_at = interval '1 day' from bucketd.target_secrets").fetchone()
    assert kept == (True,)
    sql.execute("update bucketd.target_secrets set old_until = bucketd.bucketd_now()")
    assert valid(sql, keyed) == [key_of(third)]
    fourth = keyed.targets.rotate_secret("hook", keep_old_s=0)
    assert valid(sql, keyed) == [key_of(fourth)]
    assert first != second


def test_to_give_the_secret_that_it_has_changes_nothing(keyed: Client, sql: psycopg.Connection[Any]) -> None:
    """So a repeat after a lost answer does not push out the old one, which receivers may still need."""
    old, new = new_secret(), new_secret()
    assert keyed.targets.rotate_secret("hook", old) == old
    keyed.targets.rotate_secret("hook", new)
    revision = keyed.targets.get("hook").revision
    keyed.targets.rotate_secret("hook", new)
    assert valid(sql, keyed) == [key_of(new), key_of(old)]
    assert keyed.targets.get("hook").revision == revision


def test_dropped_is_unsigned(keyed: Client, sql: psycopg.Connection[Any]) -> None:
    keyed.targets.rotate_secret("hook")
    revision = keyed.targets.get("hook").revision
    for _ in range(2):
        keyed.targets.drop_secret("hook")
    found = keyed.targets.get("hook")
    assert (found.signed, found.revision, valid(sql, keyed)) == (False, revision + 1, [])
    assert keyed.audit(limit=1).items[0].action == "drop_secret"


def test_it_goes_with_its_target_and_a_put_leaves_it(keyed: Client, sql: psycopg.Connection[Any]) -> None:
    secret = keyed.targets.rotate_secret("hook")
    assert keyed.targets.put("hook", "http://localhost:9/elsewhere").signed
    assert valid(sql, keyed) == [key_of(secret)]
    keyed.targets.delete("hook")
    assert sql.execute("select count(*) from bucketd.target_secrets").fetchone() == (0,)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"secret": "hunter2-hunter2"}, "secret"),
        ({"secret": b"whsec_"}, "secret"),
        ({"keep_old_s": -1}, "keep_old_s"),
        ({"keep_old_s": 2_592_001}, "keep_old_s"),
        ({"keep_old_s": 0.5}, "keep_old_s"),
    ],
)
def test_bad_input_changes_nothing_and_shows_nothing(keyed: Client, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        keyed.targets.rotate_secret("hook", **arguments)
    assert caught.value.field == field
    assert "hunter2" not in str(caught.value)
    assert not keyed.targets.get("hook").signed


def test_without_keys_nothing_is_set(client: Client, sql: psycopg.Connection[Any], monkeypatch: Any) -> None:
    monkeypatch.delenv("BUCKETD_SECRET_KEYS", raising=False)
    with pytest.raises(ConfigError, match=r"bucketd target secret new-key.*BUCKETD_SECRET_KEYS"):
        client.targets.rotate_secret("hook")
    with pytest.raises(ConfigError, match="new-key"):
        client.targets.reseal_secrets()
    assert not client.targets.get("hook").signed
    # A client that was given a DSN takes the keys from the environment, as it takes the actor.
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", KEY)
    with Client(settings_dsn(sql)) as other:
        assert valid(sql, other) == [] != [key_of(other.targets.rotate_secret("hook"))] == valid(sql, other)


def settings_dsn(sql: psycopg.Connection[Any]) -> str:
    return f"{sql.info.dsn} password={sql.info.password}"


def test_unknown_targets(keyed: Client) -> None:
    with pytest.raises(NotFound):
        keyed.targets.rotate_secret("nobody")
    with pytest.raises(NotFound):
        keyed.targets.drop_secret("nobody")


def test_a_secret_that_no_key_opens_is_told(keyed: Client, sql: psycopg.Connection[Any]) -> None:
    keyed.targets.rotate_secret("hook")
    with pytest.raises(Conflict, match="cannot be opened here"):
        valid(sql, keyed, ring=KeyRing(new_key()))


def test_in_the_callers_transaction(keyed: Client, dsn: str, sql: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn) as connection:
        keyed.targets.rotate_secret("hook", connection=connection)
        connection.rollback()
    assert valid(sql, keyed) == []


def test_reseal_by_pages_leaves_the_secrets_and_the_revisions(
    dsn: str, keyed: Client, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "PAGE", 2)
    names = [f"t{n}" for n in range(5)]
    for name in names:
        keyed.targets.put(name, "http://localhost:9/")
    made = {name: [keyed.targets.rotate_secret(name) for _ in range(2)] for name in names}
    revisions = {name: keyed.targets.get(name).revision for name in names}
    with client_with(dsn, other := new_key()) as stranger:
        stranger.targets.rotate_secret("hook")
    new = new_key()
    steps: list[int] = []
    with client_with(dsn, f"{new},{KEY}") as client:
        assert client.targets.reseal_secrets(progress=steps.append) == Resealed(5, ("hook",))
    assert steps == [1, 3, 5, 5]  # pages of two: `hook` is the first target
    for name in names:
        assert valid(sql, keyed, name, KeyRing(new)) == [key_of(secret) for secret in reversed(made[name])]
        assert keyed.targets.get(name).revision == revisions[name]
    assert len(valid(sql, keyed, "hook", KeyRing(other))) == 1  # what none of the keys opens stays as it is


@pytest.fixture
async def akeyed(dsn: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(settings=Settings.load({}, dsn=dsn, secret_keys=KEY)) as client:
        await client.targets.put("hook", "http://localhost:9/hook")
        yield client


async def test_the_async_client(akeyed: AsyncClient, sql: psycopg.Connection[Any]) -> None:
    secret = await akeyed.targets.rotate_secret("hook", keep_old_s=0)
    found = await akeyed.targets.get("hook")
    assert found.signed
    assert [key_of(secret)] == [one.key for one in drive(secrets.valid(found.id, RING), sql)]
    assert await akeyed.targets.reseal_secrets() == Resealed(1)
    await akeyed.targets.drop_secret("hook")
    assert not (await akeyed.targets.get("hook")).signed
