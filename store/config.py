"""One frozen, validated settings object a process: from `BUCKETD_*` variables, over a TOML file, over the defaults."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from bucketd.store.allow_list import AllowList
from bucketd.store.errors import ConfigError
from bucketd.store.fires import MESSAGE_VERSION
from bucketd.store.keyring import KeyRing
from bucketd.store.listen import Listen

PREFIX = "BUCKETD_"
CONFIG_FILE = "BUCKETD_CONFIG"
# Named switches that only tests use; they are no settings, and no typing error for one.
TEST_SWITCHES = frozenset({"BUCKETD_TEST_NO_OWNERSHIP", "BUCKETD_TEST_KILL_AT", "BUCKETD_TEST_MESSAGE_VERSION"})


class Settings(BaseModel):
    """What a process needs to know. Times in seconds; sizes as named."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    dsn: SecretStr = Field(SecretStr(""), description="Postgres, e.g. postgresql://user@host/database")
    redis_url: SecretStr = Field(
        SecretStr(""),
        description="Redis or Valkey, e.g. redis://host:6379/0, redis+cluster://h1,h2/, redis+sentinel://s1,s2/service/0",
    )
    secret_keys: SecretStr = Field(
        SecretStr(""), description="keys that seal targets' secrets, with commas between; the first one seals, all open"
    )
    redis_prefix: str = Field("bucketd", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="first part of every Redis key")

    horizon_s: int = Field(120, ge=60, le=600, description="how far ahead fires are planned into Redis")
    node_name: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.-]{0,128}$",
        description="what operators call a scheduler node, and whoever comes in its place after a restart; empty: the host's name",
    )
    lease_ttl_s: float = Field(10.0, ge=1, le=60, description="time to live of a partition's lease")
    lease_renew_s: float = Field(3.0, gt=0, le=20, description="period of renewal")
    lease_margin_s: float = Field(
        2.0, ge=0.1, le=20, description="a lease is believed until attempt start + TTL - this"
    )
    drain_batch: int = Field(1_000, ge=1, le=2_000, description="fires a queue message")
    queue_cap: int = Field(50_000, ge=1_000, description="fires a shard's queue may hold")
    feed_poll_s: float = Field(1.0, ge=0.05, le=10, description="period of the look at the change feed, nudges apart")

    runner_heartbeat_s: float = Field(10.0, ge=0.1, le=20)
    runner_dead_after_s: float = Field(30.0, ge=1, le=120, description="a runner without a heartbeat this long is dead")
    confirm_batch: int = Field(2_000, ge=1, le=10_000, description="fires a confirm statement")
    concurrency: int = Field(256, ge=1, le=20_000, description="calls a runner has in flight")
    wake_poll_s: float = Field(1.0, ge=0.05, le=10, description="period of the look for rows whose wake_at is due")
    reclaim_idle_s: float = Field(15.0, ge=0.1, le=120, description="a message idle this long goes to another runner")
    drain_timeout_s: float = Field(25.0, ge=0, le=1800, description="how long a stopping runner waits for its calls")
    egress_allow: str = Field(
        "", description="networks and hosts that runners may call beside the public internet, e.g. 10.0.0.0/8,*.corp.example"
    )

    actor: str = Field("", max_length=255, description="who acts, for the audit log; empty: the database user")
    audit_days: int = Field(400, ge=1, le=36_500, description="how long the audit log is kept")
    retention_days: int = Field(30, ge=1, le=3_650, description="how long runs are kept")
    days_ahead: int = Field(7, ge=2, le=60, description="days of runs made ahead")
    statement_timeout_s: float = Field(5.0, ge=0.5, le=600)
    lock_timeout_s: float = Field(2.0, ge=0.1, le=60)
    redis_connect_timeout_s: float = Field(1.0, ge=0.05, le=30)
    redis_read_timeout_s: float = Field(2.0, ge=0.05, le=30)
    log_level: str = Field("info", pattern=r"^(debug|info|warning|error)$")
    log_format: str = Field("text", pattern=r"^(text|json)$", description="text: event key=value; json: one object a line")
    metrics_listen: str = Field(
        "",
        description="host:port of /metrics, /healthz and /readyz, without any login; port 0: any, the log says; empty: none",
    )

    @field_validator("egress_allow")
    @classmethod
    def _is_allow_list(cls, text: str) -> str:
        AllowList.parse(text)
        return text

    @field_validator("metrics_listen")
    @classmethod
    def _is_address(cls, text: str) -> str:
        if text:
            Listen.parse(text)
        return text

    @property
    def no_ownership(self) -> bool:
        """Test switch: no lease, no fence compare, watermarks by value. Safety must not depend on ownership."""
        return os.environ.get("BUCKETD_TEST_NO_OWNERSHIP", "") not in ("", "0")

    @property
    def message_version(self) -> int:
        """The newest format of queue messages that this process reads and writes (fires.py). A test switch makes it an older or a newer
        release."""
        return int(os.environ.get("BUCKETD_TEST_MESSAGE_VERSION") or MESSAGE_VERSION)

    def shown(self) -> dict[str, Any]:
        """The settings for a log or a screen: passwords blanked."""
        plain = self.model_dump()
        plain["dsn"] = without_secret(self.dsn.get_secret_value())
        plain["redis_url"] = without_secret(self.redis_url.get_secret_value())
        plain["secret_keys"] = "***" if self.secret_keys.get_secret_value() else ""
        return plain

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, file: Path | None = None, **overrides: Any) -> Self:
        """Reads the environment and the TOML file that `file` or BUCKETD_CONFIG names; `overrides` win.

        Raises ConfigError: an unknown key (the known ones are listed), a value out of range, an unreadable file.
        """
        environ = os.environ if environ is None else environ
        named = file or (Path(environ[CONFIG_FILE]) if environ.get(CONFIG_FILE) else None)
        values: dict[str, Any] = _from_file(named) if named else {}
        for name, value in environ.items():
            if name.startswith(PREFIX) and name != CONFIG_FILE and name not in TEST_SWITCHES:
                values[name.removeprefix(PREFIX).lower()] = value
        values |= {key: value for key, value in overrides.items() if value is not None}
        _refuse_unknown(values, cls)
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            problem = first["msg"].removeprefix("Value error, ")  # pydantic's words before those of a validator of ours
            raise ConfigError(
                f"setting {first['loc'][0]}: {problem}; change {PREFIX}{str(first['loc'][0]).upper()}"
            ) from None
        _refuse_unmatched(settings)
        return settings


