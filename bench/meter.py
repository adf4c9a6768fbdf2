"""Who used how much CPU: our processes, Redis, and Postgres by whom its backends serve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg

_BACKENDS = """
select pid, case when backend_type = 'client backend' then application_name else backend_type end from pg_stat_activity"""


class Meter:
    """Reads seconds of CPU by name: `scheduler`, `runner`, `target`, `redis`, `postgres: <whom>`, `bench`, `machine`."""

    def __init__(self, processes: Mapping[str, int], postgres_pid: int, connection: psycopg.Connection[Any]) -> None:
        self._processes = {pid: name.partition(" ")[0] for name, pid in processes.items()}
        self._postmaster = psutil.Process(postgres_pid)
        self._connection = connection
        self._names: dict[int, str] = {}

    def read(self) -> dict[str, float]:
        """Totals so far. A backend that ends moves its own to `postgres: ended`."""
        found: defaultdict[str, float] = defaultdict(float)
        for pid, name in self._processes.items():
            found[name] += _cpu_s(psutil.Process(pid))
        self._names |= {pid: f"postgres: {whom}" for pid, whom in self._connection.execute(_BACKENDS)}
        for child in self._postmaster.children():
            try:
                found[self._names.get(child.pid, "postgres: other")] += _cpu_s(child)
            except psutil.NoSuchProcess:
                continue
        times = self._postmaster.cpu_times()
        found["postgres: ended"] = times.children_user + times.children_system
        own = psutil.Process().cpu_times()
        found["bench"] = own.user + own.system
        whole = psutil.cpu_times()
        found["machine"] = sum(whole) - whole.idle - whole.iowait - whole.guest - whole.guest_nice
        return dict(found)


def used(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Seconds between two readings, by name, with sums: `postgres`, and `strangers` = what the machine did beside all of this."""
    spent = {name: max(0.0, seconds - before.get(name, 0.0)) for name, seconds in after.items()}
    spent["postgres"] = sum(seconds for name, seconds in spent.items() if name.startswith("postgres: "))
    ours = sum(spent.get(name, 0.0) for name in ("scheduler", "runner", "target", "redis", "postgres", "bench"))
    spent["strangers"] = max(0.0, spent.pop("machine") - ours)
    return {name: round(seconds, 3) for name, seconds in sorted(spent.items()) if seconds >= 0.005}


def _cpu_s(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
