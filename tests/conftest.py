"""Fixtures on real servers: Postgres and Redis once a session, a database and a key prefix of its own for each test."""

import gc
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from bucketd.embedded import Server, start_postgres, start_redis
from bucketd.embedded.postgres import PostgresServer
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from tests.support.databases import Databases
from tests.support.processes import Processes
from tests.support.target import Target

# Durability is off: a test kills our processes, not the machine. All else is as `bucketd up` has it.
POSTGRES = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

# Whoever runs in the background of a script ignores SIGINT, and so do all processes that it starts, those that a test interrupts too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that measures pays for its own garbage alone: to walk the heap of thousands of collected tests takes 0.1 s, which then
    falls on whichever measurement happens to run."""
    measures = request.node.get_closest_marker("alone") is not None
    if measures:
        gc.collect()
        gc.freeze()
    yield
    if measures:
        gc.unfreeze()


@pytest.fixture(scope="session")
def servers() -> Iterator[Path]:
    """A directory for servers' data, gone at the end; its path is short, and open to the user that Postgres runs as."""
    directory = Path(tempfile.mkdtemp(prefix="bucketd-tests-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(servers: Path) -> Iterator[PostgresServer]:
    """The session's Postgres. Do not stop it: start one of your own for that."""
    with start_postgres(servers / "postgres", settings=POSTGRES) as server:
        yield server


@pytest.fixture(scope="session")
def shared_redis(servers: Path) -> Iterator[Server]:
    """The session's Redis. No FLUSHALL here: see `own_redis`."""
    with start_redis(servers / "redis") as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres: PostgresServer) -> Databases:
    """The migrated template, and clones of it."""
    return Databases(postgres)


@pytest.fixture
def dsn(databases: Databases) -> Iterator[str]:
    """A migrated database of this test's own, by TCP."""
    with databases.clone() as url:
        yield url


@pytest.fixture(scope="module")
def module_dsn(databases: Databases) -> Iterator[str]:
    """One database for the tests of a module."""
    with databases.clone() as url:
        yield url


@pytest.fixture
def emptied_dsn(module_dsn: str) -> str:
    """The module's database without what people put into it: cloning one takes longer than most tests that take this one."""
    with psycopg.connect(module_dsn) as connection:
        for table in ("schedules", "runs", "targets", "tenants"):
            connection.execute(f"delete from bucketd.{table}".encode())
    return module_dsn


@pytest.fixture
def empty_dsn(databases: Databases) -> Iterator[str]:
    """A database without any migration."""
    with databases.clone("template1") as url:
        yield url


@pytest.fixture
def prefix() -> str:
    """A prefix of Redis keys that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def redis_url(shared_redis: Server, prefix: str) -> Iterator[str]:
    """The session's Redis; keys under `prefix` are deleted at the end."""
    yield shared_redis.url
    with redis.Redis.from_url(shared_redis.url) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.delete(key)


@pytest.fixture
def own_redis(servers: Path) -> Iterator[Server]:
    """A Redis of this test's own: to flush, to kill, to configure."""
    directory = servers / f"redis-{uuid.uuid4().hex[:8]}"
    with start_redis(directory) as server:
        yield server
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def settings(dsn: str, redis_url: str, prefix: str) -> Settings:
    """Of this test's database and key prefix; runners may call this machine. Change some with `settings.model_copy(update={..})`."""
    return Settings.load({}, dsn=dsn, redis_url=redis_url, redis_prefix=prefix, egress_allow=LOOPBACK)


@pytest.fixture
def target() -> Iterator[Target]:
    """A recording HTTP target."""
    server = Target()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def processes(settings: Settings, tmp_path: Path) -> Iterator[Processes]:
    """Starts `python -m bucketd ..` on this test's stores; all are ended and reaped afterwards."""
    started = Processes(settings, tmp_path)
    yield started
    started.reap()
