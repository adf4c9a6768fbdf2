"""Time zones of the pinned ``tzdata`` package, never of the system.

The system's database may be older (seen: one hour off for six zones), and ``zoneinfo.reset_tzpath`` would change it for
the whole process that bucketd is embedded in. So files are opened directly and cached here.
"""

import importlib.resources
import re
from functools import cache
from io import BytesIO
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # the package of data has no annotations

from bucketd.timing.errors import CronError

TZDATA_VERSION: str = tzdata.IANA_VERSION

_RELEASE = re.compile(r"([0-9]{4})([a-z]+)")
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


def zone_data(name: str) -> bytes:
    """The TZif file of the zone called `name`; raises as `zone` does."""
    zone(name)
    return _file(name)


def zone_of(data: bytes, name: str) -> ZoneInfo:
    """A zone called `name` that follows other data: a TZif file, say of an older release. Raises ValueError if it is none."""
    try:
        return ZoneInfo.from_file(BytesIO(data), key=name)
    except Exception as error:  # struct.error, IndexError, UnicodeDecodeError, ..: whatever a broken file does
        raise ValueError(f"expected a TZif file for {_shown(name)}, got {len(data)} bytes that are none") from error


def release_order(version: str) -> tuple[int, int, str]:
    """Orders releases of tzdata: 2025b < 2026a < 2026z < 2026aa. Raises ValueError for text that names none."""
    match = _RELEASE.fullmatch(version)
    if match is None:
        raise ValueError(f"expected a release of tzdata such as 2026f, got {_shown(version)}")
    return int(match[1]), len(match[2]), match[2]


@cache
def _open(name: str) -> ZoneInfo:
    return ZoneInfo.from_file(BytesIO(_file(name)), key=name)


def _file(name: str) -> bytes:
    return (_PACKAGE / "zoneinfo").joinpath(*name.split("/")).read_bytes()


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 60 else text[:57] + "..."