_PASSWORD = re.compile(r"""(\w*password)\s*=\s*(?:'(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)*)""", re.IGNORECASE)
_PASSWORD_OF_QUERY = re.compile(r"([?&]\w*password)=[^&#]*", re.IGNORECASE)
_OPEN_PASSWORD = re.compile(r"[?&]\w*password=[^&#]*\Z", re.IGNORECASE)
_VALUE = re.compile(r"\A[^&#]*")


def without_secret(url: str) -> str:
    """A URL or DSN with its passwords blanked, wherever they stand."""
    scheme, mark, rest = url.partition("://")
    if not mark or "=" in scheme:
        return _PASSWORD.sub(r"\1=***", url)
    # The last @ of all: a password may hold any character that somebody forgot to encode, ? and @ too. An @ that stands in the
    # query then hides the host; better that than half a password.
    login, at, tail = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if at and colon:
        if _OPEN_PASSWORD.search(login):  # the @ stands in a password of the query, or that looks like one
            tail = _VALUE.sub("***", tail, count=1)
        rest = f"{user}:***@{tail}"
    return f"{scheme}://" + _PASSWORD_OF_QUERY.sub(r"\1=***", rest)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            found = tomllib.load(stream)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"expected a readable TOML file at {path}: {error}") from error
    inner = found.get("bucketd", found)  # a [bucketd] table lets the file be shared with other tools
    if not isinstance(inner, dict):
        raise ConfigError(f"expected [bucketd] in {path} to be a table, got {type(inner).__name__}")
    return inner


def _refuse_unmatched(settings: Settings) -> None:
    KeyRing(settings.secret_keys.get_secret_value())
    believed_s = settings.lease_ttl_s - settings.lease_margin_s
    if settings.lease_renew_s >= believed_s:
        raise ConfigError(
            f"expected lease_renew_s below lease_ttl_s - lease_margin_s ({believed_s:g}), got {settings.lease_renew_s:g}:"
            " no lease would be renewed while it is believed; change BUCKETD_LEASE_RENEW_S"
        )
    if settings.runner_heartbeat_s >= settings.runner_dead_after_s:
        raise ConfigError(
            f"expected runner_heartbeat_s below runner_dead_after_s ({settings.runner_dead_after_s:g}), got"
            f" {settings.runner_heartbeat_s:g}: every runner would count as dead; change BUCKETD_RUNNER_HEARTBEAT_S"
        )


def _refuse_unknown(values: Mapping[str, Any], settings: type[Settings]) -> None:
    known = sorted(settings.model_fields)
    for key in values:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(f"unknown setting {key!r} ({PREFIX}{key.upper()}); {hint}known: {', '.join(known)}")
