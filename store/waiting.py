"""What waits in Postgres: counted by tenant, target or label, what is still owed to it, and dropped. In short steps, however much it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from bucketd.store.holds import START, Place
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements
from bucketd.store.walks import by_index

_SQL = "waiting"
KINDS = ("held", "deferred", "background", "retrying")
OPEN_MAX = 10_000  # open backfills that are looked at
STEP_ROWS = 10_000  # rows a step of a drop


class Filter(NamedTuple):
    """Which runs; None means any. `labels` is JSON text; `before`: scheduled before this instant."""

    tenant: str | None = None
    target_id: int | None = None
    labels: str | None = None
    before: datetime | None = None


class Counted(NamedTuple):
    """Runs of one kind that wait, of one tenant and target, or of one value of a label."""

    tenant: str | None
    target: str | None
    label: str | None
    kind: str
    runs: int
    oldest: datetime


class Open(NamedTuple):
    """An open backfill or (`kind` settle, with a partition) a window that settling owes, and how far it has come."""

    id: int
    kind: str
    tenant: str | None
    name: str | None
    target_id: int | None
    target: str | None
    labels: Mapping[str, str]
    partition: int | None
    from_at: datetime
    until_at: datetime
    cursor_id: UUID | None
    cursor_at_s: int | None
    runs_created: int


class Share(NamedTuple):
    """Schedules of one spec that are still to come; each makes `most` runs at most (0: any). `inside`: one-shots in the range."""

    spec_id: int
    spec_kind: str
    every_s: int | None
    most: int
    schedules: int
    inside: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Runs that were dropped (or would be), by what they waited for, and the backfills that were ended."""

    held: int = 0
    deferred: int = 0
    background: int = 0
    retrying: int = 0
    backfills: tuple[int, ...] = ()

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(
            self.held + other.held,
            self.deferred + other.deferred,
            self.background + other.background,
            self.retrying + other.retrying,
            self.backfills + other.backfills,
        )

    @property
    def runs(self) -> int:
        """All kinds together."""
        return self.held + self.deferred + self.background + self.retrying


class Stage(NamedTuple):
    """How far a drop has come. `part`: held, live, background. `scan`: rows to look at. `wake_from`: as text it may be infinite."""

    part: str
    scan: int
    held: Place = START
    wake_from: datetime | str = "-infinity"


def days() -> Operation[tuple[list[tuple[datetime, datetime]], datetime]]:
    """The days that may have runs which wait, oldest first, and the cluster's clock."""
    rows = yield Query(statements(_SQL)["days"])
    return [(low, high) for low, high, _ in rows], rows[-1][2].astimezone(UTC)


def count(day: tuple[datetime, datetime], runs: Filter, label: str | None, most: int) -> Operation[list[Counted]]:
    """Runs of a day that wait, at most `most` of them, by tenant and target, or by the value of a label."""
    params = {"low": day[0], "high": day[1], "most": most, **runs._asdict()}
    if label is None:
        rows = yield from by_index(Query(statements(_SQL)["by_target"], params))
    else:
        rows = yield from by_index(Query(statements(_SQL)["by_label"], {**params, "label": label}))
    return [
        Counted(tenant, target, value, kind, runs, oldest.astimezone(UTC))
        for tenant, target, value, kind, runs, oldest in rows
    ]


def unfinished() -> Operation[list[Open]]:
    """Backfills and owed windows that are open, at most OPEN_MAX."""
    rows = yield Query(statements(_SQL)["open"], {"most": OPEN_MAX})
    return [_open(row) for row in rows]


def asked(backfill: Open, low_s: int, high_s: int, most: int) -> Operation[list[Share]]:
    """Schedules that a user's backfill still has to go through, at most `most` of them."""
    params = {
        "cursor_id": backfill.cursor_id,
        "tenant": backfill.tenant,
        "name": backfill.name,
        "target_id": backfill.target_id,
        "labels": json.dumps(dict(backfill.labels)) if backfill.labels else None,
        "low": low_s,
        "high": high_s,
        "most": most,
    }
    rows = yield Query(statements(_SQL)["asked"], params)
    return [Share(*row) for row in rows]


