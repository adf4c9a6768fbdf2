"""The ring at one instant: nodes with their share and load, and all partitions. Put together from what was read; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bucketd.scheduler.ring import cordoned, owners, weight
from bucketd.scheduler.traffic import Load
from bucketd.store.keys import PARTITIONS
from bucketd.store.members import Freed, Members
from bucketd.store.observed import Stand
from bucketd.store.partitions import Standing

ACTIVE, CORDONED, DRAINING, SILENT = "active", "cordoned", "draining", "silent"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: `per_min` and `backlog` are sums over what it owns; lateness is that of drains of the last minutes.

    `state`: active; cordoned; draining (cordoned, and still an owner); silent (it holds leases, and says nothing any more).
    """

    id: str
    name: str
    host: str | None
    pid: int | None
    age_s: int | None
    weight: float
    state: str
    partitions: int
    per_min: float
    late_p50_ms: int | None
    late_max_ms: int | None
    backlog: int
    settled_lag_s: float | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition: who holds its lease, who is to own it, whom an operator named for it.

    `per_min` is None while its owner has not said. `backlog`: fires that are due and in their buckets. `unowned_s`: how long it has been
    nobody's; None: it has an owner, or nobody knows since when.
    """

    id: int
    owner: str | None
    wanted: str | None
    moved_to: str | None
    epoch: int
    lease_ms: int
    per_min: float | None
    measured_s: int
    late_max_ms: int | None
    backlog: int
    settled_lag_s: float
    unowned_s: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it. `queued`: fires in the queue of each shard, on their way to runners."""

    nodes: tuple[NodeView, ...]
    partitions: tuple[PartitionView, ...]
    queued: tuple[int, ...]
    weights: Mapping[str, float]
    cordons: Mapping[str, float]
    moves: Mapping[int, str]

    @property
    def unowned(self) -> list[PartitionView]:
        """Partitions that nobody has."""
        return [partition for partition in self.partitions if partition.owner is None]


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read of both stores, at `now_s`."""

    now_s: float
    ring: Members
    infos: Mapping[str, Mapping[str, Any]]
    standings: Sequence[Standing]
    stands: Mapping[int, Stand]
    freed: Mapping[int, Freed]
    undrained: Mapping[int, int]
    queued: Sequence[int]


def picture(read: Readings) -> Picture:
    """The whole picture."""
    loads = {node: _loads(info) for node, info in read.infos.items()}
    wanted = owners(read.ring)
    partitions = tuple(_partition(p, read, wanted.get(p), loads) for p in range(PARTITIONS))
    holders = {partition.owner for partition in partitions if partition.owner}
    nodes = sorted({*read.ring.nodes, *holders}, key=lambda node: (read.ring.names.get(node, ""), node))
    views = tuple(_node(node, read, partitions) for node in nodes)
    words = read.ring.words
    return Picture(views, partitions, tuple(read.queued), words.weights, words.cordons, words.moves)


def _loads(info: Mapping[str, Any]) -> dict[int, Load]:
    """What a node said, by partition; one of another version may say something else, which counts as nothing."""
    try:
        return {load.partition: load for load in (Load(*said) for said in info.get("load", ()))}
    except TypeError:
        return {}


def _partition(id: int, read: Readings, wanted: str | None, loads: Mapping[str, Mapping[int, Load]]) -> PartitionView:
    stand, standing = read.stands[id], read.standings[id]
    said = [
        loads.get(stand.holder or "", {}),
        *loads.values(),
    ]  # a new owner says nothing yet, and its forerunner still does
    load = next((loads[id] for loads in said if id in loads), None)
    freed = read.freed.get(id)
    since_s = None if stand.holder else freed.since_s if freed else read.ring.gone.get(standing.owner or "")
    return PartitionView(
        id=id,
        owner=stand.holder,
        wanted=wanted,
        moved_to=read.ring.words.moves.get(id),
        epoch=standing.epoch,
        lease_ms=stand.lease_ms,
        per_min=load.per_min if load else None,
        measured_s=load.measured_s if load else 0,
        late_max_ms=load.late_max_ms if load else None,
        backlog=read.undrained[id],
        settled_lag_s=round(standing.settled_lag_s, 1),
        unowned_s=None if since_s is None else round(max(0.0, read.now_s - since_s), 3),
    )


def _node(node: str, read: Readings, partitions: Sequence[PartitionView]) -> NodeView:
    own = [partition for partition in partitions if partition.owner == node]
    info = read.infos.get(node, {})
    p50_ms, max_ms = info.get("late_ms") or (None, None)
    return NodeView(
        id=node,
        name=read.ring.names.get(node, ""),
        host=info.get("host"),
        pid=info.get("pid"),
        age_s=info.get("age_s"),
        weight=weight(read.ring, node),
        state=_state(node, read.ring, bool(own)),
        partitions=len(own),
        per_min=round(sum(partition.per_min or 0.0 for partition in own), 2),
        late_p50_ms=p50_ms,
        late_max_ms=max_ms,
        backlog=sum(partition.backlog for partition in own),
        settled_lag_s=max((partition.settled_lag_s for partition in own), default=None),
    )


def _state(node: str, ring: Members, owns: bool) -> str:
    if node not in ring.nodes:
        return SILENT
    if not cordoned(ring, node) and weight(ring, node) > 0:
        return ACTIVE
    return DRAINING if owns else CORDONED
