"""A client of Redis Cluster that looks like a client of one server, on one redis-py client a node.

Each command goes to the master of its first key's slot; all keys of a command share a hash tag (store/keys.py). A pipeline is split
by node, its parts are sent at once, and commands of one slot stay in order. redis-py's own cluster client was measured and not
taken: a command in a pipeline of 64 costs 33 us of CPU there, 20 here and 13 with one server; its pipelines refuse scripts, repeat
what timed out, never ask again who is master where connections fail, and its ASKING may go by another connection than the command.

What is repeated: only what a node refused with MOVED or ASK, which it has not executed. All else is an answer or an error of the
command, and who called knows whether a repeat is harmless.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline, PubSub
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as TimedOut

from bucketd.store.clock import monotonic
from bucketd.store.keys import slot
from bucketd.store.log import event, warn
from bucketd.store.redis_url import Host
from bucketd.store.slots import SlotMap, key_of, read_map, tag_of

Command = tuple[tuple[Any, ...], Mapping[str, Any]]  # arguments, options of redis-py
REDIRECTS = 5  # a slot on the move: source -> target -> (moved by now) -> ..
LEFT_ALONE_S = 1.0  # a node that did not answer in time
REFRESH_S = 0.1  # between two questions who is master of what: while a master is away, every command fails


class Failing(NamedTuple):
    """A node that fails; instants of the monotonic clock."""

    since: float
    left_alone_until: float


class ClusterRedis(Redis):
    """`make_client` makes the client of one node; it is closed with this one. `seeds` are nodes to begin with."""

    def __init__(self, seeds: Iterable[Host], make_client: Callable[[Host], Redis]) -> None:
        self._seeds = list(seeds)
        self._make_client = make_client
        self._clients: dict[Host, Redis] = {host: make_client(host) for host in self._seeds}
        self._map = SlotMap()
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._failing: dict[Host, Failing] = {}
        # Encoders and callbacks come from there; commands never go by this pool itself.
        super().__init__(connection_pool=self._clients[self._seeds[0]].connection_pool)

    async def masters(self) -> dict[Host, Redis]:
        """A client of each node that serves slots, as of now. Raises RedisError if no node answers."""
        await self.refresh()
        return {host: self._client(host) for host in self._map.masters()}

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command, at the master of its key; one without a key at any node."""
        (answer,) = await self.run([(args, options)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline over all nodes. There are no transactions across them."""
        if transaction:
            raise NotImplementedError("expected pipeline(transaction=False): a cluster has no transactions over slots")
        return ClusterPipeline(self)

    def pubsub(self, **options: Any) -> PubSub:
        """At any node: the cluster hands messages on. A subscription that fails is made anew elsewhere."""
        return self._client(self._any()).pubsub(**options)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Closes the clients of all nodes."""
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients))

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """The answers in order; an element is the exception of that command. Raises RedisError if no node at all answers."""
        if not self._map:
            await self.refresh()
        slots = [None if (key := key_of(args)) is None else slot(tag_of(key)) for args, _ in commands]
        answers: list[Any] = [None] * len(commands)
        left: list[int] = list(range(len(commands)))
        asking: dict[int, Host] = {}
        for _ in range(REDIRECTS):
            groups: defaultdict[Host, list[int]] = defaultdict(list)
            anywhere = self._any()
            for i in left:
                place = slots[i]
                groups[asking.get(i) or (anywhere if place is None else self._map.master(place) or anywhere)].append(i)
            await self._send_all(groups, commands, asking, answers)
            left, asking = self._redirected(groups, answers)
            if not left:
                break
        if self._map.patched:
            await self._look_again()
        return answers

    async def _send_all(
        self, groups: dict[Host, list[int]], commands: Sequence[Command], asking: dict[int, Host], answers: list[Any]
    ) -> None:
        if len(groups) == 1:
            ((host, group),) = groups.items()
            await self._send(host, group, commands, asking, answers)
        else:
            await asyncio.gather(
                *(self._send(host, group, commands, asking, answers) for host, group in groups.items())
            )

    async def _send(
        self, host: Host, group: list[int], commands: Sequence[Command], asking: dict[int, Host], answers: list[Any]
    ) -> None:
        """Sends commands to one node in one pipeline. If the node fails, that is the answer of each."""
        failing = self._failing.get(host)
        if failing and monotonic() < failing.left_alone_until:
            await self._fail(group, answers, Disconnected(f"{host} did not answer a moment ago"))
            return
        pipeline = self._client(host).pipeline(transaction=False)
        for i in group:
            if i in asking:
                pipeline.command_stack.append((("ASKING",), {}))
            pipeline.command_stack.append(commands[i])
        try:
            found = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            self._note_failure(host, error)
            await self._fail(group, answers, error)
            return
        if failing:
            event("redis_node_recovered", node=host, after_s=monotonic() - failing.since)
            self._failing.pop(host, None)
        flags = [flag for i in group for flag in ((False, True) if i in asking else (True,))]
        for i, answer in zip(group, compress(found, flags), strict=True):
            answers[i] = answer
        if any(isinstance(answer, ClusterDownError) for answer in found):
            await self._look_again()

    async def _fail(self, group: list[int], answers: list[Any], error: Exception) -> None:
        for i in group:
            answers[i] = error
        await self._look_again()

    def _note_failure(self, host: Host, error: Exception) -> None:
        now = monotonic()
        before = self._failing.get(host)
        if before is None:
            warn("redis_node_failing", node=host, error=f"{type(error).__name__}: {error}".splitlines()[0])
        # What is refused is refused at once. What is waited for in vain would hold up the shards of the others each time.
        until = now + LEFT_ALONE_S if isinstance(error, TimedOut) else now
        self._failing[host] = Failing(before.since if before else now, until)

    def _redirected(self, sent: dict[Host, list[int]], answers: list[Any]) -> tuple[list[int], dict[int, Host]]:
        """What is to be sent elsewhere, in order, and whom of these to ask out of turn."""
        asking: dict[int, Host] = {}
        left: list[int] = []
        for host, group in sent.items():
            for i in group:
                answer = answers[i]
                if isinstance(answer, AskError):  # MovedError is one, too
                    other = Host(answer.host or host.name, answer.port)  # without a name: another port of the same
                    left.append(i)
                    if isinstance(answer, MovedError):
                        self._map.move(answer.slot_id, other)
                    else:
                        asking[i] = other
        return sorted(left), asking

    async def refresh(self) -> None:
        """Asks nodes, those that failed last at the end, who is master of what. Raises the last one's error if none answers."""
        async with self._refreshing:
            self._refreshed_at = monotonic()
            hosts = list(dict.fromkeys([*self._map.nodes, *self._seeds]))
            random.shuffle(hosts)
            failure: Exception = RedisError("no node is known")
            for host in sorted(hosts, key=lambda host: host in self._failing):
                try:
                    self._map = await read_map(self._client(host), host)
                    break
                except (RedisError, OSError) as error:
                    failure = error
            else:
                raise failure
            await self._forget()

    async def _look_again(self) -> None:
        """A refresh, if the last one is not of just now; a failure shows at the next command."""
        if not self._refreshing.locked() and monotonic() - self._refreshed_at >= REFRESH_S:
            with suppress(RedisError, OSError):
                await self.refresh()

    async def _forget(self) -> None:
        """Closes clients of nodes that have left the cluster."""
        gone = [host for host in self._clients if host not in self._map.nodes and host not in self._seeds]
        for host in gone:
            self._failing.pop(host, None)
            await self._clients.pop(host).aclose()

    def _any(self) -> Host:
        hosts = self._map.nodes or self._seeds
        return random.choice([host for host in hosts if host not in self._failing] or list(hosts))

    def _client(self, host: Host) -> Redis:
        client = self._clients.get(host)
        if client is None:
            client = self._clients[host] = self._make_client(host)
        return client


class ClusterPipeline(Pipeline):
    """Collects commands as redis-py's does, and lets the cluster's client run them."""

    def __init__(self, cluster: ClusterRedis) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, False, None)
        self._cluster = cluster

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers in order. Raises the first error, or gives each in its place."""
        commands, self.command_stack = self.command_stack, []
        answers = await self._cluster.run(commands)
        if raise_on_error:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers
