"""Edits within two seconds of a due instant: every kind of edit at seven distances, all around one instant of one cluster.

The rule: an edit holds from its own instant on. What was due before runs by the old schedule, what is due later by the new
one, and nothing that is past when the edit comes is fired by it. A pause, a deletion and an end drop what is due and not yet
confirmed. Between the start of an edit and its acknowledgement an instant may follow either.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from bucketd import InvalidInput
from bucketd.client import Client, Schedule, at, cron, every
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import Evidence, Key, Row, collect
from tests.support.invariants import check
from tests.support.load import TENANT, minute_after, utc
from tests.support.target import Request

OFFSETS_S = (-2.0, -1.0, -0.2, 0.05, 0.2, 1.0, 2.0)
SURE_S = 0.9  # what is due has its row by then, unless others show that the machine is slower
CONFIRM_S = 0.1  # a statement that began before the acknowledgement may read the clock a little after it
JITTER_S = 4
OTHER = "other"
HOUR = 3_600
CLIENTS = 6

ROWS_OF_DELETED = """
select r.schedule_id, extract(epoch from r.scheduled_at)::float8, r.jitter_offset_s, r.status::text, r.origin::text,
    r.attempt, r.missed, r.reason, extract(epoch from r.started_at)::float8, extract(epoch from r.finished_at)::float8,
    r.wake_at is not null, false
from bucketd.runs r where not exists (select from bucketd.schedules s where s.id = r.schedule_id)
order by r.scheduled_at, r.schedule_id"""

Edit = Callable[[Client, str], object]


@dataclass(frozen=True)
class Kind:
    """One kind of edit: how the schedule begins, what is done, and whether it runs at the instant if that came before or after.

    `drops`: what is due and not yet confirmed goes.
    """

    begin: dict[str, Any]
    edit: Edit
    if_before: bool
    if_after: bool
    drops: bool = False


@dataclass
class Case:
    """A schedule and its one edit; `began` and `done` on the cluster's clock, `ids` of the schedules under its name, in order."""

    kind: str
    offset_s: float
    rule: Kind = field(repr=False)
    began: float = 0.0
    done: float = 0.0
    ids: list[UUID] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.offset_s:+}"

    @property
    def key(self) -> Key:
        return TENANT, self.name

    def side(self, due_s: float) -> int:
        """-1: the edit was over before the instant; 1: it began after it; 0: the instant lay within."""
        return -1 if self.done < due_s else 1 if self.began > due_s else 0

    def runs(self, due_s: float, sure_s: float) -> bool | None:
        """Whether the instant runs; None: it may. sure_s: by when all that was due was confirmed."""
        rule, side = self.rule, self.side(due_s)
        if rule.drops and side >= 0 and self.began <= sure_s:
            return None
        if side:
            return rule.if_before if side < 0 else rule.if_after
        return rule.if_before if rule.if_before == rule.if_after else None


def kinds(due_s: int) -> dict[str, Kind]:
    """All kinds around an instant, which is a whole minute. Nothing but it is due for many minutes."""
    minute, hour = due_s // 60 % 60, due_s // HOUR % 24
    here, there = f"{minute} {hour} * * *", f"{(minute + 30) % 60} {hour} * * *"
    at_due, far = every(2 * HOUR, phase=due_s % (2 * HOUR)), every(2 * HOUR, phase=(due_s + HOUR) % (2 * HOUR))
    plain = {"timing": at_due}
    far_zone = "Asia/Kolkata"
    return {
        "expression away": Kind({"timing": cron(here)}, put(timing=cron(there)), False, True),
        "expression to it": Kind({"timing": cron(there)}, put(timing=cron(here)), True, False),
        "zone away": Kind({"timing": cron(here)}, put(timing=cron(here, far_zone)), False, True),
        "zone to it": Kind({"timing": cron(here, far_zone)}, put(timing=cron(here)), True, False),
        "phase away": Kind(plain, put(timing=far), False, True),
        "phase to it": Kind({"timing": far}, put(timing=at_due), True, False),
        "one-shot away": Kind({"timing": at(utc(due_s))}, put(timing=at(utc(due_s + HOUR))), False, True),
        "one-shot to it": Kind({"timing": at(utc(due_s + HOUR))}, put(timing=at(utc(due_s))), True, False),
        "jitter": Kind(plain, put(timing=at_due, jitter_s=JITTER_S), True, True),
        "jitter off": Kind({**plain, "jitter_s": JITTER_S}, put(timing=at_due), True, True),
        "payload": Kind({**plain, "payload": "old"}, put(timing=at_due, payload="new"), True, True),
        "target": Kind(plain, put(timing=at_due, target=OTHER), True, True),
        "misfire": Kind(plain, put(timing=at_due, misfire="skip"), True, True),
        "start later": Kind(plain, put(timing=at_due, starts_at=utc(due_s + HOUR)), False, True),
        "start sooner": Kind({**plain, "starts_at": utc(due_s + HOUR)}, put(timing=at_due), True, False),
        "end sooner": Kind(plain, put(timing=at_due, ends_at=utc(due_s - 1)), False, True),
        "end later": Kind({**plain, "ends_at": utc(due_s)}, put(timing=at_due), True, False),
        "pause": Kind(plain, lambda client, name: client.schedules.pause(name), False, True, drops=True),
        "resume": Kind({**plain, "paused": True}, lambda client, name: client.schedules.resume(name), True, False),
        "pause and resume": Kind(plain, pause_and_resume, True, True, drops=True),
        "delete": Kind(plain, lambda client, name: client.schedules.delete(name), False, True, drops=True),
        "delete and put": Kind(plain, partial(delete_and_put, put(**plain)), True, True, drops=True),
    }


