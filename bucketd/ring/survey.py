"""What a plan stands on: the picture of the ring, the ring's own words at that instant, and what could be undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bucketd.ring.access import Access
from bucketd.ring.picture import Picture
from bucketd.ring.plan import Plan, plan
from bucketd.ring.reading import look
from bucketd.ring.steps import Placement, placements, restored
from bucketd.scheduler.ring import owners, weights
from bucketd.store import ring as words
from bucketd.store.members import Members

SURE_S = 60  # a partition that was measured for less than a minute may have been between two fires of its crons


@dataclass(slots=True)
class Survey:
    """`plan` and `placements` are there after `level`. `unsure`: partitions that nobody has measured for a minute yet."""

    ring: Members
    picture: Picture
    undo: list[Placement]
    plan: Plan | None = None
    placements: list[Placement] = field(default_factory=list)

    @property
    def unsure(self) -> int:
        return sum(partition.measured_s < SURE_S for partition in self.picture.partitions)

    def level(self, aim: float) -> None:
        """Makes a plan for who is to own what by now, by the load as it was measured."""
        able = {node: weight for node, weight in weights(self.ring).items() if weight > 0}
        per_min = {p.id: p.per_min or 0.0 for p in self.picture.partitions}
        self.plan = plan(owners(self.ring), per_min if able else {}, able, aim=aim)
        self.placements = placements(self.ring, {move.partition: move.target for move in self.plan.moves})

    def still_holds(self, ring: Members) -> bool:
        """Whether the same nodes are alive, and the same is said of them."""
        return (ring.nodes, ring.names, ring.words) == (self.ring.nodes, self.ring.names, self.ring.words)

    def document(self, *, undo: bool) -> dict[str, Any]:
        """For programs."""
        if undo or self.plan is None:
            return {"undo": [placement._asdict() for placement in self.undo]}
        found = self.plan
        shares = weights(self.ring)
        return {
            "moves": [move._asdict() for move in found.moves],
            "nodes": [
                {"id": node, "name": self.ring.names.get(node, ""), "weight": shares[node], "before": before,
                 "after": found.after[node]}
                for node, before in found.before.items()
            ],
            "level_before": found.level_before, "level_after": found.level_after, "aim": found.aim,
            "reached": found.reached, "possible": found.possible, "at_least": found.at_least, "unsure": self.unsure,
        }  # fmt: skip


async def survey(stores: Access) -> Survey:
    """Reads it all. Raises what the stores raise."""
    ring = await stores.members()
    before = await words.remembered(stores.redis, stores.keys)
    return Survey(ring, await look(stores), restored(ring, before))
