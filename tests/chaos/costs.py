"""I12 and I13 by what the operating system and Redis say: memory and queues stay bounded, and what the load took is given back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.watch import Cost, Vitals

MB = 1 << 20
PROCESS_BYTES = 400 * MB  # a runner or a node of this load has 70-110 MB; a leak or an unbounded queue shows
REDIS_BYTES = 256 * MB
QUEUED = 50_000  # messages in all queues; the cap of fires is 50,000 a shard, the load has some 40 a second
MORE_DESCRIPTORS, MORE_THREADS = (
    12,
    6,
)  # connections that are made anew at any moment, and keep-alive ones to the target


def unbounded(costs: Sequence[Cost]) -> Iterator[str]:
    """What was too much at any look."""
    worst = max((vitals.rss for cost in costs for vitals in cost.seats.values()), default=0)
    if worst > PROCESS_BYTES:
        yield f"I12 a process had {worst // MB} MB"
    if (redis := max((cost.redis_bytes for cost in costs), default=0)) > REDIS_BYTES:
        yield f"I12 Redis had {redis // MB} MB"
    if (queued := max((cost.queued for cost in costs), default=0)) > QUEUED:
        yield f"I12 {queued} messages were queued"


def kept(before: Mapping[int, Vitals], after: Mapping[int, Vitals]) -> Iterator[str]:
    """What was not given back: `before` the load and `after` it, of the processes that lived through it, and of those that came
    meanwhile."""
    if not before or not after:
        return
    # One that came later is compared with what the others had when they were new.
    descriptors, threads = (max(getattr(one, name) for one in before.values()) for name in ("descriptors", "threads"))
    for pid, vitals in after.items():
        base = before.get(pid)
        if vitals.descriptors > (base.descriptors if base else descriptors) + MORE_DESCRIPTORS:
            yield f"I13 process {pid} keeps {vitals.descriptors} descriptors, at the beginning {base or descriptors}"
        if vitals.threads > (base.threads if base else threads) + MORE_THREADS:
            yield f"I13 process {pid} keeps {vitals.threads} threads, at the beginning {base or threads}"
