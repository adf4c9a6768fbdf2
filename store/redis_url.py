"""Addresses of Redis: one server, a cluster, or a master that sentinels know. Pure: text in, a value out.

    redis://user:password@host:6379/0              one server; rediss:// by TLS
    unix:///run/redis.sock?db=0                    one server on this machine
    redis+cluster://user:password@h1:6379,h2/      Redis Cluster; any of its nodes will do, the others are found
    redis+sentinel://user:password@s1,s2/service/0 the master that Sentinel calls `service`, and its database

The login is that of Redis. rediss+cluster and rediss+sentinel speak TLS with every node, and with the sentinels too. What redis-py
takes in the query of a URL may stand in all of them (`ssl_ca_certs`, `ssl_check_hostname`, `client_name`, ..), and beside it
`sentinel_username` and `sentinel_password`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from redis.asyncio.connection import UnixDomainSocketConnection, parse_url

from bucketd.store.errors import ConfigError

EXPECTED = (
    "redis://host:6379/0, rediss://.. (TLS), unix:///path, redis+cluster://host:6379,host:6379/"
    " or redis+sentinel://host:26379,host:26379/service/0"
)
REDIS_PORT, SENTINEL_PORT = 6379, 26379


class Kind(Enum):
    """What stands behind an address; the value is how it is told to people."""

    ONE = "one server"
    CLUSTER = "Redis Cluster"
    SENTINEL = "Sentinel"


class Host(NamedTuple):
    """Where a node or a sentinel listens."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. `options` are keyword arguments of a connection (its class among them), without host and port."""

    kind: Kind
    hosts: tuple[Host, ...]  # of a unix socket none
    options: dict[str, Any]
    service: str = ""
    sentinel_login: dict[str, str] | None = None

    def __str__(self) -> str:
        """For people; no secret in it."""
        kind: str = self.kind.value
        if self.kind is Kind.ONE:
            return kind
        names = ", ".join(map(str, self.hosts))
        return f"{kind}{f' for {self.service}' if self.service else ''} by {names}"


def parse(url: str) -> Address:
    """Reads an address. Raises ConfigError that says what was expected and repeats no password."""
    try:
        scheme = url.partition("://")[0].lower()
        if scheme in ("redis", "rediss", "unix"):
            return _one(url)
        if scheme in ("redis+cluster", "rediss+cluster"):
            return _cluster(url, scheme)
        if scheme in ("redis+sentinel", "rediss+sentinel"):
            return _sentinel(url, scheme)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"expected a Redis URL in BUCKETD_REDIS_URL ({EXPECTED}): {_harmless(error)}") from None
    raise ConfigError(f"expected a Redis URL in BUCKETD_REDIS_URL: {EXPECTED}; got another scheme")


def _one(url: str) -> Address:
    options: dict[str, Any] = {**parse_url(url)}
    if options.get("connection_class") is UnixDomainSocketConnection and "path" not in options:
        raise ConfigError("expected a path in BUCKETD_REDIS_URL, e.g. unix:///run/redis.sock, got none")
    host = Host(options.pop("host", "localhost"), options.pop("port", REDIS_PORT))
    return Address(Kind.ONE, () if "path" in options else (host,), options)


def _cluster(url: str, scheme: str) -> Address:
    hosts, path, options = _several(url, scheme, REDIS_PORT)
    if path not in ("", "0") or options.pop("db", 0):
        raise ConfigError(
            "expected redis+cluster://host:port,host:port/ in BUCKETD_REDIS_URL, got a path or a database:"
            " Redis Cluster has database 0 alone"
        )
    return Address(Kind.CLUSTER, hosts, options)


def _sentinel(url: str, scheme: str) -> Address:
    hosts, path, options = _several(url, scheme, SENTINEL_PORT)
    service, _, database = path.partition("/")
    if not service or not (database.isdigit() or not database):
        raise ConfigError(
            "expected redis+sentinel://host:port,host:port/SERVICE/0 in BUCKETD_REDIS_URL (the name that the sentinels"
            f" monitor, then the database), got the path /{path}"
        )
    options.setdefault("db", int(database or 0))
    login = {
        name: options.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in options
    }
    return Address(Kind.SENTINEL, hosts, options, unquote(service), login or None)


def _several(url: str, scheme: str, default_port: int) -> tuple[tuple[Host, ...], str, dict[str, Any]]:
    """(hosts, path without its slashes at the ends, options of a connection)."""
    rest = url.partition("://")[2]
    before, _, query = rest.partition("?")
    login, at, places = before.rpartition("@")
    if "@" in login:
        raise ConfigError(
            "expected one login before the first host in BUCKETD_REDIS_URL, got several @: the login holds for all hosts, and"
            " an @ in a password is written %40"
        )
    places, _, path = places.partition("/")
    hosts = tuple(_host(place, default_port) for place in places.split(","))
    # The login and the query are read by redis-py's own rules, those of a single server.
    options: dict[str, Any] = {**parse_url(f"{scheme.split('+')[0]}://{login}{at}host/?{query}")}
    del options["host"]
    return hosts, path.strip("/"), options


def _host(text: str, default_port: int) -> Host:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ConfigError("expected host:port,host:port in BUCKETD_REDIS_URL, got an empty place between two commas")
    return Host(unquote(parts.hostname), parts.port or default_port)


def _harmless(error: ValueError) -> str:
    """urllib repeats what it could not read as a port, which may be a password with a slash in it."""
    text = str(error)
    return "a port that is no number, or a login that wants percent-encoding" if text.startswith("Port") else text
