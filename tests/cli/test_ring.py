"""`bucketd ring`: which node is meant, what operators say, and how the ring is shown."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from bucketd.scheduler.ring import owners
from bucketd.store import leases, members
from bucketd.store.config import Settings
from bucketd.store.keys import PARTITIONS, Keys
from bucketd.store.members import Members
from bucketd.store.redis_client import make_redis
from tests.cli.conftest import Cli

A, B, C = (f"{letter * 8}{uuid4().hex[8:]}" for letter in "abc")


class Outside:
    """Says for nodes that do not run that they are alive, and who holds which lease."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.keys = Keys(settings.redis_prefix)

    def _do(self, work: Callable[[Redis], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            client = make_redis(self._settings)
            try:
                return await work(client)
            finally:
                await client.aclose()

        return asyncio.run(run())

    def alive(self, node: str, name: str, now_s: float, **info: Any) -> None:
        self._do(lambda r: members.beat(r, self.keys, UUID(node), now_s, 3_600, info, name=name))

    def lease(self, node: str, partitions: range) -> None:
        self._do(lambda r: leases.take(r, self.keys, partitions, UUID(node), 3_600))

    def word(self, key: str) -> dict[str, str]:
        async def read(redis: Redis) -> Any:
            return await redis.hgetall(key)

        found = self._do(read)
        return {name.decode(): value.decode() for name, value in found.items()}


@pytest.fixture
def outside(settings: Settings, now_s: float) -> Outside:
    """Three nodes of two names that say they are alive."""
    outside = Outside(settings)
    load = [[partition, 6.0, 12, 300] for partition in range(100)]
    outside.alive(A, "rack-1", now_s, host="h1", pid=11, age_s=60, late_ms=[5, 12], load=load, partitions=100)
    outside.alive(B, "rack-2", now_s, host="h2", pid=22, age_s=61, late_ms=None, load=[["of", "another", "version"]])
    outside.alive(C, "rack-2", now_s)
    return outside


@pytest.fixture
def now_s(settings: Settings) -> float:
    """The cluster's time."""
    import psycopg

    with psycopg.connect(settings.dsn.get_secret_value()) as connection:
        row = connection.execute("select extract(epoch from bucketd.bucketd_now())::float8").fetchone()
    assert row is not None
    return float(row[0])


def test_words_about_names_and_incarnations(cli: Cli, outside: Outside) -> None:
    keys = outside.keys
    assert cli.done("ring", "weight", "rack-1", "0.5").out == "node rack-1 has weight 0.5\n"
    assert cli.done("ring", "weight", B[:6], "2").out == f"node {B[:8]} has weight 2\n"
    assert outside.word(keys.weights) == {"@rack-1": "0.5", B: "2.0"}
    cli.done("ring", "weight", "rack-1", "1")
    assert outside.word(keys.weights) == {B: "2.0"}, "1 is what everybody has"
    assert cli.done("ring", "cordon", "rack-2", "--json").json == {
        "about": "@rack-2", "nodes": sorted([B, C]), "cordoned": True,
    }  # fmt: skip
    cli.done("ring", "cordon", C)
    assert cli.done("ring", "cordon", "@rack-9").out == "node rack-9 is cordoned (nobody of that name is alive)\n"
    assert set(outside.word(keys.cordons)) == {"@rack-2", C, "@rack-9"}
    shown = {node["id"]: (node["state"], node["weight"]) for node in cli("ring", "show", "--json").json["nodes"]}
    assert shown == {A: ("active", 1.0), B: ("cordoned", 2.0), C: ("cordoned", 1.0)}
    cli.done("ring", "uncordon", "rack-2")
    assert set(outside.word(keys.cordons)) == {"@rack-9"}, "by name, its incarnations too"
    cli.done("ring", "uncordon", "rack-9")
    refused = cli("ring", "uncordon", "rack-1")
    assert (refused.code, refused.err) == (3, "error: node rack-1 is not cordoned; cordoned are: none\n")


def test_which_node_is_meant(cli: Cli, outside: Outside, now_s: float) -> None:
    nobody = cli("ring", "cordon", "rack-3")
    assert nobody.code == 3
    assert "no node 'rack-3'; there are: " in nobody.err
    assert f"{A[:8]} (rack-1)" in nobody.err
    outside.alive(A[:8] + uuid4().hex[8:], "aaaa", now_s)
    for text in ("aaaa", A[:8]):  # a name and two ids; two ids
        doubtful = cli("ring", "cordon", text)
        assert doubtful.code == 2
        assert f"expected one, got '{text}', which may be " in doubtful.err
        assert ("@aaaa" in doubtful.err) == (text == "aaaa")
    assert cli.done("ring", "cordon", "@aaaa", "--json").json["about"] == "@aaaa"
    assert outside.word(outside.keys.cordons).keys() == {"@aaaa"}


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "1000"])
def test_a_weight_that_is_none(bare: Cli, weight: str) -> None:
    refused = bare("ring", "weight", "rack-1", "--", weight)
    assert refused.code == 2
    assert "expected 0.05 to 20" in refused.err


