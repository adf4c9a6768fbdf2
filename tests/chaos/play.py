"""The play itself: load, faults by plan, a client that writes, and the end: everything settled, quiet, stopped, and judged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from tests.chaos import ancient, gather, recovery
from tests.chaos.checker import Facts, Verdict, judge
from tests.chaos.costs import kept, unbounded
from tests.chaos.fault import I3_S
from tests.chaos.oracle import Decided, expected
from tests.chaos.plan import Event
from tests.chaos.stage import DAY_S, Stage
from tests.chaos.watch import Watch, vitals
from tests.chaos.workload import Workload, answer, put_targets
from tests.support.edit_model import NEVER, Span
from tests.support.waiting import wait_until

Tell = Callable[[str], None]
START_S = 20  # from a standing stage to the load: all schedules are put, all processes serve
STOP_S = 45.0
KEPT_S = 45.0
HISTORY_S = 3_600  # rows of other days (a fault makes some) are not judged here


@dataclass
class Happened:
    """An event of the plan, as it went. Times of the cluster's clock."""

    event: Event
    injected_s: float
    healed_s: float = 0.0


@dataclass
class Outcome:
    """What the last line says, and the evidence behind it."""

    happened: list[Happened]
    fires: int
    verdict: Verdict
    worst_recovery_s: float
    slowest: str
    facts: Facts

    @property
    def faults_shown(self) -> list[str]:
        """Each fault as it went."""
        return [
            f"{one.injected_s:.3f} .. {one.healed_s:.3f} {one.event.kind.name} ({one.event.fault.place})"
            for one in self.happened
        ]


