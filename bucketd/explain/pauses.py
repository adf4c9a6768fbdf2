"""The pauses of a schedule, out of the audit log and its present state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bucketd.store.evidence import Deed, Standing


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing fires in [start, end). None: it began before what the log remembers; it has no end yet.

    `until`: when it is to end by itself, or was. `lifted_at`: when it was ended (None: it stands), by itself a little before `until`.
    """

    start: datetime | None
    end: datetime | None
    actor: str | None
    reason: str | None
    until: datetime | None
    lifted_at: datetime | None = None
    lifted_by: str | None = None

    def holds(self, at: datetime) -> bool:
        """Whether an occurrence of this instant lies in it."""
        return (self.start is None or self.start <= at) and (self.end is None or at < self.end)


def pauses(schedule: Standing, deeds: Iterable[Deed], *, cut_off: bool = False) -> list[Pause]:
    """All pauses that the deeds (oldest first, of any schedule of the name) and the present state tell of, oldest first.

    cut_off: there are later deeds than these; a pause that none of them began is younger than they are.
    """
    last_at: datetime | None = None
    found: list[Pause] = []
    current: Pause | None = None
    known = False  # whether a deed has told the state yet
    for deed in deeds:
        if deed.object_id != str(schedule.id):
            continue
        last_at = deed.at
        if deed.action == "pause":
            current = Pause(deed.at, None, deed.actor, _new(deed, "pause_reason"), _instant(_new(deed, "paused_until")))
        elif deed.action == "resume":
            if current is None and not known:
                current = Pause(None, None, None, None, _instant(_old(deed, "paused_until")))
            if current is not None:
                found.append(_ended(current, deed))
            current = None
        elif "paused_until" in deed.changes or "pause_reason" in deed.changes:
            current = _edited(found, current, deed)
        known = known or deed.action in ("pause", "resume")
    if schedule.paused:
        current = current or Pause(last_at if known or cut_off else None, None, None, None, None)
        until = schedule.paused_until
        found.append(replace(current, end=until, reason=schedule.pause_reason, until=until))
    return found


def _ended(pause: Pause, deed: Deed) -> Pause:
    """By hand it ends at once, and `paused_until` goes; one that ends by itself is lifted early and keeps it."""
    by_itself = pause.until is not None and "paused_until" not in deed.changes
    end = max(deed.at, pause.until) if by_itself and pause.until else deed.at
    return replace(pause, end=end, lifted_at=deed.at, lifted_by=deed.actor)


def _edited(found: list[Pause], current: Pause | None, deed: Deed) -> Pause | None:
    """A pause that got another reason or end; of one that is lifted already: it ends now after all."""
    if current is None:
        if found and "paused_until" in deed.changes and (found[-1].end or deed.at) > deed.at:
            found[-1] = replace(found[-1], end=deed.at, lifted_at=deed.at, lifted_by=deed.actor)
        return None
    if "paused_until" in deed.changes:
        current = replace(current, until=_instant(_new(deed, "paused_until")))
    return replace(current, reason=_new(deed, "pause_reason")) if "pause_reason" in deed.changes else current


def _old(deed: Deed, column: str) -> str | None:
    value: str | None = (deed.changes.get(column) or (None, None))[0]
    return value


def _new(deed: Deed, column: str) -> str | None:
    value: str | None = (deed.changes.get(column) or (None, None))[1]
    return value


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
