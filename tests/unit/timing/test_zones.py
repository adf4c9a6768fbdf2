"""What the tables of offsets take for granted about the pinned tzdata, looked up for every zone."""

import importlib.resources
import struct
import zoneinfo
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from bucketd.timing import TZDATA_VERSION, CronError, is_zone, zone
from bucketd.timing.offsets import _PROBE_S, offsets_of
from bucketd.timing.zones import zone_names


def explicit_changes(name: str) -> list[tuple[int, int]]:
    """(instant, offset from then on) of the version 2 block of a zone's file, read by hand; equal neighbours merged."""
    data = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    head = struct.Struct(">4s c 15x 6l")

    def counts(at: int) -> tuple[int, ...]:
        return tuple(head.unpack_from(data, at)[2:])

    utc, std, leap, times, types, chars = counts(0)
    second = head.size + times * 5 + types * 6 + chars + leap * 8 + std + utc
    _, _, _, times, types, _ = counts(second)
    at = second + head.size
    instants = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + times * 8 : at + times * 9]
    offsets = [struct.unpack_from(">l", data, at + times * 9 + kind * 6)[0] for kind in range(types)]
    found: list[tuple[int, int]] = []
    old = offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != old:
            found.append((instant, offsets[kind]))
        old = offsets[kind]
    return found


@pytest.fixture(scope="module")
def changes() -> dict[str, list[tuple[int, int]]]:
    return {name: explicit_changes(name) for name in sorted(zone_names())}


def test_every_zone_opens_and_is_the_package_s() -> None:
    assert len(zone_names()) > 500
    for name in zone_names():
        assert is_zone(name)
        assert zone(name).key == name
    assert zone("Europe/Berlin") is zone("Europe/Berlin")
    assert zone("UTC") is not zoneinfo.ZoneInfo("UTC")
    assert len(TZDATA_VERSION) == 5


@pytest.mark.parametrize(
    "name", ["utc", "PDT", "+02:00", "localtime", "../zones", "Europe", "/etc/localtime", "", "right/UTC"]
)
def test_no_other_name_is_a_zone(name: str) -> None:
    assert not is_zone(name)
    with pytest.raises(CronError):
        zone(name)


def test_no_two_changes_within_one_probe(changes: dict[str, list[tuple[int, int]]]) -> None:
    for name, found in changes.items():
        for (one, _), (other, _) in pairwise(found):
            assert other - one > _PROBE_S, name


def test_explicit_changes_end_before_2100_and_jumps_are_at_most_a_day(
    changes: dict[str, list[tuple[int, int]]],
) -> None:
    for name, found in changes.items():
        for (_, old), (instant, new) in pairwise(found):
            assert abs(new - old) <= 86_400, name
            assert instant < 4_102_444_800, name


def test_tables_hold_every_explicit_change(changes: dict[str, list[tuple[int, int]]]) -> None:
    """Every zone, every change in its file: the same instant and offset in the table."""
    seen: set[str] = set()
    for name, found in changes.items():
        if str(found) in seen:  # a link
            continue
        seen.add(str(found))
        table = offsets_of(name)
        for instant, offset_s in found:
            if instant < -5_000_000_000:
                continue
            stretch = table.at(instant)
            assert (stretch.lo_s, stretch.offset_s) == (instant, offset_s), name
            assert table.at(instant - 1).hi_s == instant
            assert table.at(instant - 1).after_s == offset_s
            assert table.at(instant - 1).offset_s == stretch.before_s


@pytest.mark.parametrize(
    "name",
    ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Gaza", "Africa/Casablanca"],
)
def test_tables_agree_with_zoneinfo_hour_by_hour(name: str) -> None:
    table, info = offsets_of(name), zone(name)
    at = datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    for _ in range(2 * 8_784):
        offset = at.astimezone(info).utcoffset()
        stretch = table.at(int(at.timestamp()))
        assert offset == timedelta(seconds=stretch.offset_s)
        assert stretch.lo_s <= at.timestamp() < stretch.hi_s
        at += timedelta(hours=1)