@dataclass
class Play:
    """One play on a stage that stands. `tell` gets a line for people at each turn. `start_s`: from the call of `run` to the begin of the
    load, on which the clock is turned. `kept_s`: how long descriptors may take to be given back; 0: nobody looks after them."""

    stage: Stage
    workload: Workload
    plan: Sequence[Event]
    tell: Tell
    start_s: float = START_S
    kept_s: float = KEPT_S
    happened: list[Happened] = field(default_factory=list)
    watch: Watch = field(default_factory=Watch)
    active: dict[str, str] = field(default_factory=dict)  # kind by place, for a screen
    leftovers: list[str] = field(default_factory=list)
    starting: Span = NEVER  # of the load, until all processes serve: nothing, if they are in time
    _places: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run(self) -> Outcome:
        """From the first process to the verdict. AssertionError: it could not even be played to its end."""
        stage = self.stage
        stage.target.script = answer
        await put_targets(stage)
        await self._set_time()
        await stage.journal.load(self.workload.schedules())
        assert stage.now() < self.workload.begin_s, (
            "the machine was too slow to put all schedules before the load begins"
        )
        await stage.start()
        await stage.ready()
        self.starting = Span(self.workload.begin_s, max(stage.now(), self.workload.begin_s))
        self.tell(f"{len(stage.journal.lives)} schedules, {len(stage.seats)} processes; the load begins")
        before = vitals(stage)
        watching = [asyncio.create_task(task) for task in (self.watch.run(stage), stage.supervise())]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.workload.write(stage, stage.journal))
                for event in self.plan:
                    group.create_task(self._play(event))
                await stage.until(self.workload.end_s)
            await self._settle()
            await self._quiet()
        finally:
            for task in watching:
                task.cancel()
        self.leftovers += [f"it crashed: {log}" for log in stage.crashes]
        self.leftovers += unbounded(self.watch.costs)
        if self.kept_s:
            with suppress(AssertionError):  # keep-alive connections to the target are the last to go
                await wait_until(lambda: not list(kept(before, vitals(stage))), self.kept_s, "descriptors")
            self.leftovers += kept(before, vitals(stage))
        rows = await gather.rows(stage, stage.journal, self.workload.begin_s - HISTORY_S)
        await self._stop()
        return self._judge(rows)

    async def _set_time(self) -> None:
        """An old schedule, and then shortly before the load."""
        await self.stage.turn_to(self.workload.begin_s - 2 * DAY_S)
        await self.stage.sql(ancient.PUT, ancient.schedule_id())
        await self.stage.turn_to(self.workload.begin_s - self.start_s)

    async def _play(self, event: Event) -> None:
        stage = self.stage
        await stage.until(self.workload.begin_s + event.at_s)
        async with AsyncExitStack() as places:
            # One before it may take longer than planned. In one order, so that nobody waits in a ring.
            for place in sorted(event.fault.hits):
                await places.enter_async_context(self._places[place])
            await self._go_through(event)

    async def _go_through(self, event: Event) -> None:
        stage = self.stage
        self.tell(f"{event.kind.name} ({event.fault.place}, {event.fault.lasts_s:.1f} s)")
        entry = Happened(event, stage.now())
        self.happened.append(entry)
        self.active[event.fault.place] = event.kind.name
        await event.fault.inject(stage)
        await asyncio.sleep(event.fault.lasts_s)
        await event.fault.heal(stage)
        entry.healed_s = stage.now()
        self.active.pop(event.fault.place, None)

    async def _settle(self) -> None:
        """All is healed; within the bound of I3 everything is settled, whoever has to come back first."""
        stage, end_s = self.stage, self.workload.end_s
        await stage.ready()
        self.tell("all is healed; waiting for the last minute to be settled")
        lowest = "select extract(epoch from min(settled_through))::float8 from bucketd.partitions"

        async def settled() -> bool:
            return bool(await stage.one(lowest) >= end_s - 1)

        try:
            await wait_until(
                settled, max(end_s, self._last_healed_s()) + I3_S - stage.now(), f"settling through {end_s}"
            )
        except AssertionError as error:
            self.leftovers.append(f"I3 {error}")

    async def _quiet(self) -> None:
        """I13: runs end, queues are empty and acknowledged, no claim is left, nobody idles in a transaction."""
        try:
            await wait_until(self._is_quiet, I3_S, "nothing to be left of the load")
        except AssertionError as error:
            self.leftovers.append(f"I13 {error}; {await self._remains()}")

    async def _is_quiet(self) -> bool:
        return not await self._remains()

    async def _remains(self) -> list[str]:
        stage = self.stage
        open_runs, claims, idle = (await stage.sql(_REMAINS))[0]
        found = [
            f"{count} {what}" for count, what in ((open_runs, "open runs"), (claims, "claims"), (idle, "idle")) if count
        ]
        for queue in stage.keys.queues:
            if count := await stage.redis.xlen(queue):
                found.append(f"{count} messages in {queue}")
            try:
                groups: Sequence[dict[str, Any]] = await stage.redis.xinfo_groups(queue)
            except ResponseError:  # no such queue
                continue
            found += [f"{group['pending']} pending in {queue}" for group in groups if group["pending"]]
        return found

    async def _stop(self) -> None:
        """A graceful end of each process, with exit code 0."""
        self.tell("stopping")
        for kind in ("node", "runner"):
            seats = [seat for name, seat in self.stage.seats.items() if name.startswith(kind)]
            for seat in seats:
                assert seat.process is not None
                seat.process.terminate()
            for seat in seats:
                assert seat.process is not None
                code = await seat.process.wait_exit(STOP_S)
                if code:
                    self.leftovers.append(f"I13 {seat.name} ended with code {code} when it was told to stop")

    def _judge(self, rows: list[Any]) -> Outcome:
        stage, workload = self.stage, self.workload
        self.tell("judging")
        lost = stage.lost_commits
        found = expected(stage.journal.all(), Decided(self.watch.looks, lost), workload.end_s)
        active = [self.starting, *(Span(one.injected_s, one.healed_s or stage.now()) for one in self.happened)]
        bounds_s = [I3_S, *(one.event.kind.recovers_s for one in self.happened)]
        troubled = [Span(span.begin_s, span.end_s + s) for span, s in zip(active, bounds_s, strict=True)]
        calls = gather.calls(stage)
        facts = Facts(found, rows, calls, self.watch.looks, troubled, workload.end_s, lost)
        verdict = judge(facts)
        for complaint in (*gather.mistaken(stage), *self.leftovers):
            verdict.add(complaint)
        worst_s, which = recovery.worst(recovery.waits(found, rows, calls, workload.end_s), active)
        if worst_s > I3_S:
            verdict.add(f"I3 waited {worst_s:.1f} s while nothing was wrong: {which}")
        fires = sum(1 for row in rows if row.attempt)
        return Outcome(self.happened, fires, verdict, worst_s, str(which), facts)

    def _last_healed_s(self) -> float:
        return max((one.healed_s for one in self.happened), default=0.0)


def last_line(outcome: Outcome) -> str:
    """For people and programs."""
    verdict = outcome.verdict
    return (
        f"faults {len(outcome.happened)}, fires {outcome.fires}, lost {len(verdict.lost)}, doubled {len(verdict.doubled)},"
        f" early {len(verdict.early)}, worst recovery {outcome.worst_recovery_s:.0f} s"
    )


_REMAINS = """
select (select count(*) from bucketd.runs where finished_at is null), (select count(*) from bucketd.claims),
    (select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%%')"""
