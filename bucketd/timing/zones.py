"""Time zones of the pinned ``tzdata`` package, never of the system.

The system's database may be older (seen: one hour off for six zones), and ``zoneinfo.reset_tzpath`` would change it for
the whole process that bucketd is embedded in. So files are opened directly and cached here.
"""

import importlib.resources
from functools import cache
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # the package of data has no annotations

from bucketd.timing.errors import CronError

TZDATA_VERSION: str = tzdata.IANA_VERSION

_PACKAGE = importlib.resources.files("tzdata")


@cache
def zone_names() -> frozenset[str]:
    """Every name that `zone` accepts, spelled exactly."""
    return frozenset((_PACKAGE / "zones").read_text(encoding="ascii").split())


def is_zone(name: str) -> bool:
    """True if `name` is exactly a name of the package's list; no path, abbreviation, offset or other case is."""
    return isinstance(name, str) and name in zone_names()


def zone(name: str) -> ZoneInfo:
    """The zone called `name`, from the tzdata package.

    Raises `CronError` with code ``unknown_time_zone`` for anything not in the list; the file system is not asked then.
    """
    if not is_zone(name):
        raise CronError(
            "unknown_time_zone",
            f"expected a time zone of tzdata {TZDATA_VERSION}, spelled exactly like Europe/Berlin, got {_shown(name)}",
            field="tz",
            token=name if isinstance(name, str) else None,
        )
    return _open(name)


@cache
def _open(name: str) -> ZoneInfo:
    with (_PACKAGE / "zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 60 else text[:57] + "..."
