"""One settings object: which source wins, what is refused and how, and that no secret is shown."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketd.store.config import Settings, without_secret
from bucketd.store.errors import ConfigError

SECRET = "hunter2-s3cret"
DSN = f"postgresql://app:{SECRET}@db.example/bucketd"
REDIS = f"redis://:{SECRET}@cache.example:6379/0"


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "bucketd.toml"
        path.write_text(text)
        return path

    return write


def test_overrides_win_over_the_environment_over_the_file_over_defaults(file: Callable[[str], Path]) -> None:
    path = file("horizon_s = 90\nqueue_cap = 2000\nconcurrency = 3\n")
    environ = {"BUCKETD_CONFIG": str(path), "BUCKETD_QUEUE_CAP": "3000", "BUCKETD_CONCURRENCY": "4", "HOME": "/x"}
    settings = Settings.load(environ, concurrency=5, drain_batch=None)
    assert (settings.horizon_s, settings.queue_cap, settings.concurrency) == (90, 3000, 5)
    assert settings.drain_batch == Settings.load({}).drain_batch == 1_000


def test_a_table_of_a_shared_file(file: Callable[[str], Path]) -> None:
    assert Settings.load({}, file("[bucketd]\nhorizon_s = 60\n[other]\nx = 1\n")).horizon_s == 60


@pytest.mark.parametrize("text", ["horizon_s = ", "bucketd = 3"])
def test_an_unreadable_file(file: Callable[[str], Path], text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected .*bucketd\.toml"):
        Settings.load({}, file(text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a readable TOML file at .*nowhere"):
        Settings.load({"BUCKETD_CONFIG": str(tmp_path / "nowhere.toml")})


def test_an_unknown_key_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'horizn_s'.*did you mean horizon_s\?.*known: .*retention_days") as caught:
        Settings.load({"BUCKETD_HORIZN_S": "90"})
    assert "BUCKETD_HORIZN_S" in str(caught.value)


def test_an_unknown_key_of_a_file(file: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match="unknown setting 'speed'"):
        Settings.load({}, file("speed = 3"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUCKETD_HORIZON_S", "59"),
        ("BUCKETD_HORIZON_S", "601"),
        ("BUCKETD_HORIZON_S", "soon"),
        ("BUCKETD_LEASE_TTL_S", "0.5"),
        ("BUCKETD_QUEUE_CAP", "999"),
        ("BUCKETD_DRAIN_BATCH", "0"),
        ("BUCKETD_RETENTION_DAYS", "0"),
        ("BUCKETD_DAYS_AHEAD", "1"),
        ("BUCKETD_REDIS_PREFIX", "a b"),
        ("BUCKETD_REDIS_PREFIX", ""),
        ("BUCKETD_LOG_LEVEL", "loud"),
    ],
)
def test_a_value_out_of_range_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings.load({name: value})


@pytest.mark.parametrize(("ttl_s", "renew_s", "margin_s"), [("3", "3", "2"), ("2", "0.5", "2"), ("5", "4.5", "1")])
def test_a_lease_that_would_never_be_believed_long_enough_to_be_renewed(
    ttl_s: str, renew_s: str, margin_s: str
) -> None:
    environ = {"BUCKETD_LEASE_TTL_S": ttl_s, "BUCKETD_LEASE_RENEW_S": renew_s, "BUCKETD_LEASE_MARGIN_S": margin_s}
    with pytest.raises(ConfigError, match=r"lease_renew_s"):
        Settings.load(environ)


def test_settings_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        Settings.load({}).horizon_s = 60


def test_secrets_are_shown_nowhere() -> None:
    settings = Settings.load({"BUCKETD_DSN": DSN, "BUCKETD_REDIS_URL": REDIS})
    assert settings.dsn.get_secret_value() == DSN
    for text in (repr(settings), str(settings), str(settings.shown()), settings.model_dump_json()):
        assert SECRET not in text
    assert settings.shown()["dsn"] == "postgresql://app:***@db.example/bucketd"
    with pytest.raises(ConfigError) as caught:
        Settings.load({"BUCKETD_DSN": DSN, "BUCKETD_HORIZON_S": SECRET})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (DSN, "postgresql://app:***@db.example/bucketd"),
        (REDIS, "redis://:***@cache.example:6379/0"),
        ("redis://cache.example:6379/0", "redis://cache.example:6379/0"),
        (f"host=db password={SECRET} user=app", "host=db password=*** user=app"),
        (f"host=db password='{SECRET} and more' user=app", None),
        (f"host=db password = {SECRET} user=app", None),
        (f"postgresql://db.example/bucketd?password={SECRET}", None),
        (f"postgresql://app@db.example/bucketd?sslmode=require&password={SECRET}&user=x", None),
        (f"redis://cache.example:6379/0?password={SECRET}", None),
        (f"postgresql://app:x?{SECRET}@db.example/bucketd", "postgresql://app:***@db.example/bucketd"),
        (f"postgresql://app:x?{SECRET}@db.example/b?a=1", "postgresql://app:***@db.example/b?a=1"),
        (f"postgresql://app:x@y?{SECRET}@db.example/b", "postgresql://app:***@db.example/b"),
        (f"postgresql://app:x?a={SECRET}@db.example/b", "postgresql://app:***@db.example/b"),
        (f"postgresql://app:x/#{SECRET}@db.example/b", "postgresql://app:***@db.example/b"),
        (f"redis://cache.example:6379/0?password=x@{SECRET}&db=1", "redis://cache.example:***@***&db=1"),
        (f"redis://cache.example/0?password=x@{SECRET}&db=1", "redis://cache.example/0?password=***&db=1"),
        (f"redis://:x@{SECRET}?password=x@cache.example/0", None),
        (f"host=db password=a://{SECRET} user=app", "host=db password=*** user=app"),
        ("postgresql://db.example/b?user=me@corp", "postgresql://db.example/b?user=me@corp"),
    ],
)
def test_a_password_is_blanked_in_every_form_of_address(given: str, shown: str | None) -> None:
    assert SECRET not in without_secret(given)
    assert "and more" not in without_secret(given)
    if shown is not None:
        assert without_secret(given) == shown


def test_the_switch_of_the_safety_test_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETD_TEST_NO_OWNERSHIP", raising=False)
    settings = Settings.load({**os.environ, "BUCKETD_TEST_NO_OWNERSHIP": "1"})
    assert not settings.no_ownership
    monkeypatch.setenv("BUCKETD_TEST_NO_OWNERSHIP", "1")
    assert settings.no_ownership
    monkeypatch.setenv("BUCKETD_TEST_NO_OWNERSHIP", "0")
    assert not settings.no_ownership
