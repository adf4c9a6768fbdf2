"""Dropping a backlog: which runs are meant, and the steps in which they go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from bucketd.client import checks
from bucketd.client.inventory import Wanted, wanted
from bucketd.client.timings import aware
from bucketd.errors import InvalidInput
from bucketd.store import waiting
from bucketd.store.operation import Operation
from bucketd.store.waiting import KINDS, Dropped, Filter, Stage


class Step(NamedTuple):
    """What is dropped so far, and what there is still to walk through; `note_id`: of the note in the audit log."""

    dropped: Dropped
    stages: tuple[Stage, ...]
    runs: Filter
    note_id: int | None = None


class Drop:
    """A drop, checked. Each step is one transaction of the caller's; whoever stops between two has dropped what they say."""

    def __init__(
        self,
        tenant: str | None,
        target: str | None,
        labels: Mapping[str, str] | None,
        kind: str | Iterable[str] | None,
        before: datetime | None,
        all: bool,
        dry_run: bool,
    ) -> None:
        filtered = bool(labels) or tenant is not None or target is not None
        if filtered == bool(all):
            raise InvalidInput("expected either a filter (tenant, target, labels) or all=True", field="all")
        runs = wanted(tenant, target, labels)
        self._wanted: Wanted = runs._replace(before=None if before is None else aware(before, "before"))
        given = KINDS if kind is None else [kind] if isinstance(kind, str) else list(kind)
        self._kinds = sorted({checks.choice(one, "kind", KINDS) for one in given})
        self._dry_run = dry_run
        self._shown = _shown(target, labels, self._kinds, self._wanted.before)

    def begin(self) -> Operation[Step]:
        """Ends the backfills that are wholly inside the filter, so that they make no more of it. Raises NotFound (target)."""
        runs = yield from self._wanted.filter()
        ended: tuple[int, ...] = ()
        if "background" in self._kinds:
            ended = yield from waiting.end_backfills(runs, dry_run=self._dry_run)
        return Step(Dropped(backfills=ended), tuple(waiting.stages(self._kinds)), runs)

    def go_on(self, step: Step) -> Operation[Step]:
        """The next step."""
        stage, *rest = step.stages
        found, onward = yield from waiting.drop(step.runs, self._kinds, stage, dry_run=self._dry_run)
        dropped, note_id = step.dropped + found, step.note_id
        if found.runs and not self._dry_run:
            if note_id is None:
                note_id = yield from waiting.note(self._wanted.tenant, self._shown, dropped.runs)
            else:
                yield from waiting.recount(note_id, dropped.runs)
        return Step(dropped, tuple(rest if onward is None else (onward, *rest)), step.runs, note_id)


def _shown(target: str | None, labels: Mapping[str, str] | None, kinds: list[str], before: datetime | None) -> str:
    """What was dropped, for whoever reads the audit log."""
    parts = ["all kinds" if len(kinds) == len(KINDS) else ", ".join(kinds)]
    parts += [f"target {target}"] if target is not None else []
    parts += [f"label {key}={value}" for key, value in (labels or {}).items()]
    parts += [f"before {before.isoformat()}"] if before is not None else []
    return "; ".join(parts)
