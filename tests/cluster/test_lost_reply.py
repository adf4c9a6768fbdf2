"""A commit whose reply is lost, in each of a runner's statements: no orphan, no double, no attempt burnt."""

import pytest

from tests.support.cluster import Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

PROMPT_S = 10.0  # well before the sweep for claims that nobody knows of, which would heal this too
CONFIRM, RESULT = b"insert into bucketd.runs", b"set status = 'succeeded'"


@pytest.mark.parametrize("marker", [CONFIRM, RESULT], ids=["confirm", "result"])
async def test_the_reply_to_a_commit_is_lost(cluster: Cluster, marker: bytes) -> None:
    async with Proxy(cluster.dsn) as proxy:
        await cluster.start(nodes=1, runners=0)
        cluster.start_runner(env={"BUCKETD_DSN": proxy.url})
        await cluster.ready()
        begin = int(cluster.now()) + 2
        load = Load()
        load.every("tick", 60, 1, begin, begin + 5)
        load.put(cluster)
        await cluster.until(begin + 1.5)
        for _ in range(3):
            await wait_until(proxy.lose_reply_after(marker).is_set, 20, f"a reply to {marker!r} to be lost")
        await cluster.until(begin + 5)
        await wait_until(
            lambda: len({run["run_id"] for run in cluster.target.runs}) >= load.fires, 30, f"{load.fires} runs"
        )
        await cluster.quiet()
        evidence = collect(cluster, load.due)
    check(evidence)
    assert {row.attempt for row in evidence.rows} == {1}
    slowest = max(call.arrived - call.at for call in evidence.calls)
    assert slowest < PROMPT_S, f"a claim in doubt was left to the sweep: a call came {slowest:.1f} s late"
