"""What bucketd tells its callers: one class per decision they can take. All but the first two live in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketd.store.errors import (
    BucketdError,
    ConfigError,
    Conflict,
    InvalidInput,
    NotFound,
    SchemaError,
    StoreUnavailable,
    UnfitRedis,
)
from bucketd.timing.errors import CronError, TimingError

if TYPE_CHECKING:
    from bucketd.client.results import PutResult

__all__ = [
    "BucketdError",
    "ConfigError",
    "Conflict",
    "CronError",
    "InvalidBatch",
    "InvalidCron",
    "InvalidInput",
    "NotFound",
    "SchemaError",
    "StoreUnavailable",
    "TimingError",
    "UnfitRedis",
]


class InvalidCron(InvalidInput, CronError):
    """A cron expression or its zone cannot be used. `code` is stable and meant for programs; `token` is the offending text.

    Both an `InvalidInput` and a `CronError`; `field` is `timing.` and the part: minute, hour, dom, month, dow or tz.
    """

    def __init__(self, code: str, message: str, field: str | None = None, token: str | None = None) -> None:
        CronError.__init__(self, code, message, field, token)


class InvalidBatch(InvalidInput):
    """Some rows of a bulk put cannot be stored, and none was written. `invalid` has each of them with its reason."""

    def __init__(self, invalid: tuple[PutResult, ...], total: int) -> None:
        first = invalid[0]
        super().__init__(
            f"{len(invalid)} of {total} rows are invalid and nothing was written; the first is row {first.index}"
            f" ({first.name!r}): {first.reason}; correct them, or pass skip_invalid=True to go on without them"
        )
        self.invalid = invalid
        self.total = total

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.invalid, self.total))
