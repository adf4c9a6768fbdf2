"""A primary and its streaming standby, both real: to fail over between them, with or without the last commits."""

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from bucketd.embedded import cluster, start_postgres
from bucketd.embedded.postgres import DATABASE, PostgresServer
from bucketd.store.migrate import migrate
from tests.support.waiting import wait_until

SETTINGS = {"fsync": "off", "shared_buffers": "64MB", "max_connections": "100", "max_wal_size": "1GB"}
CAUGHT_UP_S = 60.0


class PostgresPair:
    """The database of a test on both servers. Asynchronous replication; the standby answers queries, too."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def dsn(self) -> str:
        """Names both servers; which of them is the primary is for the client to find out."""
        one, two = self.primary, self.standby
        login = one.database_url(DATABASE, tcp=True).partition("@")[0]
        return f"{login}@127.0.0.1:{one.port},127.0.0.1:{two.port}/{DATABASE}"

    def primary_dsn(self) -> str:
        """Only the first server, whatever it is by now."""
        return self.primary.database_url(DATABASE, tcp=True)

    def standby_dsn(self) -> str:
        """Only the second server."""
        return self.standby.database_url(DATABASE, tcp=True)

    def on(self, server: PostgresServer, statement: str) -> list[tuple[Any, ...]]:
        """Rows of one statement there; none if it returns nothing."""
        with psycopg.connect(server.database_url(DATABASE), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def cut_replication(self) -> str:
        """From now on the standby gets nothing more; the last position that it has for sure."""
        self.on(self.standby, "alter system set primary_conninfo = ''")
        self.on(self.standby, "select pg_reload_conf()")
        self._wait("select not exists (select from pg_stat_wal_receiver)")
        return str(self.on(self.standby, "select pg_last_wal_replay_lsn()")[0][0])

    def catch_up(self) -> None:
        """Returns when the standby has all that the primary has now."""
        position = self.on(self.primary, "select pg_current_wal_lsn()")[0][0]
        self._wait(f"select pg_last_wal_replay_lsn() >= '{position}'")

    async def kill_primary(self) -> None:
        """As a crash: nothing is written or sent on the way out. Returns when nobody listens there."""
        os.kill(self.primary.pid, signal.SIGQUIT)
        await wait_until(lambda: not self.primary.running(), 20, "the primary to be gone")

    def promote(self) -> None:
        """The standby becomes a primary, on a new timeline; the other one, if it lives, does not know."""
        assert self.on(self.standby, "select pg_promote()") == [(True,)]

    def _wait(self, condition: str) -> None:
        """On the standby, by short looks from outside: one that lasts keeps it from replaying, or is cancelled by what it replays."""
        end = time.monotonic() + CAUGHT_UP_S
        while time.monotonic() < end:
            with suppress(psycopg.OperationalError):
                if self.on(self.standby, condition)[0][0]:
                    return
            time.sleep(0.02)
        raise AssertionError(f"waited {CAUGHT_UP_S:g} s for the standby: {condition}")


@contextmanager
def postgres_pair(directory: Path) -> Iterator[PostgresPair]:
    """Both run, and the database is migrated. `directory` is one that everybody may enter."""
    name = uuid.uuid4().hex[:8]
    first, second = directory / f"primary-{name}", directory / f"standby-{name}"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, first, ignore_errors=True)
        stack.callback(shutil.rmtree, second, ignore_errors=True)
        primary = stack.enter_context(start_postgres(first, settings=SETTINGS))
        migrate(primary.database_url(DATABASE, tcp=True))
        base_backup(primary, first, second)
        standby = stack.enter_context(start_postgres(second, settings=SETTINGS))
        pair = PostgresPair(primary, standby)
        pair.catch_up()
        yield pair
        for server in (primary, standby):  # their data are of no use to anybody
            if server.running():
                os.kill(server.pid, signal.SIGQUIT)


def base_backup(primary: PostgresServer, first: Path, second: Path) -> None:
    """What makes `second` a standby of the primary when it is started."""
    second.mkdir()
    shutil.copy2(first / "password", second / "password")
    program = cluster.binaries(first / "data") / "pg_basebackup"
    source = primary.database_url("postgres", tcp=True)
    subprocess.run([program, "-D", second / "data", "-d", source, "-R", "-c", "fast", "-X", "stream"], check=True)
    owner = (first / "data").stat()
    for path in (second, *second.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    (second / "data").chmod(0o700)