def put(**options: Any) -> Edit:
    """A put as given; one that the client refuses, since its instant is past, changes nothing."""

    def edit(client: Client, name: str) -> object:
        with suppress(InvalidInput):
            return client.schedules.put(name, **{"target": TARGET, "overlap": "allow", **options})
        return None

    return edit


def pause_and_resume(client: Client, name: str) -> None:
    client.schedules.pause(name)
    client.schedules.resume(name)


def delete_and_put(again: Edit, client: Client, name: str) -> object:
    client.schedules.delete(name)
    return again(client, name)


@pytest.mark.timeout(180)
async def test_edits_around_a_due_instant(cluster: Cluster) -> None:
    cluster.begin_at_second(42)
    cluster.client.targets.put(OTHER, cluster.target.url + "/other")
    await cluster.start(nodes=2, runners=2)
    due_s = minute_after(cluster.now() + 6)
    cases = [Case(kind, offset_s, rule) for kind, rule in kinds(due_s).items() for offset_s in OFFSETS_S]
    await edit_all(cluster, cases, due_s)
    await cluster.until(due_s + JITTER_S + SURE_S)
    await cluster.target.wait_runs(sum(not case.rule.drops and bool(case.runs(due_s, due_s)) for case in cases), 20)
    await cluster.quiet()
    found, gone = collect(cluster, {}), rows_of_deleted(cluster, cases)
    sure_s = max(due_s + SURE_S, *((row.started or 0) - row.jitter_s for row in found.rows))
    must = {case.key: {float(due_s)} for case in cases if case.runs(due_s, sure_s) is True}
    may = {case.key: {float(due_s)} for case in cases if case.runs(due_s, sure_s) is None}
    evidence = replace(found, due=must, either_way=may, rows=[*found.rows, *gone])
    check(evidence)
    wrong = [line for case in cases for line in complain(cluster, case, evidence, gone, due_s)]
    assert not wrong, "\n".join(wrong)
    await settled_without_a_word(cluster, cases, due_s)


async def edit_all(cluster: Cluster, cases: list[Case], due_s: int) -> None:
    """Creates the schedules, then edits each at its time, all from threads; returns when the last edit is done."""
    url, prefix = cluster.settings.redis_url.get_secret_value(), cluster.settings.redis_prefix
    clients = [Client(cluster.dsn, redis_url=url, redis_prefix=prefix) for _ in range(CLIENTS)]
    try:
        with ThreadPoolExecutor(len(cases)) as threads:
            loop = asyncio.get_running_loop()
            for step in (partial(create, cluster), partial(edit_in_time, cluster, due_s)):
                waiting = [loop.run_in_executor(threads, step, clients[i % CLIENTS], c) for i, c in enumerate(cases)]
                await asyncio.gather(*waiting)
    finally:
        for client in clients:
            client.close()


def create(cluster: Cluster, client: Client, case: Case) -> None:
    """The schedule as it begins. Where jitter is to be taken away there is some: an edit then falls between instant and due."""
    for _ in range(40):
        case.ids = [client.schedules.put(case.name, **{"target": TARGET, "overlap": "allow", **case.rule.begin}).id]
        jitter = cluster.one("select jitter_offset_s from bucketd.schedules where id = %s", case.ids[0])
        if jitter >= JITTER_S // 2 or "jitter_s" not in case.rule.begin:
            return
        client.schedules.delete(case.name)
    raise AssertionError("expected some id with a jitter")


