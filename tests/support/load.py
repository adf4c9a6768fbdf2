"""Schedules for a test, and when they have to fire by plain arithmetic."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from bucketd.client import ScheduleInput, at, every
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import Key
from tests.support.walk import walk_every

TENANT = "default"


class Load:
    """Collects schedules and their occurrences; `put` creates them all."""

    def __init__(self) -> None:
        self.inputs: list[ScheduleInput] = []
        self.due: dict[Key, set[float]] = defaultdict(set)

    @property
    def fires(self) -> int:
        """How many occurrences."""
        return sum(len(instants) for instants in self.due.values())

    def every(self, prefix: str, count: int, every_s: int, begin_s: int, end_s: int, **options: Any) -> None:
        """`count` schedules with phases spread over the period, that fire in [begin_s, end_s)."""
        for i in range(count):
            phase, name = i % every_s, f"{prefix}-{i:04}"
            bounds = {"starts_at": utc(begin_s), "ends_at": utc(end_s)}
            self._add(name, every(every_s, phase=phase), {**bounds, **options})
            self.due[options.get("tenant", TENANT), name] = seconds(every_s, phase, begin_s, end_s)

    def once(self, prefix: str, instants_s: Iterable[int], **options: Any) -> None:
        """A schedule for each instant."""
        for i, at_s in enumerate(instants_s):
            name = f"{prefix}-{i:04}"
            self._add(name, at(utc(at_s)), options)
            self.due[options.get("tenant", TENANT), name] = {float(at_s)}

    def put(self, cluster: Cluster) -> None:
        """Creates them; each is new."""
        results = cluster.client.schedules.put_many(self.inputs)
        assert {result.status for result in results} <= {"created"}, results

    def _add(self, name: str, timing: Any, options: dict[str, Any]) -> None:
        self.inputs.append(ScheduleInput(name=name, timing=timing, **{"target": TARGET, "overlap": "allow", **options}))


def seconds(every_s: int, phase: int, begin_s: float, end_s: float) -> set[float]:
    """Instants of an interval in [begin_s, end_s)."""
    return {instant.timestamp() for instant in walk_every(every_s, phase, utc(begin_s), utc(end_s))}


def utc(at_s: float) -> datetime:
    """An aware datetime of epoch seconds."""
    return datetime.fromtimestamp(at_s, UTC)


def minute_after(at_s: float) -> int:
    """The first whole minute at or after an instant."""
    return int(-(-at_s // 60)) * 60
