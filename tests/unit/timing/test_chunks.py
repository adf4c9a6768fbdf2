"""What a change of offset disturbs may lie in the chunk next door: with small chunks, edges fall everywhere around it."""

from datetime import UTC, datetime

import pytest

from bucketd.timing import CronSpec, fires_between, next_fire, parse_cron, previous_fire
from bucketd.timing import offsets as offsets_module
from bucketd.timing.offsets import ZoneOffsets
from bucketd.timing.zones import zone
from tests.support.walk import walk_cron
from tests.unit.timing.strategies import CHANGES

POLICIES = [("shift", "first"), ("run_after", "second"), ("skip", "both"), ("run_after", "first")]
EXPRESSIONS = ["*/10 * * * *", "20,50 0-3,23 * * *"]


def spec_with_own_table(expr: str, tz: str, gap: str, fold: str) -> CronSpec:
    spec, _ = parse_cron(expr, tz, gap=gap, fold=fold)
    spec = CronSpec(spec.minute, spec.hour, spec.days, spec.tz, spec.gap, spec.fold)  # not the shared instance
    object.__setattr__(spec, "offsets", ZoneOffsets(zone(tz)))
    return spec


@pytest.mark.parametrize("chunk_bits", [11, 13, 16])
@pytest.mark.parametrize(("tz", "change_s"), CHANGES)
def test_edges_of_chunks_do_not_show(tz: str, change_s: int, chunk_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "_CHUNK_BITS", chunk_bits)
    start_s, end_s = change_s - 27 * 3_600, change_s + 27 * 3_600
    start, end = datetime.fromtimestamp(start_s, UTC), datetime.fromtimestamp(end_s, UTC)
    for expr in EXPRESSIONS:
        for gap, fold in POLICIES:
            spec = spec_with_own_table(expr, tz, gap, fold)
            expected = [int(fire.timestamp()) for fire in walk_cron(expr, tz, start, end, gap, fold)]
            assert fires_between(spec, start_s, end_s) == expected
            assert [next_fire(spec, fire_s) for fire_s in expected[:-1]] == expected[1:]
            assert [previous_fire(spec, fire_s) for fire_s in expected[1:]] == expected[:-1]


def test_memory_of_a_scan_over_centuries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "_CHUNKS_KEPT", 16)
    table = ZoneOffsets(zone("Europe/Berlin"))
    for year in range(100):
        assert table.at(year * 31_557_600).offset_s in (3_600, 7_200)
    assert len(table._chunks) <= 16
