"""Other schedulers: what the models accept, mean and do, and that a comparison finds the first differences in bounded time."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.timing import CronError, fires_between, parse_cron
from bucketd.timing.peers import PEERS, Comparison, compare, question_of
from bucketd.timing.peers.comparison import SPAN_S
from bucketd.timing.peers.reading import Refused, Silent
from tests.unit.timing.strategies import expressions

START_S = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
NEW_YORK = "America/New_York"


def compared(expr: str, tz: str = NEW_YORK, seed: str | None = None, **policies: str) -> dict[str, Comparison]:
    spec, _ = parse_cron(expr, tz, seed=seed, **policies)
    return {found.peer: found for found in compare(expr, spec, seed, START_S)}


def shown(found: Comparison) -> list[tuple[str, int, int]]:
    return [
        (datetime.fromtimestamp(one.at_s, UTC).strftime("%Y-%m-%dT%H:%M"), one.ours, one.theirs)
        for one in found.differences
    ]


@pytest.mark.parametrize(
    ("expr", "verdicts"),
    [
        # (croniter, Kubernetes, EventBridge, cronie)
        ("0 9 * * MON-FRI", "same same same same"),
        ("30 2 * * *", "same differs differs same"),
        ("30 1 * * *", "differs differs same same"),
        ("* * * * *", "same same differs same"),
        ("*/15 2 * * *", "same differs differs differs"),
        ("0 2,3 * * *", "same same same differs"),
        ("0 0 13 * 5", "same same rejects same"),
        ("0 0 */2 * 1", "differs differs rejects same"),
        ("0 0 1-31 * 1", "same same same same"),
        ("0 0 * * 7", "same rejects same same"),
        ("5-5 9 * * *", "differs same same same"),
        ("0 12 22-2 * *", "same rejects same never"),
        ("59/15 9 * * *", "same same same rejects"),
        ("0 9 L-3 * *", "rejects rejects rejects rejects"),
        ("0 9 L * *", "same rejects same rejects"),
        ("0 9 1,L * *", "same rejects rejects rejects"),
        ("0 9 ? * 5L", "rejects rejects same rejects"),
        ("0 9 ? * 5#3", "same rejects same rejects"),
        ("0 9 ? * MON", "same same same rejects"),
        ("@daily", "same same same same"),
        ("@DAILY", "same rejects same rejects"),
    ],
)
def test_verdicts(expr: str, verdicts: str) -> None:
    found = compared(expr, tz="UTC" if expr[0] == "@" else NEW_YORK)
    assert [found[peer.name].verdict for peer in PEERS] == verdicts.split(), found


def test_first_differences() -> None:
    found = compared("30 2 * * *")
    assert shown(found["Kubernetes"]) == [("2026-03-08T07:00", 1, 0), ("2027-03-14T07:00", 1, 0)]
    assert all("missing" in one.why for one in found["Kubernetes"].differences)
    found = compared("30 1 * * *")
    assert shown(found["croniter"]) == [("2026-11-01T06:30", 0, 1), ("2027-11-07T06:30", 0, 1)]
    assert all("repeated" in one.why for one in found["croniter"].differences)
    assert shown(compared("0 2,3 * * *")["cronie"])[0] == ("2026-03-08T07:00", 1, 2)
    found = compared("0 0 */2 * 1", tz="UTC")
    assert shown(found["Kubernetes"]) == [(f"2026-01-0{day}T00:00", 0, 1) for day in (3, 7, 9)]
    assert "star" in found["Kubernetes"].differences[0].why
    assert shown(compared("5-5 9 * * *", tz="UTC")["croniter"])[0] == ("2026-01-01T09:00", 0, 1)


def test_explicit_policies_are_ours_alone() -> None:
    found = compared("30 2 * * *", gap="skip", fold="both")
    assert (found["Kubernetes"].verdict, found["EventBridge"].verdict, found["cronie"].verdict) == (
        "same",
        "same",
        "differs",
    )


def test_h_is_ours() -> None:
    found = compared("H H * * *", tz="UTC", seed="3f0c6a1e-0000-4000-8000-000000000000")
    assert (found["croniter"].verdict, found["EventBridge"].verdict) == ("differs", "same")
    assert "H" in found["cronie"].summary
    assert compared("@daily", tz="UTC", seed="s")["croniter"].verdict == "same", "croniter moves it if it gets a seed"


def test_nothing_is_compared_twice_and_three_are_enough() -> None:
    found = compared("* * * * *")["EventBridge"]
    assert [one.at_s for one in found.differences] == sorted({one.at_s for one in found.differences})
    assert len(found.differences) == 3


@pytest.mark.parametrize("tz", [NEW_YORK, "Africa/Casablanca", "Australia/Lord_Howe", "UTC"])
def test_time_is_bounded(tz: str) -> None:
    compared("0 0 * * *")  # imports
    begin = time.thread_time()
    compared("* * * * *", tz)
    assert time.thread_time() - begin < 2


@settings(max_examples=15, deadline=None)
@given(expressions, st.sampled_from([NEW_YORK, "Africa/Cairo", "Australia/Lord_Howe", "Europe/Berlin"]))
def test_models_agree_with_a_full_walk(expr: str, tz: str) -> None:
    """What the windows of a comparison find first is what walking all of the two years finds first."""
    try:
        spec, _ = parse_cron(expr, tz)
    except CronError:
        return
    ours = fires_between(spec, START_S + 1, START_S + SPAN_S)
    modelled = [peer for peer in PEERS if peer.basis == "modelled"]
    for peer, found in zip(modelled, compare(expr, spec, None, START_S, modelled), strict=True):
        try:
            theirs = peer.read(question_of(expr, spec, None))
        except Refused:
            assert found.verdict == "rejects"
            continue
        if isinstance(theirs, Silent):
            assert found.verdict == "never"
            continue
        first = first_difference(ours, theirs.fires(START_S + 1, START_S + SPAN_S))
        assert first == (found.differences[0].at_s if found.differences else None), (peer.name, expr, tz)


@settings(max_examples=15, deadline=None)
@given(expressions, st.sampled_from(["UTC", NEW_YORK]))
def test_croniter_survives_whatever_we_accept(expr: str, tz: str) -> None:
    try:
        spec, _ = parse_cron(expr, tz)
    except CronError:
        return
    assert compare(expr, spec, None, START_S, PEERS[:1])[0].verdict in ("same", "differs", "rejects")


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    for here, there in zip(ours, theirs, strict=False):
        if here != there:
            return min(here, there)
    longer = max(ours, theirs, key=len)
    return longer[min(len(ours), len(theirs))] if len(ours) != len(theirs) else None
