"""A real pgbouncer in transaction mode before a test's database, with the settings of ops/pgbouncer.ini."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from configparser import ConfigParser
from contextlib import asynccontextmanager
from pathlib import Path
from pwd import getpwnam
from types import MappingProxyType
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import psycopg
import pytest

from bucketd.embedded.server import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "nobody"  # it refuses to be root


def binary() -> str:
    """The program; skips the test where it is not installed, but for CI."""
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if found is None:
        assert os.environ.get("CI") != "true", "pgbouncer is missing: `make system` installs it"
        pytest.skip("pgbouncer is not installed: `make system`")
    return found


@asynccontextmanager
async def pgbouncer(
    dsn: str, directory: Path, *, files: Mapping[str, str] = MappingProxyType({}), **settings: str
) -> AsyncIterator[str]:
    """The DSN of the same database through it. `settings` go over those of ops/pgbouncer.ini; a setting may name one of `files` (name
    to text). `directory` is made, and is its own: below one that everybody may enter."""
    server, port = urlsplit(dsn), free_port()
    named = {name: str(directory / value) if value in files else value for name, value in settings.items()}
    process = _start(server, port, directory, named, files)
    url = urlunsplit(server._replace(netloc=f"{server.netloc.rpartition('@')[0]}@127.0.0.1:{port}"))
    try:
        await wait_until(lambda: process.poll() is not None or _answers(url), 10, "pgbouncer to answer")
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=10)


def _start(
    server: SplitResult, port: int, directory: Path, settings: Mapping[str, str], files: Mapping[str, str]
) -> subprocess.Popen[str]:
    config = ConfigParser()
    config.read(ROOT / "ops" / "pgbouncer.ini")
    name = server.path.lstrip("/")
    config["databases"] = {name: f"host={server.hostname} port={server.port} dbname={name}"}
    places = {"listen_port": str(port), "unix_socket_dir": "", "auth_file": str(directory / "users")}
    config["pgbouncer"].update({**places, **settings})
    directory.mkdir()
    users = f'"{server.username}" "{unquote(server.password or "")}"\n'
    for name_, text in {"users": users, **files}.items():
        (directory / name_).write_text(text)
        (directory / name_).chmod(0o600)
    with (directory / "pgbouncer.ini").open("w") as file:
        config.write(file)
    as_root = os.geteuid() == 0
    for path in (directory, *directory.iterdir()) if as_root else ():
        shutil.chown(path, getpwnam(ACCOUNT).pw_uid)
    command = [binary(), *(["-u", ACCOUNT] if as_root else []), str(directory / "pgbouncer.ini")]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
