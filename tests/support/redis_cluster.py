"""A real Redis Cluster on loopback: three masters with a replica each, to kill, to move slots in, to ask."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bucketd.embedded import Server, start_redis
from bucketd.embedded.server import free_port
from bucketd.store.keys import SLOTS

MASTERS = 3
PASSWORD = "of-the-cluster"
NODE_TIMEOUT_MS = 1_000  # a master is believed dead after this; production has 15,000
HIGHEST_PORT = 55_535  # the bus of a node listens 10,000 above it
FORMED_S = 30.0


@dataclass(eq=False)
class Node:
    """One server of the cluster."""

    server: Server
    directory: Path
    client: "redis.Redis"
    id: str = ""

    @property
    def port(self) -> int:
        return self.server.port

    def kill9(self) -> None:
        """SIGKILL; returns when it is gone."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()

    def ask(self, *command: str | int) -> Any:
        """The answer of one command to this node alone, text as text."""
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call]


class RedisCluster:
    """Nodes 0 to 2 begin as masters, 3 to 5 as their replicas. All have one password."""

    def __init__(self, nodes: list[Node], settings: Mapping[str, str], stack: ExitStack) -> None:
        self.nodes = nodes
        self._settings = settings
        self._stack = stack

    @property
    def url(self) -> str:
        """An address with two of its nodes in it; the others are to be found."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in (self.nodes[0], self.nodes[4]))
        return f"redis+cluster://:{PASSWORD}@{hosts}/"

    def master(self, slot: int) -> Node:
        """Who serves a slot, as the first node that answers sees it."""
        for node in self.nodes:
            if not node.server.running():
                continue
            for begin, end, place, *_ in node.ask("CLUSTER", "SLOTS"):
                if begin <= slot <= end:
                    return self.at(int(place[1]))
        raise AssertionError(f"nobody serves slot {slot}")

    def at(self, port: int) -> Node:
        """The node that listens there."""
        return next(node for node in self.nodes if node.port == port)

    def masters(self) -> list[Node]:
        """The living nodes that call themselves masters."""
        return [node for node in self.nodes if node.server.running() and node.ask("ROLE")[0] == "master"]

    def restart(self, node: Node) -> None:
        """Starts a node that was killed on its old port, with what it knows of the cluster; see `whole` for what comes after."""
        node.server = self._stack.enter_context(start_redis(node.directory, port=node.port, settings=self._settings))

    def whole(self) -> bool:
        """Whether there are three masters, each with a replica that follows it, and all say that all is well."""
        roles = [node.ask("ROLE") for node in self.nodes]
        following = sum(role[0] == "slave" and role[3] == "connected" for role in roles)
        return following == MASTERS and all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes)

    def begin_move(self, slot: int) -> tuple[Node, Node]:
        """Opens the way of a slot to another master: from here on its keys are asked for in two places."""
        source = self.master(slot)
        target = next(node for node in self.masters() if node is not source)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return source, target

    def move_keys(self, slot: int, source: Node, target: Node, *, most: int = 1_000_000) -> int:
        """Moves keys of the slot one by one; how many."""
        moved = 0
        while moved < most and (keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, min(16, most - moved))):
            for key in keys:
                source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000, "AUTH", PASSWORD)
                moved += 1
        return moved

    def end_move(self, slot: int, source: Node, target: Node) -> None:
        """The slot is the target's; everybody is told."""
        for node in (target, source, *(n for n in self.masters() if n not in (source, target))):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


@contextmanager
def redis_cluster(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[RedisCluster]:
    """Three masters and three replicas that agree on who is who. Ended at the end."""
    with ExitStack() as stack:
        used = _settings(settings or {})
        nodes = [_start(stack, directory / f"node-{number}", used) for number in range(2 * MASTERS)]
        cluster = RedisCluster(nodes, used, stack)
        _form(cluster)
        yield cluster


def _settings(extra: Mapping[str, str]) -> dict[str, str]:
    return {
        "cluster-enabled": "yes",
        "cluster-config-file": "nodes.conf",
        "cluster-node-timeout": str(NODE_TIMEOUT_MS),
        "masterauth": PASSWORD,
        "repl-diskless-sync": "yes",
        "repl-diskless-sync-delay": "0",
        **extra,
    }


def _start(stack: ExitStack, directory: Path, settings: Mapping[str, str]) -> Node:
    directory.mkdir(parents=True)
    (directory / "password").write_text(PASSWORD)
    server = stack.enter_context(start_redis(directory, port=_port_with_bus(), settings=settings))
    client = redis.Redis.from_url(server.url, decode_responses=True, legacy_responses=False)
    stack.callback(client.close)
    return Node(server, directory, client)


def _port_with_bus() -> int:
    while True:
        port = free_port()
        if port <= HIGHEST_PORT:
            with socket.socket() as bus:
                try:
                    bus.bind(("127.0.0.1", port + 10_000))
                except OSError:
                    continue
            return port


def _form(cluster: RedisCluster) -> None:
    masters, replicas = cluster.nodes[:MASTERS], cluster.nodes[MASTERS:]
    for number, node in enumerate(cluster.nodes):
        node.id = node.ask("CLUSTER", "MYID")
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number < MASTERS:
            begin, end = SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS
            node.ask("CLUSTER", "ADDSLOTS", *range(begin, end))
    for node in cluster.nodes[1:]:
        masters[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    _until(lambda: all(_known(node) == 2 * MASTERS for node in cluster.nodes), "nodes to know each other")
    for master, replica in zip(masters, replicas, strict=True):
        replica.ask("CLUSTER", "REPLICATE", master.id)
    _until(lambda: all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in cluster.nodes), "the state ok")
    _until(lambda: all(node.ask("ROLE")[3] == "connected" for node in replicas), "replicas to follow")
    _until(lambda: all(len(slots) == 4 for slots in masters[0].ask("CLUSTER", "SLOTS")), "replicas to be known")


def _known(node: Node) -> int:
    return sum("handshake" not in line for line in node.ask("CLUSTER", "NODES").splitlines())


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + FORMED_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {FORMED_S:g} s for {what}")
        time.sleep(0.02)
