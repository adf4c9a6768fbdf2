"""When a breaker opens, against a model that keeps every call; how long it waits; who is cut off."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.runner.breaker import Outcome, Rules, Window, cut_off, outcome_of

RULES = Rules(window_s=4, least_calls=6, silent_in_row=3)
A, F, S = Outcome.ANSWERED, Outcome.FAILED, Outcome.SILENT


def should_open(calls: list[tuple[float, Outcome]], rules: Rules) -> bool:
    """The rule in words, over all calls ever: asked after each one, and only a failure opens."""
    now_s, last = calls[-1]
    within = [outcome for at_s, outcome in calls if int(at_s) > int(now_s) - rules.window_s]
    failed = [outcome for outcome in within if outcome is not A]
    row = 0
    for _, outcome in reversed(calls):
        if outcome is not S:
            break
        row += 1
    by_share = len(within) >= rules.least_calls and len(failed) >= rules.failing_share * len(within)
    return last is not A and (row >= rules.silent_in_row or by_share)


@given(st.lists(st.tuples(st.floats(0, 3, width=16), st.sampled_from([A, A, A, F, F, S])), max_size=60))
def test_it_opens_when_the_rule_in_words_says_so(steps: list[tuple[float, Outcome]]) -> None:
    now_s, calls, window = 100.0, [], Window(RULES, 100.0)
    for after_s, outcome in steps:
        now_s += after_s
        calls.append((now_s, outcome))
        assert bool(window.add(outcome, now_s)) == should_open(calls, RULES), calls


def test_after_a_long_silence_the_window_is_empty() -> None:
    window = Window(RULES, 0.0)
    for _ in range(5):
        window.add(F, 1.0)
    assert window.add(F, 1e9) is None
    assert (window.calls, window.failed) == (1, 1)


def test_the_reason_says_what_was_seen() -> None:
    window = Window(Rules(), 0.0)
    assert [window.add(S, 3600.0 * n) for n in range(5)] == [None] * 4 + ["5 calls in a row without an answer"]
    window = Window(Rules(), 0.0)
    found = [window.add(outcome, 0.1) for outcome in [A] * 10 + [F] * 10]
    assert found == [None] * 19 + ["10 of 20 calls within 10 s failed"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(None, S), (500, F), (503, F), (599, F), (200, A), (302, A), (404, A), (408, A), (429, A), (600, A)],
)
def test_only_no_answer_and_5xx_speak_against_a_target(status: int | None, outcome: Outcome) -> None:
    assert outcome_of(status) is outcome


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_pauses_double_up_to_the_longest(openings: int, draw: float) -> None:
    pause_s = Rules().pause(openings, draw)
    assert 0.75 * 30 <= pause_s <= 600
    if openings <= 5:
        assert 0.75 <= pause_s / (30 * 2 ** (openings - 1)) <= 1


@pytest.mark.parametrize(
    ("silent", "answering", "verdict"),
    [(4, 0, False), (5, 0, True), (5, 1, False), (9, 1, True), (8, 2, False), (1000, 100, True)],
)
def test_nearly_all_hosts_silent_is_the_callers_own_trouble(silent: int, answering: int, verdict: bool) -> None:
    hosts = [(f"down-{n}", True) for n in range(silent)] + [(f"up-{n}", False) for n in range(answering)]
    assert cut_off(hosts, Rules()) is verdict


def test_targets_of_one_host_are_one_host() -> None:
    assert not cut_off([("h", True)] * 100, Rules())
    several = [(f"h{n}", True) for n in range(5)]
    assert cut_off(several, Rules())
    assert not cut_off([*several, ("h0", False)], replace(Rules(), own_share=1.0))
