"""What `bucketd doctor` says about one thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SKEW_WARN_S = 0.25


class Verdict(StrEnum):
    """From well to broken."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor. `advice` says what to do; empty if all is well."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    """It is as it should be."""
    return Check(name, Verdict.OK, found)


def warn(name: str, found: str, advice: str) -> Check:
    """It works, and should be looked at."""
    return Check(name, Verdict.WARN, found, advice)


def fail(name: str, found: str, advice: str) -> Check:
    """It does not work, or will not for long."""
    return Check(name, Verdict.FAIL, found, advice)


def overall(checks: Iterable[Check]) -> Verdict:
    """The worst of them."""
    found = {check.verdict for check in checks}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK)


def skew(whose: str, their_s: float, asked_s: float, answered_s: float) -> Check:
    """Compares a server's clock (epoch seconds) with ours at the middle of the question's way (epoch seconds)."""
    ahead_s = their_s - (asked_s + answered_s) / 2
    unsure_s = (answered_s - asked_s) / 2
    side = "ahead of" if ahead_s >= 0 else "behind"
    found = f"{abs(ahead_s) * 1000:.0f} ms {side} this machine (give or take {unsure_s * 1000:.1f} ms)"
    name = f"clock of {whose}"
    if abs(ahead_s) - unsure_s < SKEW_WARN_S:
        return ok(name, found)
    return warn(
        name, found, "the cluster goes by Postgres's clock, people by theirs: run chrony or ntpd on both machines"
    )