def test_this_node(cli: Cli, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_NODE_NAME", "rack-2")
    two = cli("ring", "drain")
    assert two.code == 2
    assert "expected one with the name 'rack-2', got 2" in two.err
    monkeypatch.setenv("BUCKETD_NODE_NAME", "rack-7")
    assert cli("ring", "drain").code == 3
    monkeypatch.setenv("BUCKETD_NODE_NAME", "rack-1")
    outside.lease(A, range(2))
    late = cli("ring", "drain", "--timeout", "0.3")
    assert late.code == 1
    assert f"node {A[:8]} still owns 2 of 2 partitions" in late.err
    assert set(outside.word(outside.keys.cordons)) == {A}, "this incarnation, not whoever comes after it"


def test_the_ring_is_shown(cli: Cli, outside: Outside) -> None:
    outside.lease(A, range(100))
    outside.lease(B, range(100, 250))
    cli.done("ring", "weight", "rack-1", "2")
    drawn = cli("ring", "show", "--partitions")
    assert drawn.code == 1, "six partitions are nobody's"
    lines = drawn.out.splitlines()
    first = next(line.split() for line in lines if "h1:11" in line)
    assert first == [
        "A", "rack-1", A[:8], "h1:11", "1m00s", "2", "active", "100", "600.0", "█" * 24, "5ms", "12ms", "0", first[-1],
    ]  # fmt: skip
    map_ = [line.split()[0] for line in lines if len(line.split()[:1]) == 1 and len(line.split()[0]) == 64]
    assert "".join(map_) == "A" * 100 + "B" * 150 + "." * 6
    assert "6 partitions are nobody's (250, 251, 252, 253, 254, 255), nobody knows since when" in drawn.out
    assert "said by operators: weight 2 for @rack-1 (kept in Redis, and lost with it)" in drawn.out
    listed = lines[next(n for n, line in enumerate(lines) if line.split()[:2] == ["partition", "owner"]) + 2 :]
    assert [line.split()[0] for line in listed if line.strip()] == [str(partition) for partition in range(PARTITIONS)]
    shown = cli("ring", "show", "--json").json
    assert [node["partitions"] for node in shown["nodes"]] == [100, *([150, 0] if B < C else [0, 150])]
    assert shown["partitions"][99]["per_min"] == 6.0
    assert shown["partitions"][100]["per_min"] is None, "its owner says something else"


def test_a_plan_is_shown_and_nothing_is_done_without_consent(cli: Cli, outside: Outside, now_s: float) -> None:
    ring = Members(tuple(sorted([A, B, C])))
    load = [(p, 60.0 if node == A else 6.0, None, 300 if p < 100 else 3) for p, node in owners(ring).items()]
    outside.alive(A, "rack-1", now_s, load=load)
    outside.lease(A, range(PARTITIONS))
    plan = cli.done("ring", "plan", "--json").json
    assert plan["reached"] is True
    assert plan["level_before"] > plan["aim"] >= plan["level_after"]
    assert len(plan["moves"]) == plan["at_least"] > 20
    assert plan["unsure"] == PARTITIONS - 100
    drawn = cli.done("ring", "plan", "--apply", "--dry-run")
    assert f"after {len(plan['moves'])} moves" in drawn.out
    assert "measured for less than a minute" in drawn.err
    refused = cli("ring", "plan", "--apply")
    assert refused.code == 2
    assert "expected --yes" in refused.err
    assert outside.word(outside.keys.moves) == {}
    late = cli("ring", "plan", "--apply", "--yes", "--step", "5", "--timeout", "1", "--json")
    assert late.code == 1, "nobody there runs"
    assert (late.json["done"], late.json["left"]) == (0, len(plan["moves"]))
    assert "has not arrived within 1 s (5 of 5 have not)" in late.err
    assert outside.word(outside.keys.moves) == {}
    assert cli("ring", "plan", "--apply", "--undo").code == 2
