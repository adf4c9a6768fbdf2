"""Putting schedules: resolve (existing id, H, phase, spec, target), then one upsert. Idempotent by (tenant, name)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from bucketd.client import exclusions, steps
from bucketd.client.inputs import Draft, ScheduleInput, check, check_not_past
from bucketd.client.results import PutResult, PutStatus, Schedule
from bucketd.client.timings import At, spec_of
from bucketd.client.views import schedule
from bucketd.errors import Conflict, InvalidBatch, InvalidInput
from bucketd.store import schedules, specs, targets
from bucketd.store.model import new_ids
from bucketd.store.operation import Operation
from bucketd.store.schedules import Found, ScheduleRow

CHUNK = 10_000
# Another writer may create the same name between our look and our write; then the id, and with it H, was the wrong one.
_TRIES = 4


def put(draft: Draft, if_revision: int | None = None) -> Operation[Schedule]:
    """Puts one schedule. Raises InvalidInput (an unknown target or calendar, a one-shot in the past), Conflict (`if_revision`)."""
    wanted = steps.revision(if_revision)
    for _ in range(_TRIES):
        target_ids = yield from targets.ids([draft.target])
        excluded = yield from exclusions.days([draft])
        found = (yield from schedules.find([draft.key])).get(0)
        _check_target(draft, target_ids)
        exclusions.check(draft, excluded)
        if wanted is not None and wanted != (found.revision if found else 0):
            raise steps.differs(draft.name, wanted, found.revision if found else 0)
        now_s = (yield from schedules.now_s()) if draft.counts_from_now else 0.0
        if isinstance(draft.timing, At):
            check_not_past(draft, found, now_s)
        schedule_id = found.id if found else next(new_ids(1))
        spec = spec_of(draft.timing, schedule_id, exclusions.of(draft, excluded))
        spec_ids = yield from specs.intern([spec])
        row = draft.row(schedule_id, found, target_ids[draft.target], spec, spec_ids[spec.rule], now_s)
        revision = yield from schedules.put(row, wanted or None)
        stored = yield from schedules.get(draft.tenant, draft.name)
        if wanted and revision == 1:
            # It was deleted while we waited for its row. In the caller's transaction nothing else undoes this.
            yield from schedules.delete([schedule_id])
            raise steps.differs(draft.name, wanted, 0)
        if wanted is not None and revision is None and stored.revision != wanted:
            raise steps.differs(draft.name, wanted, stored.revision)
        late = revision is not None and draft.recounted(row, found, spec, now_s, stored.timing_from_s)
        if late:
            yield from schedules.put(late)
            stored = yield from schedules.get(draft.tenant, draft.name)
        if stored.id == schedule_id:
            return replace(
                schedule(stored), created=revision == 1, changed=revision is not None, warnings=draft.warnings
            )
    raise Conflict(f"schedule {draft.name!r} is being deleted and created by others all the time; try again")


class Batch:
    """The rows of a bulk put, checked. `prepare` asks the database once; then the chunks are written; then there is a result for each."""

    def __init__(self, inputs: Sequence[ScheduleInput | InvalidInput]) -> None:
        self.total = len(inputs)
        self.drafts: dict[int, Draft] = {}
        self.target_ids: dict[str, int] = {}
        self._refused: dict[int, PutResult] = {}
        self._done: dict[int, PutResult] = {}
        seen: set[tuple[str, str]] = set()
        for index, given in enumerate(inputs):
            try:
                if isinstance(given, InvalidInput):
                    raise given
                draft = check(given)
                key = draft.tenant, draft.name
                if key in seen:
                    raise InvalidInput(
                        f"expected each name once in a batch, got {key[1]!r} of tenant {key[0]!r} again", field="name"
                    )
            except InvalidInput as error:
                self._refused[index] = _invalid(index, given, error)
                continue
            seen.add(key)
            self.drafts[index] = draft

    def prepare(self) -> Operation[None]:
        """Checks what only the database knows: targets, calendars, and one-shots that are gone."""
        self.target_ids = yield from targets.ids(draft.target for draft in self.drafts.values())
        excluded = yield from exclusions.days(self.drafts.values())
        now_s = yield from schedules.now_s()
        past = [
            i
            for i, draft in self.drafts.items()
            if isinstance(draft.timing, At) and draft.timing.at.timestamp() <= now_s
        ]
        found = (yield from schedules.find([self.drafts[i].key for i in past])) if past else {}
        gone = {i: found.get(place) for place, i in enumerate(past)}
        for index, draft in list(self.drafts.items()):
            try:
                _check_target(draft, self.target_ids)
                exclusions.check(draft, excluded)
                if index in gone:
                    check_not_past(draft, gone[index], now_s)
            except InvalidInput as error:
                self._refuse(index, error)

    def refuse_invalid(self) -> None:
        """Raises InvalidBatch if any row is invalid."""
        invalid = self.invalid
        if invalid:
            raise InvalidBatch(invalid, self.total)

    @property
    def invalid(self) -> tuple[PutResult, ...]:
        """The refused rows, in order."""
        return tuple(self._refused[index] for index in sorted(self._refused))

    @property
    def results(self) -> list[PutResult]:
        """A result for each row, in order; the chunks must be written."""
        known = self._refused | self._done
        return [known[index] for index in range(self.total)]

    def chunks(self) -> list[list[int]]:
        """Places of the rows to write together: by (tenant, name), and those that say whether they are paused apart."""
        chunks = []
        for said in (False, True):
            places = [i for i, draft in self.drafts.items() if (draft.paused is not None) == said]
            places.sort(key=lambda i: self.drafts[i].key)
            chunks += [places[start : start + CHUNK] for start in range(0, len(places), CHUNK)]
        return chunks

    def put_chunk(self, places: Sequence[int]) -> Operation[dict[int, PutResult]]:
        """Writes a chunk, in one transaction of the caller's; the results by place. Safe to repeat."""
        done: dict[int, PutResult] = {}
        open_places = list(places)
        for _ in range(_TRIES):
            found = yield from schedules.find([self.drafts[i].key for i in open_places])
            existing = {i: found.get(place) for place, i in enumerate(open_places)}
            now_s = yield from schedules.now_s()
            rows, made_of, refused = yield from self._resolve(existing, now_s)
            done |= refused
            written = (yield from schedules.put_chunk(list(rows.values()))) if rows else {}
            fresh = {index: row for index, row in rows.items() if row.max_runs is not None and row.id in written}
            if fresh:
                yield from self._recount(fresh, existing, made_of, now_s)
            raced = []
            for index, row in rows.items():
                revision = written.get(row.id)
                if revision is None and existing[index] is None:
                    raced.append(index)
                    continue
                status: PutStatus = "unchanged" if revision is None else "created" if revision == 1 else "updated"
                done[index] = PutResult(
                    index, status, row.tenant, row.name, row.id, None, None, self.drafts[index].warnings
                )
            open_places = raced
            if not raced:
                return done
        raise Conflict(f"{len(open_places)} schedules are being deleted and created by others all the time; try again")

    def accept(self, done: dict[int, PutResult]) -> None:
        """Takes the results of a chunk that is committed."""
        self._done |= done

    def kept_keys(self) -> tuple[list[str], set[tuple[str, str]]]:
        """(tenants, keys) that the batch names, invalid rows included. Raises InvalidInput if a row does not say its name."""
        for result in self.invalid:
            if not result.name or not result.tenant:
                raise InvalidInput(
                    f"expected the tenant and name of row {result.index} to be readable, since pruning would delete what it stands for:"
                    f" {result.reason}",
                    field="name",
                )
        keys = {draft.key for draft in self.drafts.values()} | {(result.tenant, result.name) for result in self.invalid}
        return sorted({tenant for tenant, _ in keys}), keys

    def _resolve(
        self, existing: dict[int, Found | None], now_s: float
    ) -> Operation[tuple[dict[int, ScheduleRow], dict[int, specs.SpecRow], dict[int, PutResult]]]:
        """Rows to write, what their specs are, and who is refused, by place."""
        ids: dict[int, UUID] = {}
        wanted: dict[int, specs.SpecRow] = {}
        refused: dict[int, PutResult] = {}
        fresh = new_ids(len(existing))
        # Again, in the chunk's own transaction: what a calendar says now holds until the rows are written.
        excluded = yield from exclusions.days(self.drafts[index] for index in existing)
        for index, found in existing.items():
            ids[index] = found.id if found else next(fresh)
            draft = self.drafts[index]
            try:
                exclusions.check(draft, excluded)
                wanted[index] = spec_of(draft.timing, ids[index], exclusions.of(draft, excluded))
            except InvalidInput as error:  # an H that meets no date with this id, a calendar that is gone by now
                refused[index] = _invalid(index, draft, error)
        spec_ids = yield from specs.intern(wanted.values())
        rows = {}
        for index, spec in wanted.items():
            draft = self.drafts[index]
            target_id = self.target_ids[draft.target]
            rows[index] = draft.row(ids[index], existing[index], target_id, spec, spec_ids[spec.rule], now_s)
        return rows, wanted, refused

    def _recount(
        self,
        rows: dict[int, ScheduleRow],
        existing: dict[int, Found | None],
        made_of: dict[int, specs.SpecRow],
        now_s: float,
    ) -> Operation[None]:
        """Writes rows with max_runs again that an occurrence has slipped by while they were written."""
        until_s = yield from schedules.now_s()
        late = []
        for index, row in rows.items():
            known = row, existing[index], made_of[index], now_s
            if self.drafts[index].recounted(*known, until_s):
                stored = yield from schedules.get(row.tenant, row.name)
                if again := self.drafts[index].recounted(*known, stored.timing_from_s):
                    late.append(again)
        if late:
            yield from schedules.put_chunk(late)

    def _refuse(self, index: int, error: InvalidInput) -> None:
        self._refused[index] = _invalid(index, self.drafts.pop(index), error)


