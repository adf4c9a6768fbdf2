"""I8 and I9 over time: a thread that reads watermarks and epochs each half second and checks what they claim."""

import threading
from bisect import bisect_right
from collections import defaultdict
from types import TracebackType
from typing import Self

import psycopg

from tests.support.cluster import Cluster
from tests.support.evidence import Due

PERIOD_S = 0.5
_READ = """
select p.partition_id, p.epoch, extract(epoch from p.settled_through)::float8,
    count(r.schedule_id), coalesce(sum(r.missed), 0)
from bucketd.partitions p
left join bucketd.runs r on get_byte(uuid_send(r.schedule_id), 15) = p.partition_id
    and r.scheduled_at + make_interval(secs => r.jitter_offset_s) <= p.settled_through
group by p.partition_id"""


class Watermarks:
    """As a context manager round the faults: on leaving it, everything that it saw must have been right."""

    def __init__(self, cluster: Cluster, due: Due) -> None:
        self._dsn = cluster.dsn
        self._due = _by_partition(cluster, due)
        self._seen: dict[int, tuple[int, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watermarks")
        self.complaints: list[str] = []
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(10)
        if kind is None:
            assert self.looks > 2
            assert not self.complaints, f"{len(self.complaints)} complaints:\n" + "\n".join(self.complaints[:12])

    def _watch(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._over.wait(PERIOD_S):
                for partition, epoch, settled, rows, missed in connection.execute(_READ).fetchall():
                    self._judge(partition, epoch, settled, rows + missed)
                self.looks += 1

    def _judge(self, partition: int, epoch: int, settled: float, accounted: int) -> None:
        before_epoch, before_settled = self._seen.get(partition, (epoch, settled))
        self._seen[partition] = (epoch, settled)
        if epoch < before_epoch:
            self.complaints.append(f"I9 the epoch of partition {partition} went back from {before_epoch} to {epoch}")
        if settled < before_settled:
            self.complaints.append(
                f"I8 partition {partition} was settled through {before_settled}, then through {settled}"
            )
        expected = bisect_right(self._due[partition], settled)
        if accounted < expected:
            self.complaints.append(
                f"I8 partition {partition} says settled through {settled}: {expected} occurrences were due, {accounted} are accounted for"
            )


def _by_partition(cluster: Cluster, due: Due) -> dict[int, list[float]]:
    """Due instants of each partition, ascending."""
    found: dict[int, list[float]] = defaultdict(list)
    for tenant, name, partition, jitter_s in cluster.sql(
        "select tenant, name, partition_id, jitter_offset_s from bucketd.schedules"
    ):
        found[partition] += [at + jitter_s for at in due.get((tenant, name), ())]
    for instants in found.values():
        instants.sort()
    return found
