"""bucketd: a distributed scheduler for millions of tenant-defined schedules.

The public names are loaded when first used, so that `import bucketd` costs next to nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bucketd.client import AsyncClient as AsyncClient
    from bucketd.client import Client as Client
    from bucketd.client import ScheduleInput as ScheduleInput
    from bucketd.client import Timing as Timing
    from bucketd.client import at as at
    from bucketd.client import cron as cron
    from bucketd.client import every as every
    from bucketd.errors import BucketdError as BucketdError
    from bucketd.errors import ConfigError as ConfigError
    from bucketd.errors import Conflict as Conflict
    from bucketd.errors import InvalidBatch as InvalidBatch
    from bucketd.errors import InvalidCron as InvalidCron
    from bucketd.errors import InvalidInput as InvalidInput
    from bucketd.errors import NotFound as NotFound
    from bucketd.errors import SchemaError as SchemaError
    from bucketd.errors import StoreUnavailable as StoreUnavailable

_CLIENT = ("AsyncClient", "Client", "ScheduleInput", "Timing", "at", "cron", "every")
_ERRORS = (
    "BucketdError",
    "ConfigError",
    "Conflict",
    "InvalidBatch",
    "InvalidCron",
    "InvalidInput",
    "NotFound",
    "SchemaError",
    "StoreUnavailable",
)

__all__ = [
    "AsyncClient",
    "BucketdError",
    "Client",
    "ConfigError",
    "Conflict",
    "InvalidBatch",
    "InvalidCron",
    "InvalidInput",
    "NotFound",
    "ScheduleInput",
    "SchemaError",
    "StoreUnavailable",
    "Timing",
    "__version__",
    "at",
    "cron",
    "every",
]


def __getattr__(name: str) -> object:
    if name in _CLIENT:
        import bucketd.client as source
    elif name in _ERRORS:
        import bucketd.errors as source  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module 'bucketd' has no attribute {name!r}")
    found: object = getattr(source, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
