"""From occurrences without a row to the rows they get: the misfire policies, applied schedule by schedule. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from bucketd.store.settle import Candidate, NewRun
from bucketd.timing import MisfirePolicy, judge

MAX_JITTER_S = 3_600


def by_schedule(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """The candidates of each schedule; they must come ordered by schedule and instant."""
    for _, group in groupby(candidates, key=lambda candidate: candidate.schedule_id):
        yield list(group)


def is_late(slot: Candidate, now_s: float) -> bool:
    """Whether the slot is beyond its threshold, so that the policy decides."""
    return now_s - slot.at_s - slot.jitter_offset_s > slot.threshold_s


def verdicts(
    candidates: Iterable[Candidate],
    now_s: float,
    *,
    unlisted: Mapping[UUID, int] | None = None,
    covers: Mapping[UUID, int] | None = None,
) -> tuple[list[NewRun], dict[UUID, int]]:
    """(rows to write, floors to raise) for candidates ordered by schedule and instant.

    Under a hold everything due is kept as held rows, and the policy is asked at the release. `unlisted`: older missed
    slots of a schedule that were counted but are not among the candidates. `covers`: a newer missed slot of a run_once
    schedule that a runner confirmed already; it takes the count, and nothing else of the outage runs.
    """
    runs: list[NewRun] = []
    floors: dict[UUID, int] = {}
    for slots in by_schedule(candidates):
        first = slots[0]
        older = (unlisted or {}).get(first.schedule_id, 0)
        if first.held:
            counts = [older] + [0] * (len(slots) - 1)
            runs += [NewRun(slot, "held", "settle", n, False, None) for slot, n in zip(slots, counts, strict=True)]
            if older:
                floors[first.schedule_id] = first.at_s
            continue
        cover = (covers or {}).get(first.schedule_id)
        if cover is not None:
            late = [slot for slot in slots if is_late(slot, now_s) and slot.at_s < cover]
            if late:
                # The row is there: writing it again only adds the count.
                runs.append(
                    NewRun(first._replace(at_s=cover), "deferred", "settle", len(late) + older, False, "misfire")
                )
                floors[first.schedule_id] = cover
                slots, older = [slot for slot in slots if slot not in late], 0
        # An edit of the jitter changes which of two instants is due first, so each jitter is judged by itself.
        rows: list[NewRun] = []
        raised = [floors[first.schedule_id]] if first.schedule_id in floors else []
        for _, alike in groupby(slots, key=lambda slot: slot.jitter_offset_s):
            new, floor = _judge(list(alike), now_s, older)
            rows += new
            raised += [] if floor is None else [floor]
            older = 0
        rows, floor = _as_one_outage(rows)
        runs += rows
        raised += [] if floor is None else [floor]
        if raised:
            floors[first.schedule_id] = max(raised)
    return runs, floors


def _as_one_outage(rows: list[NewRun]) -> tuple[list[NewRun], int | None]:
    """A schedule's rows without those that only an edit of the jitter made more: one judgement would have counted them.

    They are counted in the first late row that stays, whose instant is their floor (None: there were none). Fresh rows stay.
    """
    late = [row for row in rows if row.reason is not None]
    running = [place for place, row in enumerate(late) if row.status == "deferred"]
    most = late[0].slot.catch_up_cap if late and late[0].slot.misfire == "catch_up" else 1
    first = running[-most:][0] if running else len(late) - 1
    if first <= 0:
        return rows, None
    kept = replace(late[first], missed=late[first].missed + sum(row.missed + 1 for row in late[:first]))
    folded = {row.slot.at_s for row in late[: first + 1]}
    rest = [row for row in rows if row.slot.at_s not in folded]
    return sorted([kept, *rest], key=lambda row: row.slot.at_s), kept.slot.at_s


def _judge(slots: list[Candidate], now_s: float, older: int) -> tuple[list[NewRun], int | None]:
    first = slots[0]
    policy = MisfirePolicy(
        first.misfire, first.threshold_s, first.deadline_s, first.catch_up_window_s, first.catch_up_cap
    )
    judgement = judge([slot.at_s for slot in slots], now_s, first.jitter_offset_s, policy, older)
    by_at = {slot.at_s: slot for slot in slots}
    runs = [
        NewRun(
            by_at[verdict.at_s],
            verdict.status,
            "catch_up" if verdict.background else "settle",
            verdict.missed,
            verdict.background,
            verdict.reason,
        )
        for verdict in judgement.verdicts
    ]
    return runs, judgement.floor_s