def owed(windows: Sequence[Open], low_s: int, high_s: int, most: int) -> Operation[list[Share]]:
    """Schedules that settling still has to judge for these windows, at most `most` of them; none whose policy is skip."""
    params = {
        "partitions": [window.partition for window in windows],
        "cursors": [window.cursor_id for window in windows],
        "low": low_s,
        "high": high_s,
        "most": most,
    }
    rows = yield Query(statements(_SQL)["owed"], params)
    return [Share(*row) for row in rows]


def end_backfills(runs: Filter, *, dry_run: bool) -> Operation[tuple[int, ...]]:
    """Ends users' backfills that are wholly inside a filter, or tells which those are."""
    rows = yield Query(statements(_SQL)["end_backfills"], {**runs._asdict(), "dry": dry_run})
    return tuple(row[0] for row in rows)


def stages(kinds: Sequence[str]) -> Iterator[Stage]:
    """The parts of a walk through runs of these kinds."""
    if "held" in kinds:
        yield Stage("held", STEP_ROWS)
    if "deferred" in kinds or "retrying" in kinds:
        yield Stage("live", STEP_ROWS)
    if "background" in kinds or "retrying" in kinds:
        yield Stage("background", STEP_ROWS)


def drop(runs: Filter, kinds: Sequence[str], stage: Stage, *, dry_run: bool) -> Operation[tuple[Dropped, Stage | None]]:
    """One step of a drop, in a transaction of the caller's: what it dropped, and where this part goes on; None: it is done.

    Safe to repeat and to be interrupted: a run that was dropped waits no more. dry_run: only counts.
    """
    params = {**runs._asdict(), "scan": stage.scan, "dry": dry_run}
    if stage.part == "held":
        params |= {"after_id": stage.held.schedule_id, "after_at": stage.held.scheduled_at}
        query = Query(statements(_SQL)["drop_held"], params)
    else:
        params |= {
            "background": stage.part == "background",
            "wake_from": stage.wake_from,
            "kinds": list(kinds),
            "most": STEP_ROWS,
        }
        query = Query(statements(_SQL)["drop_waking"], params)
    rows = yield from by_index(query)
    seen, last_id, last, *counts = rows[0]
    found = Dropped(*counts)
    if stage.part == "held":
        return found, stage._replace(held=Place(last_id, last)) if seen == stage.scan else None
    return found, _onward(stage, seen, last, 0 if dry_run else found.runs)


def note(tenant: str | None, shown: str, runs: int) -> Operation[int]:
    """Notes in the audit log that runs are dropped; the id of the note."""
    rows = yield Query(statements(_SQL)["note"], {"tenant": tenant, "name": shown, "runs": runs})
    return int(rows[0][0])


def recount(note_id: int, runs: int) -> Operation[None]:
    """Raises the count of a note."""
    yield Query(statements(_SQL)["recount"], {"audit_id": note_id, "runs": runs})


def _onward(stage: Stage, seen: int, last: datetime, changed: int) -> Stage | None:
    """Where to go on after rows up to the wake-up time `last`, of which `changed` are gone.

    As many rows with one time as a step looks at, and none that goes: only a wider look comes past them.
    """
    if changed == STEP_ROWS < stage.scan:
        return stage  # a wide look found more than a step takes
    if seen < stage.scan:
        return None
    if last != stage.wake_from:
        return stage._replace(wake_from=last, scan=STEP_ROWS)
    return stage if changed else stage._replace(scan=2 * stage.scan)


def _open(row: Row) -> Open:
    id_, kind, tenant, name, target_id, target, labels, partition, from_at, until_at, *rest = row
    cursor_id, cursor_at_s, created = rest
    return Open(
        id_, kind, tenant, name, target_id, target, json.loads(labels or "{}"), partition, from_at.astimezone(UTC),
        until_at.astimezone(UTC), cursor_id, cursor_at_s, created,
    )  # fmt: skip
