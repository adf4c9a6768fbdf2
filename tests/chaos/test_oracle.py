"""The oracle says what has to come, by writes whose outcome is worked out by hand here, and by what watermarks were seen to cover."""

from uuid import UUID

from tests.chaos.journal import Life
from tests.chaos.oracle import Decided, Expected, evidence_key, expected
from tests.chaos.watch import Look, Mark
from tests.chaos.workload import Workload
from tests.support.edit_model import History, Span, Timing
from tests.support.load import utc

ID = UUID("00000000-0000-4000-8000-000000000007")  # partition 7
T = 1_800_000_000  # a whole minute
NOTHING = Decided([])


def at_once(at_s: float) -> Span:
    return Span(at_s, at_s)


def life(timing: Timing, **options: object) -> Life:
    return Life(("default", "job"), History(ID, timing, at_once(T - 50.5)), dict(options))


def look(at_s: float, settled_s: float) -> Look:
    return Look(at_s, at_s + 0.5, [Mark(1, settled_s if partition == 7 else 0.0, 0) for partition in range(256)])


def of(one: Life, decided: Decided = NOTHING, until_s: int = T + 60) -> Expected:
    return expected([one], decided, until_s)[evidence_key(one)]


def instants(found: frozenset[float]) -> list[float]:
    return sorted(at - T for at in found)


def test_a_schedule_that_nobody_touches() -> None:
    found = of(life(Timing(every_s=20, phase_s=T % 20 + 5)))
    assert instants(found.sure) == [-35, -15, 5, 25, 45]
    assert instants(found.either) == []
    assert instants(of(life(Timing(cron="* * * * *")), until_s=T + 61).sure) == [0, 60]


def test_bounds_and_jitter() -> None:
    timing = Timing(every_s=20, phase_s=T % 20, jitter_s=15)
    found = of(life(timing, starts_at=utc(T), ends_at=utc(T + 40)))
    assert instants(found.sure) == [0, 20]
    offset = timing.offset_s(ID)
    assert 0 < offset <= 15
    assert {due_s - at for at, due_s in found.due_s.items()} == {offset}


def test_a_pause_leaves_open_only_what_was_not_seen_to_be_settled() -> None:
    one = life(Timing(every_s=10, phase_s=T % 10))
    one.history.pause(Span(T + 31, T + 32))
    one.history.resume(Span(T + 44, T + 51))
    seen = Decided([look(T + 5, T - 1), look(T + 20, T + 15), look(T + 40, T + 25)])
    found = of(one, seen)
    assert instants(found.sure) == [-50, -40, -30, -20, -10, 0, 10]
    assert instants(found.either) == [20, 30, 50], "20 was settled when the pause stood; 50 lies inside the resume"
    assert instants(of(one, Decided([look(T + 20, T + 15)], lost=[at_once(T + 20)])).sure) == [], "that history is gone"


def test_an_edit_and_a_delete() -> None:
    one = life(Timing(every_s=10, phase_s=T % 10))
    one.history.retime(Timing(every_s=10, phase_s=T % 10 + 5), Span(T + 9, T + 11))
    one.history.delete(at_once(T + 42))
    found = of(one, Decided([look(T + 30, T + 20)]))
    assert instants(found.sure) == [-50, -40, -30, -20, -10, 0, 15]
    assert instants(found.either) == [10, 25, 35]


def test_the_workload_is_drawn_by_its_seed_and_ends_in_time() -> None:
    planned = Workload(5, T, T + 120).schedules()
    assert planned == Workload(5, T, T + 120).schedules()
    assert planned != Workload(6, T, T + 120).schedules()
    assert len({(one.tenant, one.name) for one in planned}) == len(planned)
    for one in planned:
        born = Life((one.tenant, one.name), History(ID, one.timing, at_once(T - 10)), one.options)
        found = of(born, until_s=T + 3600)
        assert all(at >= T and due_s <= T + 120 for at, due_s in found.due_s.items()), one
        assert found.sure or one.tenant == "asked", one