def prune(tenants: Sequence[str], keep: set[tuple[str, str]]) -> Operation[list[PutResult]]:
    """The schedules of these tenants that `keep` does not name, as results; nothing is deleted here."""
    surplus: list[PutResult] = []
    after: tuple[str, str] | None = None
    while True:
        keys = yield from schedules.keys_after(tenants, after, CHUNK)
        surplus += [
            PutResult(-1, "deleted", tenant, name, id) for tenant, name, id in keys if (tenant, name) not in keep
        ]
        if len(keys) < CHUNK:
            return surplus
        after = keys[-1][:2]


def delete_all(ids: Iterable[UUID | None]) -> Operation[int]:
    """Deletes schedules by id and cancels their unfinished runs."""
    return (yield from schedules.delete([id for id in ids if id is not None]))


def _check_target(draft: Draft, target_ids: dict[str, int]) -> None:
    if draft.target not in target_ids:
        raise InvalidInput(
            f"expected the name of a target, got {draft.target!r}, which does not exist; create it with targets.put first",
            field="target",
        )


def _invalid(index: int, given: object, error: InvalidInput) -> PutResult:
    # For an input that is an error itself its maker may have noted whose it is.
    tenant, name = getattr(given, "tenant", ""), getattr(given, "name", "")
    return PutResult(
        index, "invalid", tenant if isinstance(tenant, str) else "", name if isinstance(name, str) else "",
        reason=str(error), field=error.field,
    )  # fmt: skip
