"""The guard between a caller and servers that really listen: several addresses, rebinding, redirects, proxies, TLS."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from bucketd.runner.call import Answer, Caller
from tests.runner.conftest import World
from tests.support.calls import Resolver, call_target, calling
from tests.support.certificates import Authority
from tests.support.target import Reply, Target

OPEN, SHUT = "127.0.0.1", "127.0.0.2"  # two places of this machine, of which only the first is on the list


@contextmanager
def listening(host: str, port: int, **more: Any) -> Iterator[Target]:
    """A recording target at this place."""
    server = Target(host, port, **more)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def shut(target: Target) -> Iterator[Target]:
    """A target beside the test's own, same port, at an address that is not allowed."""
    with listening(SHUT, target.port) as server:
        yield server


async def post(caller: Caller, host: str, target: Target, scheme: str = "http") -> Answer:
    return await caller.post(call_target(f"{scheme}://{host}:{target.port}/"), b"{}", {}, 5.0)


@pytest.mark.parametrize("answer", [[SHUT, OPEN], [OPEN, SHUT], ["::1", SHUT, OPEN], [SHUT, "10.0.0.1", OPEN, SHUT]])
async def test_of_several_addresses_only_permitted_ones_are_tried(
    target: Target, shut: Target, answer: list[str]
) -> None:
    async with calling(OPEN, answer) as caller:
        assert await post(caller, "mixed.example", target) == Answer(200)
    assert (len(target.requests), len(shut.requests)) == (1, 0)


async def test_no_permitted_address_listens() -> None:
    """The denied one is not the way out; aiohttp tells what the last address said."""
    with listening(SHUT, 0) as shut:
        async with calling(OPEN, [OPEN, SHUT]) as caller:
            answer = await post(caller, "mixed.example", shut)
    assert (answer.status, answer.buildable, shut.requests) == (None, True, [])
    assert answer.error.startswith(f"ClientConnectorError: mixed.example:{shut.port}: ")


async def test_all_denied_addresses_are_named(target: Target) -> None:
    async with calling("", [SHUT, "10.0.0.1"]) as caller:
        answer = await post(caller, "evil.example", target)
    assert (answer.status, answer.buildable, answer.sent) == (None, True, False)
    assert answer.error == (
        f"egress denied: evil.example resolves to {SHUT}, which is loopback (RFC 1122) and to 10.0.0.1, which is private"
        " (RFC 1918); allow it with BUCKETD_EGRESS_ALLOW"
    )


async def test_rebinding(target: Target, shut: Target) -> None:
    """The name was fine when it was resolved first, and is judged again by where the next connection goes."""
    target.replies += [Reply(headers={"Connection": "close"})] * 2
    resolver = Resolver([OPEN], [OPEN], [SHUT])
    async with calling(OPEN, resolver=resolver, dns_s=0) as caller:
        answers = [await post(caller, "rebind.example", target) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, None, None]
    assert all(answer.error.startswith("egress denied: rebind.example") for answer in answers[2:])
    assert (len(target.requests), shut.requests) == (2, [])
    assert len(resolver.asked) == 4


async def test_the_cache_of_the_resolver_is_no_way_round(target: Target) -> None:
    """Its addresses are judged at every connection, so that a host's permission does not stick to what was resolved."""
    resolver = Resolver([SHUT])
    async with calling("", resolver=resolver) as caller:
        answers = await asyncio.gather(*(post(caller, "evil.example", target) for _ in range(10)))
    assert {answer.error.split(":")[0] for answer in answers} == {"egress denied"}
    assert resolver.asked == ["evil.example"]


async def test_an_allowed_host_opens_its_address_for_itself_alone(target: Target) -> None:
    """Also while its pooled connections lie ready for whoever asks for the same address."""
    async with calling("db.corp", [OPEN]) as caller:
        hosts = ["db.corp", "evil.example"] * 10
        for _ in range(2):
            answers = await asyncio.gather(*(post(caller, host, target) for host in hosts))
            assert [answer.status for answer in answers] == [200, None] * 10
        assert (await post(caller, OPEN, target)).buildable is False
    assert {request.headers["host"].split(":")[0] for request in target.requests} == {"db.corp"}


