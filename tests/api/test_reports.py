"""Heartbeats and completions of long runs, through the application and a real database."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api.conftest import WITHIN_S, Desk, LongRun
from tests.support.asgi import AsgiClient, Response

PROBLEM = "application/problem+json"


async def complete(api: AsgiClient, run: LongRun, attempt: int = 1, **members: Any) -> Response:
    return await api.post(f"/runs/{run.id}/complete", {"attempt": attempt, **members})


async def heartbeat(api: AsgiClient, run: LongRun, attempt: int = 1) -> Response:
    return await api.post(f"/runs/{run.id}/heartbeat", {"attempt": attempt})


async def test_a_heartbeat_moves_the_deadline(api: AsgiClient, desk: Desk) -> None:
    run = desk.run()
    run.becomes("wake_at = bucketd.bucketd_now() + interval '1 second'")
    answer = await heartbeat(api, run)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    row = run.row
    assert (row["status"], row["claim"], row["attempt"]) == ("running", None, 1)
    assert WITHIN_S - 10 < row["wakes_in_s"] <= WITHIN_S
    by = row["wake_at"].astimezone(UTC)
    assert answer.json == {
        "run_id": run.id,
        "attempt": 1,
        "status": "running",
        "expected_by": f"{by:%Y-%m-%dT%H:%M:%S.%fZ}",
    }


async def test_a_heartbeat_before_the_202_is_written_takes_the_run_from_its_runner(api: AsgiClient, desk: Desk) -> None:
    run = desk.run(held=True)
    assert (await heartbeat(api, run)).status == 200
    assert run.row["claim"] is None
    assert WITHIN_S - 10 < run.row["wakes_in_s"] <= WITHIN_S


@pytest.mark.parametrize("held", [False, True])
async def test_a_completion_ends_the_run(api: AsgiClient, desk: Desk, held: bool) -> None:
    run = desk.run(held=held)
    answer = await complete(api, run, result={"rows": [1, 2]})
    assert answer.json == {"run_id": run.id, "attempt": 1, "status": "succeeded"}
    row = run.row
    assert (answer.status, row["status"], row["claim"], row["wake_at"]) == (200, "succeeded", None, None)
    assert row["finished_at"] is not None
    assert row["http_status"] == (None if held else 202)


async def test_the_attempt_may_stand_in_the_header_alone(api: AsgiClient, desk: Desk) -> None:
    run = desk.run(attempt=2)
    answer = await api.post(f"/runs/{run.id}/complete", b"", {"Bucketd-Attempt": "2"})
    assert (answer.status, run.row["status"]) == (200, "succeeded")


async def test_a_failure_is_retried_with_a_drawn_delay(api: AsgiClient, desk: Desk) -> None:
    run = desk.run(attempt=2)
    answer = await complete(api, run, 2, error="disk\x00 full \ud800")
    row = run.row
    assert (answer.json["status"], row["status"], row["claim"], row["attempt"]) == ("retrying", "retrying", None, 2)
    assert -5 <= row["wakes_in_s"] <= 100
    assert row["reason"] is row["finished_at"] is None
    (failure,) = row["failures"]
    assert (failure["attempt"], failure["status"], failure["error"]) == (2, 202, "disk full ?")
    at = datetime.fromisoformat(failure["at"])
    assert abs((at - datetime.now(UTC)).total_seconds()) < 30
    assert answer.json["next_attempt_at"] == f"{row['wake_at'].astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    assert run.letters == []


@pytest.mark.parametrize(
    ("attempt", "members", "reason"), [(3, {}, "attempts"), (1, {"retry": False}, "rejected")], ids=["last", "for good"]
)
async def test_a_failure_that_is_not_retried_kills(
    api: AsgiClient, desk: Desk, attempt: int, members: dict[str, Any], reason: str
) -> None:
    run = desk.run(attempt=attempt)
    answer = await complete(api, run, attempt, error="no", **members)
    row = run.row
    assert (answer.status, answer.json["status"], row["status"], row["reason"]) == (200, "dead", "dead", reason)
    assert (row["wake_at"], row["finished_at"] is not None) == (None, True)
    assert run.letters == [(reason, attempt, {"a": 1})]


async def test_the_schedules_own_policy_counts(api: AsgiClient, desk: Desk) -> None:
    patient, hasty = desk.run(attempt=3, max_attempts=4, retry_base_s=0), desk.run(attempt=1, max_attempts=1)
    assert (await complete(api, patient, 3, error="no")).json["status"] == "retrying"
    assert -5 <= patient.row["wakes_in_s"] <= 0
    assert (await complete(api, hasty, 1, error="no")).json["status"] == "dead"


@pytest.mark.parametrize("members", [{}, {"result": 1}, {"error": "x"}, {"error": "x", "retry": False}], ids=str)
async def test_the_same_completion_again_changes_nothing(api: AsgiClient, desk: Desk, members: dict[str, Any]) -> None:
    run = desk.run()
    first, before = await complete(api, run, **members), run.row
    again = await complete(api, run, **members)
    after = run.row
    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json
    assert {**before, "wakes_in_s": 0} == {**after, "wakes_in_s": 0}
    assert len(run.letters) == (members.get("retry") is False)


async def test_a_repeated_failure_is_known_when_the_next_attempt_has_begun(api: AsgiClient, desk: Desk) -> None:
    run = desk.run()
    await complete(api, run, error="x")
    run.becomes("status = 'running', attempt = 2, claim = 8, wake_at = null")
    before = run.row
    answer = await complete(api, run, error="x")
    assert (answer.status, answer.json["status"]) == (200, "running")
    assert run.row == before
    assert (await complete(api, run, error="y")).status == 409


@pytest.mark.parametrize(
    ("first", "second"), [({}, {"error": "x"}), ({"error": "x"}, {}), ({"error": "x"}, {"error": "y"})], ids=str
)
async def test_another_completion_of_an_ended_attempt_is_refused(
    api: AsgiClient, desk: Desk, first: dict[str, Any], second: dict[str, Any]
) -> None:
    run = desk.run()
    await complete(api, run, **first)
    before = {**run.row, "wakes_in_s": 0}
    answer = await complete(api, run, **second)
    assert (answer.status, answer.headers["content-type"]) == (409, PROBLEM)
    assert answer.json["detail"].startswith("expected a report about an attempt that goes on; attempt 1 has ended")
    assert {**run.row, "wakes_in_s": 0} == before


@pytest.mark.parametrize("said", [1, 3])
async def test_another_attempt_is_refused(api: AsgiClient, desk: Desk, said: int) -> None:
    run = desk.run(attempt=2)
    before = {**run.row, "wakes_in_s": 0}
    for answer in (
        await complete(api, run, said),
        await complete(api, run, said, error="x"),
        await heartbeat(api, run, said),
    ):
        assert answer.status == 409
        assert (answer.json["expected_attempt"], answer.json["run_status"], answer.json["status"]) == (
            2,
            "running",
            409,
        )
        assert (
            answer.json["detail"]
            == f"expected a report about attempt 2, got one about attempt {said}, which does not go on"
        )
    assert {**run.row, "wakes_in_s": 0} == before


@pytest.mark.parametrize(
    "end",
    [
        "status = 'succeeded', wake_at = null, finished_at = now()",
        "status = 'cancelled', wake_at = null, finished_at = now(), reason = 'deleted'",
        "status = 'dead', wake_at = null, finished_at = now()",
        'status = \'retrying\', failures = \'[{"attempt": 1, "error": "no completion within 600 s"}]\'',
    ],
)
async def test_nothing_goes_on_after_an_end(api: AsgiClient, desk: Desk, end: str) -> None:
    run = desk.run()
    run.becomes(end)
    before = {**run.row, "wakes_in_s": 0}
    answers = [await heartbeat(api, run), await complete(api, run, error="x")]
    if before["status"] != "succeeded":
        answers.append(await complete(api, run))
    assert [answer.status for answer in answers] == [409] * len(answers)
    assert {answer.json["run_status"] for answer in answers} == {before["status"]}
    assert {**run.row, "wakes_in_s": 0} == before


async def test_a_target_that_does_not_report_is_judged_by_its_answer(api: AsgiClient, desk: Desk) -> None:
    run = desk.run(target=desk.target(complete_within_s=None), held=True)
    assert (await complete(api, run)).status == (await heartbeat(api, run)).status == 409
    assert (run.row["status"], run.row["claim"]) == ("running", 7)


async def test_a_run_that_was_accepted_ends_well_though_its_target_no_longer_reports(
    api: AsgiClient, desk: Desk
) -> None:
    run = desk.run(target=desk.target(complete_within_s=None))
    expected = run.row["wake_at"]
    assert (await heartbeat(api, run)).status == 200
    assert run.row["wake_at"] == expected
    assert (await complete(api, run)).status == 200


async def test_of_two_reports_at_once_one_counts(api: AsgiClient, desk: Desk) -> None:
    """The second one waits for the row, and then finds what the first has done."""
    for _ in range(10):
        run = desk.run()
        answers = await asyncio.gather(complete(api, run), complete(api, run, error="x"), complete(api, run))
        row = run.row
        statuses = [answer.status for answer in answers]
        assert statuses == ([200, 409, 200] if row["status"] == "succeeded" else [409, 200, 409])
        assert len(row["failures"] or []) == (row["status"] == "retrying")


async def test_unknown_runs(api: AsgiClient, desk: Desk) -> None:
    run = desk.run()
    other = LongRun(desk.db, run.schedule, run.at.replace(microsecond=1))
    for answer in (
        await complete(api, other),
        await heartbeat(api, other),
        await api.post("/runs/nonsense/complete", {"attempt": 1}),
    ):
        assert (answer.status, answer.headers["content-type"]) == (404, PROBLEM)
        assert answer.json["detail"].startswith("expected the id of a run") or answer.json["detail"].startswith(
            "expected a run id"
        )
