"""What the client returns: frozen values, instants in UTC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from bucketd.client.timings import Timing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items and where to go on. `cursor` is None on the last page; a page may be short, even empty, before that."""

    items: tuple[T, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule. `created`, `changed` and `warnings` tell what a put did and saw; they are empty when it was only read."""

    id: UUID
    tenant: str
    name: str
    timing: Timing
    target: str
    payload: Any
    labels: Mapping[str, str]
    timeout_s: int | None
    max_attempts: int | None  # this and the next two: None, the target's
    retry_base_s: float | None
    retry_cap_s: float | None
    overlap: str
    misfire: str
    misfire_threshold_s: int
    deadline_s: int | None
    jitter_s: int
    starts_at: datetime | None
    ends_at: datetime | None
    paused: bool
    catch_up_window_s: int
    catch_up_cap: int
    pause_reason: str | None
    paused_until: datetime | None
    max_runs: int | None
    exclude: tuple[date, ...]
    calendars: tuple[str, ...]
    revision: int
    created_at: datetime
    updated_at: datetime
    created: bool = False
    changed: bool = False
    warnings: tuple[str, ...] = ()


PutStatus = Literal["created", "updated", "unchanged", "invalid", "deleted"]


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of one row of a bulk put. `index` counts the input from 0 (-1: a schedule that pruning deleted)."""

    index: int
    status: PutStatus
    tenant: str
    name: str
    id: UUID | None = None
    reason: str | None = None
    field: str | None = None
    warnings: tuple[str, ...] = ()