async def test_a_pooled_connection_is_used_again_without_the_resolver(target: Target) -> None:
    resolver = Resolver([OPEN], [SHUT])
    async with calling(OPEN, resolver=resolver, dns_s=0) as caller:
        for _ in range(5):
            assert (await post(caller, "pooled.example", target)).status == 200
    assert len(resolver.asked) == 1


async def test_odd_spellings_of_an_allowed_address_go_to_it(target: Target) -> None:
    async with calling(OPEN) as caller:
        for host in ("2130706433", "0x7f.1", "127.1", "127.0.0.1."):
            assert (await post(caller, host, target)).status == 200
    assert {request.headers["host"] for request in target.requests} == {f"{OPEN}:{target.port}"}


async def test_ipv6() -> None:
    with listening("::1", 0) as target:
        async with calling("") as caller:
            denied = await post(caller, "[::1]", target)
        assert (denied.status, denied.buildable, denied.sent) == (None, False, False)
        assert denied.error == "egress denied: ::1 is loopback (RFC 4291); allow it with BUCKETD_EGRESS_ALLOW"
        assert target.requests == []
        async with calling("::1") as caller:
            assert (await post(caller, "[::1]", target)).status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_answers(target: Target, shut: Target, status: int) -> None:
    target.script = lambda request: Reply(status, headers={"Location": f"http://{SHUT}:{shut.port}/"})
    async with calling("127.0.0.0/8") as caller:
        assert (await post(caller, OPEN, target)).status == status
    assert (len(target.requests), shut.requests) == (1, [])


async def test_proxies_of_the_environment_are_not_used(
    target: Target, shut: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{SHUT}:{shut.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with calling("127.0.0.0/8", [OPEN]) as caller:
        assert (await post(caller, "proxied.example", target)).status == 200
    assert (len(target.requests), shut.requests) == (1, [])


async def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the right authority and for the name of the URL; the environment adds no authority."""
    authority = Authority(tmp_path)
    trusting = httpx.create_ssl_context(trust_env=False)
    trusting.load_verify_locations(cadata=authority.pem)
    (tmp_path / "authority.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with listening(OPEN, 0, tls=authority.server("good.example")) as target:
        async with calling(OPEN, [OPEN], tls=trusting) as caller:
            assert (await post(caller, "good.example", target, "https")).status == 200
            wrong_name = await post(caller, "other.example", target, "https")
        async with calling(OPEN, [OPEN], tls=None) as caller:
            unknown = await post(caller, "good.example", target, "https")
    assert (wrong_name.status, unknown.status, len(target.requests)) == (None, None, 1)
    assert "certificate is not valid for 'other.example'" in wrong_name.error
    assert "unable to get local issuer certificate" in unknown.error


async def test_the_first_kib_of_a_failure_is_kept(target: Target) -> None:
    target.script = lambda request: Reply(500, body="x" * 1022 + "é" + "y" * 100_000)
    async with calling(OPEN) as caller:
        answer = await post(caller, OPEN, target)
    text = answer.error.removeprefix("HTTP 500 ")
    assert text == '"' + "x" * 1022 + "\\"  # JSON text: the quotation mark is the first byte


async def test_a_run_is_dead_at_an_address_and_tried_again_at_a_name(world: World, target: Target) -> None:
    """By the runner's own setting, with the system's resolver."""
    addressed = world.target(target.url)
    named = world.target(f"http://localhost:{target.port}/", retry_base_s=1000, retry_cap_s=1000)
    at = world.now_s - 5
    world.put([world.fire(world.schedule(hook), at) for hook in (addressed, named)])
    async with world.runner(egress_allow=""):
        await world.until({"dead": 1, "retrying": 1})
        await world.until_quiet()
    (dead,), (retrying,) = world.runs(target_id=addressed), world.runs(target_id=named)
    assert (dead["reason"], dead["attempt"]) == ("rejected", 1)
    assert dead["failures"][0]["error"].startswith("egress denied: 127.0.0.1 is loopback (RFC 1122)")
    assert retrying["failures"][0]["error"].startswith("egress denied: localhost resolves to ")
    assert target.requests == []
