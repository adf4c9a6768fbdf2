"""Which runs go into a request: pure."""

from dataclasses import replace
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.runner.collector import BODY_BYTES, Collector
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.store.runners import CallTarget
from tests.runner.test_retry import TARGET

CLAIM = Claim(Incarnation(uuid4()))
BATCH = replace(TARGET, batch_max=3, batch_linger_ms=1000)
APART = replace(BATCH, batch_by_tenant=True)


def runs(tenant: str, number: int, body: str = "{}") -> list[Run]:
    return [Run(b"x" * 16, b"y" * 8, 1, CLAIM, tenant, 1, None, uuid4().hex, body) for _ in range(number)]


def collector(target: CallTarget, *added: tuple[float, list[Run]]) -> Collector:
    made = Collector(target)
    for at, some in added:
        made.add(some, at)
    return made


def test_a_full_request_goes_at_once_and_the_rest_lingers() -> None:
    some = runs("a", 5)
    waiting = collector(BATCH, (10.0, some))
    assert waiting.crowd == 5
    assert waiting.take(10.0, pressed=False) == (some[:3], -1.0)
    assert waiting.crowd == 0
    assert waiting.take(10.9, pressed=False) is None
    assert waiting.due_at() == 11.0
    assert waiting.take(11.5, pressed=False) == (some[3:], 0.5)
    assert waiting.due_at() is None


def test_pressure_ends_the_lingering() -> None:
    some = runs("a", 1)
    assert collector(BATCH, (10.0, some)).take(10.0, pressed=True) == (some, -1.0)


def test_a_request_has_one_tenant_and_a_crowd_passes_nobody_over() -> None:
    crowd, single = runs("crowd", 9), runs("single", 1)
    waiting = collector(APART, (10.0, crowd), (10.5, single))
    taken = []
    while (found := waiting.take(12.0, pressed=False)) is not None:
        taken.append([run.tenant for run in found[0]])
    assert taken == [["crowd"] * 3, ["single"], ["crowd"] * 3, ["crowd"] * 3]


def test_large_bodies_make_small_requests() -> None:
    some = runs("a", 3, "x" * (BODY_BYTES // 2 + 1))
    waiting = collector(BATCH, (10.0, some))
    assert waiting.take(20.0, pressed=False) == (some[:1], 9.0)
    huge = runs("a", 1, "x" * (2 * BODY_BYTES))
    assert collector(BATCH, (10.0, huge)).take(20.0, pressed=False) == (huge, 9.0)


def test_a_target_that_changes_sorts_what_waits_anew() -> None:
    some = runs("a", 2) + runs("b", 2)
    waiting = collector(BATCH, (10.0, some))
    assert waiting.crowd == 4
    waiting.aim(APART, 11.0)
    assert waiting.crowd == 0
    assert waiting.take(12.5, pressed=False) == (some[:2], 0.5)
    waiting.aim(replace(APART, batch_max=2), 12.5)
    assert waiting.crowd == 2
    assert waiting.take(12.5, pressed=False) == (some[2:], -1.0)


def test_only_the_late_are_taken_back() -> None:
    early, late = runs("early", 4), runs("late", 1)
    waiting = collector(APART, (10.0, early), (13.0, late))
    assert waiting.take_late(12.9, 2.0) == []
    assert waiting.take_late(13.0, 2.0) == early
    assert waiting.crowd == 0
    assert waiting.take_all() == late
    assert waiting.due_at() is None


@settings(deadline=None)
@given(
    adds=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.booleans()), max_size=12),
    apart=st.booleans(),
)
def test_every_run_goes_once(adds: list[tuple[str, int, bool]], apart: bool) -> None:
    waiting, put, out = Collector(APART if apart else BATCH), [], []
    for now, (tenant, number, take) in enumerate(adds):
        some = runs(tenant, number)
        put += some
        waiting.add(some, float(now))
        if take and (found := waiting.take(float(now), pressed=False)) is not None:
            out.append(found[0])
    while (found := waiting.take(1e9, pressed=True)) is not None:
        out.append(found[0])
    assert all(1 <= len(batch) <= 3 and (not apart or len({run.tenant for run in batch}) == 1) for batch in out)
    assert sorted(run.run_id for batch in out for run in batch) == sorted(run.run_id for run in put)
    assert waiting.crowd == 0
