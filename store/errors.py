"""What a caller of any part of bucketd can be told: one class per decision it can take.

`exit_code` is what a process of ours ends with when the error ends it; bucketd/cli/exits.py says what the numbers mean.
"""

from typing import ClassVar


class BucketdError(Exception):
    """Base of every error that bucketd raises on purpose. The text says what was expected, what came, and what to do."""

    exit_code: ClassVar[int] = 2


class ConfigError(BucketdError):
    """A setting is missing, unknown or malformed: fix the environment or the file; retrying does not help."""


class InvalidInput(BucketdError, ValueError):
    """What the caller passed cannot be stored. Nothing was changed.

    `field` names the offending field where there is one.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotFound(BucketdError, LookupError):
    """No such schedule, target, run, .. by that name or id."""

    exit_code = 3


class Conflict(BucketdError):
    """The state of the thing forbids the call (already finished, already replayed, ..). Read it again and decide."""

    exit_code = 5


class SchemaError(BucketdError):
    """The database is not migrated, or is newer than this code, or the server is too old."""

    exit_code = 4


class StoreUnavailable(BucketdError):
    """Postgres or Redis cannot be reached or refused the login: check the address, then retry."""

    exit_code = 4


class UnfitRedis(ConfigError):
    """Redis would lose fires silently: it evicts keys, or it is too old."""

    exit_code = 4
