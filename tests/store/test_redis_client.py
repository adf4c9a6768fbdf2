"""Logins, TLS, and servers that are no longer what they were when we connected to them."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis as sync_redis
from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError, ResponseError

from bucketd.embedded import Server, start_redis
from bucketd.embedded.server import free_port
from bucketd.store import depth, queues, scripts
from bucketd.store.backlog import read_all
from bucketd.store.config import Settings
from bucketd.store.errors import StoreUnavailable
from bucketd.store.keys import SLOTS, Keys
from bucketd.store.redis_client import check_redis, make_redis
from bucketd.store.redis_sync import make_sync_redis
from tests.support.certificates import Authority
from tests.support.redis_kinds import sentinels, serving, with_tls
from tests.support.redis_uses import everything
from tests.support.waiting import wait_until

# What bucketd needs, as the rules of an ACL user.
RIGHTS = (
    "~bucketd:* resetchannels &bucketd:* -@all +@read +@write +@stream +@scripting +@pubsub +@connection -@dangerous"
    " +info +time +cluster|slots"
)
MASTER_PASSWORD = "of-the-master"


def of(url: str) -> Settings:
    return Settings.load({}, redis_url=url)


async def test_an_acl_user_with_these_rights_can_do_everything_and_no_more(own_redis: Server) -> None:
    with sync_redis.Redis.from_url(own_redis.url) as root:
        root.execute_command("ACL", "SETUSER", "app", "on", ">secret", *RIGHTS.split())
    settings = of(f"redis://app:secret@127.0.0.1:{own_redis.port}/0")
    client = make_redis(settings)
    await check_redis(client, settings)
    await everything(client, Keys("bucketd"))
    with make_sync_redis(settings) as plain:
        assert depth.fires(plain, Keys("bucketd")) == 0
    for forbidden in (
        client.set("other:key", 1),
        client.flushall(),
        client.config_get("*"),
        client.publish("other", 1),
    ):
        with pytest.raises(NoPermissionError):
            await forbidden
    await client.aclose()


async def test_an_error_is_no_empty_queue(own_redis: Server, keys: Keys) -> None:
    """Settling believes an empty queue; what a server refuses to say, or cannot say now, must not look like one."""
    with sync_redis.Redis.from_url(own_redis.url) as root:
        root.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-xinfo")
    client = make_redis(of(f"redis://app:secret@127.0.0.1:{own_redis.port}/0"))
    with pytest.raises(NoPermissionError):
        await read_all(client, keys)
    await client.aclose()


async def test_a_wrong_password_is_told_of(own_redis: Server) -> None:
    settings = of(f"redis://:wrong@127.0.0.1:{own_redis.port}/0")
    client = make_redis(settings)
    with pytest.raises(AuthenticationError):
        await client.get("x")
    with pytest.raises(StoreUnavailable, match="cannot use Redis at redis://:\\*\\*\\*@127"):
        await check_redis(client, settings)
    await client.aclose()


@pytest.mark.parametrize("in_a_script", [False, True])
async def test_a_master_that_became_a_replica_is_left_at_once(
    own_redis: Server, shared_redis: Server, keys: Keys, in_a_script: bool
) -> None:
    """READONLY on a connection that stays open would last for ever; behind a name that moved, the next one is right."""
    client = make_redis(of(own_redis.url), connections=1)

    async def write() -> None:
        if in_a_script:
            await scripts.run(client, "fence", [keys.fence(1)], [9, "me"])
        else:
            await client.set(keys.lease(1), "me")

    await write()
    before = await client.client_id()
    await client.replicaof("127.0.0.1", str(shared_redis.port))
    with pytest.raises(ConnectionError, match="no longer a master"):
        await write()
    await client.replicaof("NO", "ONE")
    await write()
    assert await client.client_id() != before
    await client.aclose()


async def test_a_blocked_reader_of_a_master_that_is_demoted_connects_anew(
    own_redis: Server, shared_redis: Server
) -> None:
    client, other = make_redis(of(own_redis.url), blocking_s=5), make_redis(of(own_redis.url))
    await queues.make_groups(client, ["s"])

    async def demote() -> None:
        async def blocked() -> bool:
            return int((await other.info("clients"))["blocked_clients"]) == 1

        await wait_until(blocked, 5, "the reader to block")
        await other.replicaof("127.0.0.1", str(shared_redis.port))

    async with asyncio.TaskGroup() as group:
        group.create_task(demote())
        with pytest.raises(ConnectionError, match="UNBLOCKED"):
            await queues.read(client, "me", ["s"], count=1, block_ms=5_000)
    await client.aclose()
    await other.aclose()


class TestTls:
    """Debian's server: the embedded one is built without."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        made = Authority(tmp_path)
        (tmp_path / "ca.pem").write_text(made.pem)
        made.server("localhost")  # leaves its file
        return made

    @pytest.fixture
    def certified(self, authority: Authority, tmp_path: Path) -> dict[str, str]:
        """Settings of servers that are called `localhost`."""
        pem = str(tmp_path / "localhost.pem")
        return {"tls-cert-file": pem, "tls-key-file": pem, "tls-ca-cert-file": str(tmp_path / "ca.pem"),
                "tls-auth-clients": "no", "tls-replication": "yes"}  # fmt: skip

    @pytest.fixture
    def tls_port(self, certified: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
        """Of one server, which is a cluster of one node as well. Inside, servers that are started speak TLS."""
        port = free_port()
        (tmp_path / "redis").mkdir()
        (tmp_path / "redis" / "password").write_text(MASTER_PASSWORD)
        settings = {
            **certified, "tls-port": str(port), "cluster-enabled": "yes", "tls-cluster": "yes", "cluster-port": str(free_port()),
            "cluster-announce-hostname": "localhost", "cluster-preferred-endpoint-type": "hostname",
        }  # fmt: skip
        with ExitStack() as stack:
            stack.enter_context(serving(with_tls(), tmp_path / "bin", monkeypatch))
            server = stack.enter_context(start_redis(tmp_path / "redis", settings=settings))
            with sync_redis.Redis.from_url(server.url) as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
            yield port

    @pytest.mark.long
    @pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
    async def test_with_the_authority_everything_works_and_without_it_nothing(
        self, tls_port: int, tmp_path: Path, scheme: str
    ) -> None:
        place = f"{scheme}://:{MASTER_PASSWORD}@localhost:{tls_port}/"
        settings = of(f"{place}?ssl_ca_certs={tmp_path / 'ca.pem'}")
        client = make_redis(settings)

        async def ready() -> bool:
            try:
                return bool(await client.set("{x}", 1))
            except ResponseError:  # CLUSTERDOWN: a node of one takes a moment to believe in itself
                return False

        await wait_until(ready, 10, "the cluster of one to be up")
        await check_redis(client, settings)
        await everything(client, Keys("bucketd"))
        await client.aclose()
        # redis-py's synchronous client of a cluster makes an address of `localhost`, and of that name alone.
        unnamed = of(f"{settings.redis_url.get_secret_value()}&ssl_check_hostname=false")
        with make_sync_redis(unnamed if "cluster" in scheme else settings) as plain:
            assert plain.get("{x}") == b"1"
        for refused in (of(place), of(settings.redis_url.get_secret_value().replace("localhost", "127.0.0.1"))):
            client = make_redis(refused)
            with pytest.raises(StoreUnavailable, match="certificate verify failed"):
                await check_redis(client, refused)
            await client.aclose()

    @pytest.mark.long
    async def test_sentinels_too(self, tls_port: int, certified: dict[str, str], tmp_path: Path) -> None:
        """And with a login of their own, in both clients."""
        with sentinels(tmp_path / "sentinels", tls_port, MASTER_PASSWORD, "theirs", tls=certified) as ports:
            hosts = ",".join(f"localhost:{port}" for port in ports)
            place = f"rediss+sentinel://:{MASTER_PASSWORD}@{hosts}/main/0?sentinel_password=theirs"
            trusting = of(f"{place}&ssl_ca_certs={tmp_path / 'ca.pem'}")
            client = make_redis(trusting)
            await check_redis(client, trusting)
            await client.aclose()
            with make_sync_redis(trusting) as plain:
                assert plain.ping()
            client = make_redis(of(place))
            with pytest.raises(StoreUnavailable, match="certificate verify failed"):
                await check_redis(client, of(place))
            await client.aclose()
