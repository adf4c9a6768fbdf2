"""Processor time of the planner's parts, by who spent it: the node (this process), Postgres, Redis."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any

import psutil  # type: ignore[import-untyped]

Spent = dict[str, float]


class Parts:
    """Seconds by part and process. Postgres and Redis are read in ticks of 10 ms: look at sums over several minutes."""

    def __init__(self, postgres_pid: int, redis_pid: int) -> None:
        self._postmaster, self._redis = psutil.Process(postgres_pid), psutil.Process(redis_pid)
        self._backends: list[Any] = []
        self._reading_s = 0.0  # of this process, spent in here
        self.spent: defaultdict[str, Spent] = defaultdict(lambda: {"node": 0.0, "postgres": 0.0, "redis": 0.0})
        self._undo: list[tuple[Any, str, Any]] = []

    def watch(self, part: str, owner: Any, name: str) -> None:
        """Measures each call of `owner.name` from now on, until `close`."""
        called: Callable[..., Any] = getattr(owner, name)
        self._undo.append((owner, name, called))
        setattr(owner, name, self._waiting(part, called) if iscoroutinefunction(called) else self._plain(part, called))

    def close(self) -> None:
        """Puts back what `watch` has replaced."""
        while self._undo:
            setattr(*self._undo.pop())

    def _waiting(self, part: str, called: Callable[..., Any]) -> Callable[..., Any]:
        async def measured(*args: Any, **named: Any) -> Any:
            with self._measured(part):
                return await called(*args, **named)

        return measured

    def _plain(self, part: str, called: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **named: Any) -> Any:
            with self._measured(part):
                return called(*args, **named)

        return measured

    @contextmanager
    def _measured(self, part: str) -> Iterator[None]:
        before = self.read()
        yield
        for who, seconds in self.read().items():
            self.spent[part][who] += seconds - before[who]

    def find(self) -> None:
        """Looks which processes Postgres has by now; the same ones are read until the next time."""
        self._backends = self._postmaster.children()

    def read(self) -> Spent:
        """Totals so far, without the reading itself."""
        begun = time.process_time()
        postgres, redis = sum(map(_cpu_s, self._backends)), _cpu_s(self._redis)
        ended = time.process_time()
        self._reading_s += ended - begun
        return {"node": ended - self._reading_s, "postgres": postgres, "redis": redis}


def per_minute(spent: Mapping[str, Spent], whole: Spent, minutes: int) -> dict[str, dict[str, float]]:
    """Milliseconds a minute by part, and what is in no part: `rest`."""
    rest = {who: whole[who] - sum(part[who] for part in spent.values()) for who in whole}
    return {
        part: {who: round(max(0.0, s) / minutes * 1_000, 1) for who, s in found.items()}
        for part, found in (*spent.items(), ("rest", rest), ("all", whole))
    }


def _cpu_s(process: Any) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
