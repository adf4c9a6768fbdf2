"""Addresses of Redis in all their forms, and what is said of those that are none."""

from typing import Any

import pytest
from redis.asyncio.connection import SSLConnection

from bucketd.store.config import Settings, without_secret
from bucketd.store.errors import ConfigError
from bucketd.store.redis_client import make_redis
from bucketd.store.redis_url import Host, Kind, parse

SECRET = "hunter2-s3cret"


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "options"),
    [
        ("redis://cache", Kind.ONE, [("cache", 6379)], {}),
        ("redis://u:p%40x@cache:7/3?client_name=me", Kind.ONE, [("cache", 7)],
         {"username": "u", "password": "p@x", "db": 3, "client_name": "me"}),
        ("unix:///run/redis.sock?db=2", Kind.ONE, [], {"path": "/run/redis.sock", "db": 2}),
        ("redis+cluster://a", Kind.CLUSTER, [("a", 6379)], {}),
        ("redis+cluster://u:p%2Fx@a:1,b,[::1]:3/?ssl_check_hostname=false", Kind.CLUSTER,
         [("a", 1), ("b", 6379), ("::1", 3)], {"username": "u", "password": "p/x", "ssl_check_hostname": False}),
        ("REDIS+CLUSTER://a:1,b:2/0", Kind.CLUSTER, [("a", 1), ("b", 2)], {}),
        ("redis+sentinel://:p@a,b:1/main/5", Kind.SENTINEL, [("a", 26379), ("b", 1)], {"password": "p", "db": 5}),
        ("redis+sentinel://a/main", Kind.SENTINEL, [("a", 26379)], {"db": 0}),
    ],
)  # fmt: skip
def test_forms(url: str, kind: Kind, hosts: list[tuple[str, int]], options: dict[str, Any]) -> None:
    address = parse(url)
    assert (address.kind, list(address.hosts)) == (kind, [Host(*host) for host in hosts])
    assert {name: value for name, value in address.options.items() if name != "connection_class"} == options


def test_tls_and_the_login_of_sentinels() -> None:
    for url in ("rediss://a", "rediss+cluster://a", "rediss+sentinel://a/main"):
        assert parse(f"{url}?ssl_ca_certs=/ca.pem").options["connection_class"] is SSLConnection
        assert parse(f"{url}?ssl_ca_certs=/ca.pem").options["ssl_ca_certs"] == "/ca.pem"
    address = parse("redis+sentinel://u:p@a/main%20one/0?sentinel_username=s&sentinel_password=t")
    assert (address.service, address.sentinel_login) == ("main one", {"username": "s", "password": "t"})
    assert {"sentinel_username", "sentinel_password"}.isdisjoint(address.options)


@pytest.mark.parametrize(
    "url",
    [
        "cache:6379", "http://cache/0", "redis+cluster:/a", f"redis+cluster://:{SECRET}@/", "unix://",
        f"redis+cluster://:{SECRET}@a,,b/", f"redis+cluster://:{SECRET}@a,b/3", f"redis+cluster://:{SECRET}@a/?db=1",
        f"redis+cluster://u:{SECRET}@a,u:{SECRET}@b/", f"redis+cluster://u:x@{SECRET}@a/", f"redis+cluster://u:{SECRET}/x@a",
        f"redis+sentinel://:{SECRET}@a,b/", f"redis+sentinel://:{SECRET}@a/main/one", f"redis+sentinel://a:{SECRET}/main",
        f"redis://u:{SECRET}/x@a", f"redis://a/0?db={SECRET}", "redis+cluster://a/?no_such_option=1",
        "redis://a/0?no_such_option=1", "redis+sentinel://a/main?no_such_option=1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected .*BUCKETD_REDIS_URL") as caught:
        make_redis(Settings.load({}, redis_url=url))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis+cluster://u:{SECRET}@a:1,b:2/?client_name=me", "redis+cluster://u:***@a:1,b:2/?client_name=me"),
        (f"redis+sentinel://:{SECRET}@a,b/main/0?sentinel_username=s&sentinel_password={SECRET}",
         "redis+sentinel://:***@a,b/main/0?sentinel_username=s&sentinel_password=***"),
        (f"redis+cluster://u:{SECRET}@a,u:{SECRET}@b/", None),
        (f"redis+sentinel://a:1,b:2/main/0?sentinel_password=x@{SECRET}", None),
        (f"rediss+sentinel://u:x,{SECRET}@a,b/main/0?sentinel_password=x@{SECRET}&ssl_ca_certs=/c", None),
    ],
)  # fmt: skip
def test_passwords_are_blanked_beside_several_hosts(url: str, shown: str | None) -> None:
    assert SECRET not in without_secret(url)
    if shown is not None:
        assert without_secret(url) == shown


def test_what_people_are_told() -> None:
    assert str(parse("redis://:x@a:1/0")) == "one server"
    assert str(parse("redis+cluster://:x@a:1,[::1]:2")) == "Redis Cluster by a:1, [::1]:2"
    assert str(parse("redis+sentinel://:x@a/main")) == "Sentinel for main by a:26379"
