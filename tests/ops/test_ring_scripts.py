"""ops/rebalance.py and ops/drain_node.py, as an operator and a deploy run them: on nodes that work, with Ctrl-C and exit codes."""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest

from bucketd.ring.access import Access, access
from bucketd.ring.picture import Picture
from bucketd.ring.reading import look
from bucketd.store.config import Settings
from bucketd.store.keys import PARTITIONS
from tests.support.processes import ROOT, Process, Processes
from tests.support.rows import Rows
from tests.support.waiting import wait_until

HOT = 20  # partitions with a schedule a second, all of one node


class Ended(NamedTuple):
    """What a script left."""

    code: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Operator:
    """Runs scripts on the test's stores, from an empty directory."""

    def __init__(self, processes: Processes, directory: Path, stores: Access) -> None:
        self._environment = processes.environment()
        self._directory = directory
        self.stores = stores

    async def start(
        self, script: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        program = [str(ROOT / "ops" / script)] if script else ["-m", "bucketd"]
        return await asyncio.create_subprocess_exec(
            sys.executable, *program, *arguments, env={**self._environment, **(env or {})},
            cwd=self._directory, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def end(self, script: asyncio.subprocess.Process) -> Ended:
        out, err = await asyncio.wait_for(script.communicate(), 60)
        return Ended(script.returncode, out.decode(), err.decode())

    async def uncordoned(self) -> bool:
        return not (await self.stores.members()).words.cordons

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> Ended:
        return await self.end(await self.start(script, *arguments, env=env))

    async def bucketd(self, *arguments: str) -> Ended:
        return await self.run("", *arguments)

    async def moves(self) -> dict[int, str]:
        return dict((await self.stores.members()).words.moves)

    async def owned(self) -> dict[str, list[int]]:
        """Partitions by the name of their owner, once each has the one that the ring wants."""

        async def level() -> Picture | None:
            found = await look(self.stores)
            return found if all(p.owner and p.owner == p.wanted for p in found.partitions) else None

        found = await wait_until(level, 30, "a level ring")
        assert found is not None
        names = {node.id: node.name for node in found.nodes}
        return {name: [p.id for p in found.partitions if names[p.owner or ""] == name] for name in names.values()}


@pytest.mark.long
async def test_the_scripts(settings: Settings, processes: Processes, tmp_path: Path) -> None:
    nodes = {name: processes.start("scheduler", name=name, env={"BUCKETD_NODE_NAME": name}) for name in ("one", "two")}
    async with access(settings) as stores:
        operator = Operator(processes, tmp_path, stores)
        await wait_until(lambda: _alive(stores, 2), 30, "two nodes")
        before = await operator.owned()
        hot = before["one"][:HOT]
        _schedule_each_second(settings, hot)
        await wait_until(lambda: _measured(stores, hot), 30, "their load")
        await rebalancing(operator, hot)
        await draining(operator, nodes)


async def _alive(stores: Access, count: int) -> bool:
    return len((await stores.members()).nodes) == count


async def _measured(stores: Access, hot: list[int]) -> bool:
    loads = {p.id: p.per_min for p in (await look(stores)).partitions}
    return all((loads[partition] or 0) > 40 for partition in hot)


def _schedule_each_second(settings: Settings, partitions: list[int]) -> None:
    with psycopg.connect(settings.dsn.get_secret_value(), autocommit=True) as connection:
        for partition in partitions:
            Rows(connection).every(1, id=UUID(bytes=uuid4().bytes[:15] + bytes([partition])))


async def rebalancing(operator: Operator, hot: list[int]) -> None:
    shown = await operator.run("rebalance.py", "--dry-run", "--json")
    assert shown.code == 0
    plan = shown.json
    assert plan["level_before"] > 1.9 > 1.3 > plan["level_after"]
    assert {move["partition"] for move in plan["moves"]} <= set(hot)
    assert len(plan["moves"]) >= plan["at_least"] >= 4
    assert await operator.moves() == {}, "a dry run changes nothing"
    script = await operator.start("rebalance.py", "--yes", "--step", "1")
    await wait_until(operator.moves, 30, "the first move")
    script.send_signal(signal.SIGINT)
    interrupted = await operator.end(script)
    assert interrupted.code == 130, interrupted
    first = await operator.moves()
    assert f"moved: {len(first)} of " in interrupted.out
    assert len(first) < len(plan["moves"])
    assert "ends after this step" in interrupted.err
    owned = await operator.owned()
    assert set(first) <= set(owned["two"]), "the step that was begun has been ended"
    rest = (await operator.run("rebalance.py", "--yes", "--json")).json
    assert (rest["left"], rest["problem"]) == (0, None)
    assert rest["level_after"] < 1.3 < rest["level_before"]
    owned = await operator.owned()
    names = {node["id"]: node["name"] for node in rest["nodes"]}
    assert rest["moves"]
    assert all(move["partition"] in owned[names[move["target"]]] for move in rest["moves"])
    undone = await operator.run("rebalance.py", "--undo", "--yes")
    assert undone.code == 0, undone
    assert await operator.moves() == first, "what the last one moved"
    assert (await operator.run("rebalance.py", "--undo", "--yes")).out == "nothing to undo\n"
    stays = next(partition for partition in hot if partition not in first)
    moved = await operator.bucketd("ring", "move", str(stays), "two")
    assert (moved.code, moved.out) == (0, "moved: 1 of 1 partitions\n"), moved
    assert await operator.moves() == first | {stays: "@two"}
    freed = await operator.bucketd("ring", "unpin", "--all", "--json")
    assert freed.json == {"done": len(first) + 1, "left": 0, "problem": None}
    assert set(hot) <= set((await operator.owned())["one"]), "as it was"


async def draining(operator: Operator, nodes: dict[str, Process]) -> None:
    """As the preStop hook of a container: its own node, without any argument."""
    drained = await operator.run("drain_node.py", env={"BUCKETD_NODE_NAME": "two"})
    assert drained.code == 0, drained
    owned = await operator.owned()
    assert (len(owned["one"]), owned["two"]) == (PARTITIONS, [])
    last = await operator.run("drain_node.py", "one")
    assert last.code == 5
    assert "no other node may own the partitions of one" in last.err
    nodes["two"].terminate()
    assert await nodes["two"].wait_exit(15) == 0
    assert (await operator.run("drain_node.py", "two")).code == 3
    await wait_until(operator.uncordoned, 30, "the cordon of an incarnation to go with it")


@pytest.mark.parametrize("script", ["rebalance.py", "drain_node.py"])
def test_a_script_says_how_it_is_used(script: str) -> None:
    text = (ROOT / "ops" / script).read_text()
    assert f"python ops/{script}" in text
    assert "Codes: 0 " in text
