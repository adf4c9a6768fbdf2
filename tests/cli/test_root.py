"""The root: help, versions, settings, exit codes, and errors as one line."""

import subprocess
import sys
import time

import pytest

import bucketd
from bucketd.cli import main
from bucketd.cli.app import app
from bucketd.cli.output import clean, short
from tests.cli.conftest import Cli


def _commands(typer_app: object = app, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [before]
    for command in typer_app.registered_commands:  # type: ignore[attr-defined]
        found.append((*before, command.name or command.callback.__name__))
    for group in typer_app.registered_groups:  # type: ignore[attr-defined]
        found.extend(_commands(group.typer_instance, (*before, group.name)))
    return found


@pytest.mark.alone
def test_help_answers_fast() -> None:
    """Heavy libraries are imported inside commands only; the best of three, the machine may be busy."""
    took_s = []
    for _ in range(3):
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "bucketd", "--help"], capture_output=True, text=True, timeout=30, check=True
        )
        took_s.append(time.monotonic() - begun)
    assert min(took_s) < 0.5
    assert "Exit codes" in done.stdout


def test_help_imports_nothing_heavy() -> None:
    heavy = ("psycopg", "redis", "pydantic", "httpx", "bucketd.timing", "bucketd.client")
    script = (
        f"import sys; from bucketd.cli import main; main(['--help']); print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_every_command_explains_itself(bare: Cli, command: tuple[str, ...]) -> None:
    shown = bare.done(*command, "--help")
    assert "Usage:" in shown.out
    assert len(shown.out.splitlines()) > 5


def test_version(bare: Cli) -> None:
    assert bare.done("version").out.startswith(f"bucketd {bucketd.__version__}\n")
    assert bare.done("version", "--json").json["bucketd"] == bucketd.__version__


def test_no_store_is_said_in_one_line(bare: Cli) -> None:
    result = bare("schedule", "list")
    assert result.code == 2
    assert result.err.startswith("error: expected BUCKETD_DSN")
    assert "bucketd up" in result.err
    assert len(result.err.splitlines()) == 1


def test_unknown_setting_lists_the_known_ones(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_DRAIN_BATHC", "1")
    result = bare("config")
    assert result.code == 2
    assert "did you mean drain_batch?" in result.err
    assert "lease_ttl_s" in result.err


def test_config_shows_no_secret(bare: Cli) -> None:
    shown = bare.done("--dsn", "postgresql://u:hunter2@h/d", "--redis-url", "redis://:hunter2@h/0", "config", "--json")
    assert "hunter2" not in shown.out + shown.err
    assert shown.json["dsn"] == "postgresql://u:***@h/d"
    assert "hunter2" not in bare.done("--dsn", "postgresql://u:hunter2@h/d", "config").out


def test_config_tells_what_kind_of_redis_it_is(bare: Cli) -> None:
    shown = bare.done("--redis-url", "redis+cluster://:hunter2@a:1,b/", "config", "--json")
    assert shown.json["redis_url"] == "redis+cluster://:***@a:1,b/"
    assert shown.json["redis_kind"] == "Redis Cluster by a:1, b:6379"
    assert "Sentinel for main by" in bare.done("--redis-url", "redis+sentinel://:hunter2@a/main", "config").out
    refused = bare("--redis-url", "redis+cluster://:hunter2@a,,b/", "config")
    assert (refused.code, "hunter2" in refused.err) == (2, False)
    assert bare.done("config", "--json").json["redis_kind"] == ""


def test_config_file(bare: Cli) -> None:
    with open("bucketd.toml", "w") as file:
        file.write("[bucketd]\nconcurrency = 7\n")
    assert bare.done("--config", "bucketd.toml", "config", "--json").json["concurrency"] == 7
    assert bare("--config", "missing.toml", "config").code == 2


def test_wrong_dsn(bare: Cli) -> None:
    refused = bare("--dsn", "postgresql://u:hunter2@127.0.0.1:1/d", "schedule", "list")
    assert refused.code == 4
    assert "cannot use Postgres at postgresql://u:***@127.0.0.1:1/d" in refused.err
    assert "hunter2" not in refused.err
    malformed = bare("--dsn", "localhost/d", "schedule", "list")
    assert malformed.code == 2
    assert "expected a Postgres DSN" in malformed.err


def test_unmigrated_database(bare: Cli, empty_dsn: str) -> None:
    result = bare("--dsn", empty_dsn, "schedule", "list")
    assert result.code == 4
    assert "bucketd migrate" in result.err


def test_migrate_twice(bare: Cli, empty_dsn: str) -> None:
    assert "applied 0001_spine" in bare.done("--dsn", empty_dsn, "migrate").out
    assert "nothing to do" in bare.done("--dsn", empty_dsn, "migrate").out
    assert bare.done("--dsn", empty_dsn, "migrate", "--json").json == {"applied": []}


def test_usage_is_code_2(bare: Cli) -> None:
    assert bare("nonsense").code == 2
    assert bare("schedule", "put").code == 2
    assert bare("schedule", "list", "--limit", "0").code == 2


def test_a_bug_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr("platform.python_version", broken)
    with pytest.raises(RuntimeError, match="bug"):
        main(["version"])


def test_words_of_the_screen() -> None:
    assert clean("a\x1b[31m\nb") == "a\ufffd[31m\ufffdb"
    assert [short(s) for s in (None, 0.012, 12.34, 245, 11_400, 187_200, -2.0)] == [
        "-",
        "12ms",
        "12.3s",
        "4m05s",
        "3h10m",
        "2d04h",
        "-2.0s",
    ]