def edit_in_time(cluster: Cluster, due_s: int, client: Client, case: Case) -> None:
    """Waits for the case's instant: time itself is the condition here."""
    time.sleep(max(due_s + case.offset_s - cluster.now(), 0))
    case.began = cluster.now()
    answer = case.rule.edit(client, case.name)
    case.done = cluster.now()
    if isinstance(answer, Schedule) and answer.id not in case.ids:
        case.ids.append(answer.id)


def complain(cluster: Cluster, case: Case, evidence: Evidence, gone: list[Row], due_s: int) -> Iterator[str]:
    """What is wrong with one case, beyond its being there or not."""
    side = case.side(due_s)
    rows = [row for row in evidence.rows if row.key == case.key]
    if abs(case.offset_s) == max(OFFSETS_S) and side != (1 if case.offset_s > 0 else -1):
        yield f"the machine was too slow to say anything: {case}"
    if len(rows) > 1:
        yield f"{len(rows)} rows: {case}"
    if any(row.status != "succeeded" and row.reason != "deleted" for row in rows):
        yield f"expected a success, got {rows}: {case}"
    for row in rows:
        if case.rule.drops and side > 0 and (row.started or 0) > case.done + CONFIRM_S:
            yield f"I5 started {(row.started or 0) - case.done:.3f} s after the acknowledgement: {case}"
        if case.kind == "delete and put" and side and (row in gone) != (side > 0):
            yield f"it ran as the {'old' if row in gone else 'new'} schedule: {case}"
        if case.kind.startswith("jitter") and row.jitter_s not in jitters(cluster, case, side):
            yield f"jitter of {row.jitter_s} s, expected one of {jitters(cluster, case, side)}: {case}"
    for request in cluster.target.requests:
        for run in request.runs:
            if run["schedule"] == case.name:
                yield from complain_of_call(cluster, case, request, run, side)


def complain_of_call(cluster: Cluster, case: Case, request: Request, run: dict[str, Any], side: int) -> Iterator[str]:
    """A call shows the schedule as it was when the run was confirmed."""
    early = request.wall_s + cluster.offset_s < case.began
    payload, to_other = run["payload"], request.path.endswith("/other")
    if case.kind == "payload" and ((side < 0 and payload != "new") or (early and payload != "old")):
        yield f"called with payload {payload!r}: {case}"
    if case.kind == "target" and ((side < 0 and not to_other) or (early and to_other)):
        yield f"called at {request.path}: {case}"


def jitters(cluster: Cluster, case: Case, side: int) -> set[int]:
    """The jitter, in seconds, that the run may have had: of the old timing, of the new one, or of either."""
    (old,) = cluster.sql("select jitter_offset_s from bucketd.schedule_versions where schedule_id = %s", case.ids[0])[0]
    (new,) = cluster.sql("select jitter_offset_s from bucketd.schedules where id = %s", case.ids[0])[0]
    return {new} if side < 0 else {old} if side > 0 else {old, new}


async def settled_without_a_word(cluster: Cluster, cases: list[Case], due_s: int) -> None:
    """Settling looks at the instant from behind, as the last word on it. It finds nothing to add: no ghost, no loss."""
    known, calls = [*collect(cluster, {}).rows, *rows_of_deleted(cluster, cases)], len(cluster.target.requests)
    for process in (*cluster.nodes, *cluster.runners):
        process.terminate()
    for process in (*cluster.nodes, *cluster.runners):
        await process.wait_exit(20)
    cluster.turn_clock(cluster.offset_s + 75)
    await cluster.start(nodes=1, runners=1)
    await cluster.settled(due_s + 60, 30)
    await cluster.quiet()
    assert [*collect(cluster, {}).rows, *rows_of_deleted(cluster, cases)] == known
    assert len(cluster.target.requests) == calls


def rows_of_deleted(cluster: Cluster, cases: list[Case]) -> list[Row]:
    """Runs of schedules that are no more: they stay in the history."""
    keys = {id: case.key for case in cases for id in case.ids}
    found: list[tuple[Any, ...]] = [(keys[id], *fields, ()) for id, *fields in cluster.sql(ROWS_OF_DELETED)]
    return [Row(*fields) for fields in found]
