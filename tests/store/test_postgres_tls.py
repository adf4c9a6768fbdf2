"""TLS and passwords towards Postgres: what is not who it says it is gets neither work nor password, and no password is shown."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit, urlunsplit

import pytest
import pytest_asyncio

from bucketd.cli.checks_postgres import is_local, postgres_checks
from bucketd.store.config import Settings
from bucketd.store.connect import connect, make_pool, postgres_errors
from bucketd.store.errors import StoreUnavailable
from tests.support.certificates import Authority
from tests.support.pgbouncer import pgbouncer
from tests.support.processes import Processes


class Place(NamedTuple):
    """The session's Postgres behind a server that is called localhost, by its authority, and takes TLS only."""

    dsn: str
    ca: Path

    def settings(self, *, host: str = "localhost", ca: Path | None = None, wrong: str = "") -> Settings:
        url = urlsplit(self.dsn)
        netloc = f"{url.username}:{url.password}{wrong}@{host}:{url.port}"
        query = urlencode({"sslmode": "verify-full", "sslrootcert": str(ca or self.ca), "hostaddr": "127.0.0.1"})
        return Settings.load({}, dsn=urlunsplit(url._replace(netloc=netloc, query=query)))

    @property
    def password(self) -> str:
        return urlsplit(self.dsn).password or ""


@pytest_asyncio.fixture
async def place(dsn: str, servers: Path, tmp_path: Path) -> AsyncIterator[Place]:
    """The embedded Postgres is built without TLS; pgbouncer speaks it for it, and asks for the password by SCRAM."""
    authority = Authority(tmp_path)
    authority.server("localhost")
    (ca := tmp_path / "ca.pem").write_text(authority.pem)
    files = {"localhost.pem": (tmp_path / "localhost.pem").read_text()}
    tls = {
        "client_tls_sslmode": "require",
        "client_tls_key_file": "localhost.pem",
        "client_tls_cert_file": "localhost.pem",
    }
    async with pgbouncer(dsn, servers / f"pgbouncer-{uuid.uuid4().hex[:8]}", files=files, **tls) as url:
        yield Place(url, ca)


async def test_the_right_server_by_tls_and_scram(place: Place) -> None:
    settings = place.settings()
    async with make_pool(settings, application="tls", size=1) as pool, pool.connection() as connection:
        assert connection.pgconn.ssl_in_use
        assert await (await connection.execute("select 1")).fetchone() == (1,)
    checks = {check.name: check for check in postgres_checks(settings)}
    assert checks["encryption"].found == "TLS"


async def test_a_server_by_another_name(place: Place) -> None:
    refused(place, place.settings(host="127.0.0.1"), "does not match host name")


async def test_a_server_of_another_authority(place: Place, tmp_path: Path) -> None:
    (other := tmp_path / "other.pem").write_text(Authority(tmp_path).pem)
    refused(place, place.settings(ca=other), "certificate verify failed")


async def test_a_wrong_password(place: Place) -> None:
    refused(place, place.settings(wrong="x"), "authentication failed")


def refused(place: Place, settings: Settings, why: str) -> None:
    with pytest.raises(StoreUnavailable, match=why) as caught, postgres_errors(settings):
        connect(settings)
    assert place.password not in str(caught.value)
    assert place.password not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("role", "wrong", "said"), [("scheduler", "", "owned=256"), ("doctor", "x", "authentication failed")]
)
async def test_no_password_in_logs(
    place: Place, redis_url: str, prefix: str, tmp_path: Path, role: str, wrong: str, said: str
) -> None:
    stores = {"BUCKETD_DSN": place.settings(wrong=wrong).dsn.get_secret_value(), "BUCKETD_REDIS_URL": redis_url}
    processes = Processes(Settings.load(stores, redis_prefix=prefix), tmp_path)
    process = processes.start(role)
    await process.wait_output(said, 40)
    assert ":***@localhost" in process.output()
    assert place.password not in process.output()
    processes.reap()


@pytest.mark.parametrize(
    ("host", "local"),
    [*((host, True) for host in ("", "/run/postgresql", "localhost", "127.0.0.2", "::1")), ("10.1.2.3", False), ("db.example.com", False)],
)  # fmt: skip
def test_what_is_this_machine(host: str, local: bool) -> None:
    assert is_local(host) is local
