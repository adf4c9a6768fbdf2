"""The checker lets in what bucketd signed, once it is neither old nor overtaken, and nothing else."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.receiver import Receiver, RecentAttempts, Refused
from tests.receiver.requests import NOW_S, OTHER, RUN_ID, SECRET, envelope, signed


@pytest.fixture
def receiver() -> Receiver:
    return Receiver(SECRET, clock=lambda: NOW_S)


def refusal(receiver: Receiver, headers: dict[str, str], body: bytes) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        receiver.check(headers, body)
    return caught.value.status, caught.value.reason


def test_a_run_as_it_was_meant(receiver: Receiver) -> None:
    delivery = receiver.check(*signed(envelope(3)))
    (run,) = delivery.runs
    assert (run.run_id, run.schedule, run.tenant, run.attempt) == (RUN_ID, "nightly", "acme", 3)
    assert run.scheduled_at == datetime(2026, 12, 1, tzinfo=UTC)
    assert run.previous_at is None
    assert run.next_at == datetime(2026, 12, 2, 0, 0, 0, 250_000, tzinfo=UTC)
    assert run.payload == {"full": True}
    assert (delivery.is_batch, delivery.stale, delivery.webhook_id) == (False, (), RUN_ID)
    assert "full" not in repr(run)  # payloads may hold what does not belong into a log


def test_names_of_headers_in_any_case(receiver: Receiver) -> None:
    headers, body = signed(envelope())
    assert receiver.check({name.title(): value for name, value in headers.items()}, body).runs


def test_the_published_vector() -> None:
    """Signed by others: the vector of the specification, whose body is no request of bucketd's."""
    receiver = Receiver(SECRET, clock=lambda: 1614265330 + 299)
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert refusal(receiver, headers, b'{"test": 2432232314}')[0] == 400
    assert refusal(receiver, headers, b'{"test": 2432232315}')[0] == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "20261201T000000Z-" + "4f" * 16},
        {"webhook-timestamp": str(NOW_S + 1)},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "²"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "ä€"},
        {"webhook-signature": "v1,ä"},
        {"webhook-id": "ä"},
    ],
)
def test_what_was_not_signed_like_this_is_refused(receiver: Receiver, changed: dict[str, str]) -> None:
    headers, body = signed(envelope())
    assert refusal(receiver, headers | changed, body)[0] == 401


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(receiver: Receiver, missing: str) -> None:
    headers, body = signed(envelope())
    del headers[missing]
    assert refusal(receiver, headers, body) == (
        401,
        f"expected the header {missing}, got none: this target takes signed requests",
    )


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_bit_of_the_body_can_change(place: int, bit: int) -> None:
    receiver = Receiver(SECRET, clock=lambda: NOW_S)
    headers, body = signed(envelope())
    altered = bytearray(body)
    altered[place % len(body)] ^= 1 << bit
    assert refusal(receiver, headers, bytes(altered))[0] == 401


def test_another_version_of_signatures_is_no_signature(receiver: Receiver) -> None:
    headers, body = signed(envelope())
    headers["webhook-signature"] = headers["webhook-signature"].replace("v1,", "v1a,")
    assert refusal(receiver, headers, body)[0] == 401
    headers["webhook-signature"] += " " + signed(envelope())[0]["webhook-signature"]
    assert receiver.check(headers, body).runs


@pytest.mark.parametrize("known", [(SECRET,), (OTHER,), (OTHER, SECRET)])
def test_one_common_secret_is_enough(known: tuple[str, ...]) -> None:
    receiver = Receiver(known, clock=lambda: NOW_S)
    assert receiver.check(*signed(envelope(), secrets=(OTHER, SECRET))).runs


def test_no_common_secret_is_not() -> None:
    assert refusal(Receiver([OTHER], clock=lambda: NOW_S), *signed(envelope()))[0] == 401


@pytest.mark.parametrize(("age_s", "lets_in"), [(300, True), (-300, True), (301, False), (-301, False)])
def test_five_minutes_either_way(receiver: Receiver, age_s: int, lets_in: bool) -> None:
    request = signed(envelope(), at_s=NOW_S - age_s)
    if lets_in:
        assert receiver.check(*request).runs
    else:
        assert refusal(receiver, *request) == (425, "expected webhook-timestamp within 300 s of this machine's clock")
        assert refusal(receiver, request[0], request[1] + b" ")[0] == 401


def test_a_lower_attempt_is_refused_an_equal_one_is_not(receiver: Receiver) -> None:
    for attempt in (2, 2, 5):
        assert receiver.check(*signed(envelope(attempt))).runs
    assert refusal(receiver, *signed(envelope(4))) == (409, "a later attempt than 4 has come already")
    other = "20261201T000000Z-" + "4f" * 16
    assert receiver.check(*signed(envelope(1, other), webhook_id=other)).runs


def test_a_forged_attempt_does_not_count(receiver: Receiver) -> None:
    headers, _ = signed(envelope())
    assert refusal(receiver, headers, json.dumps(envelope(99)).encode())[0] == 401
    assert receiver.check(*signed(envelope(1))).runs


def test_of_a_batch_only_what_is_overtaken_is_stale(receiver: Receiver) -> None:
    ids = [f"20261201T000000Z-{n:032x}" for n in range(3)]
    receiver.check(*signed(envelope(4, ids[1]), webhook_id=ids[1]))
    request = signed([envelope(3, one) for one in ids], webhook_id="batch_1")
    delivery = receiver.check(*request)
    assert delivery.is_batch
    assert [run.run_id for run in delivery.runs] == [ids[0], ids[2]]
    assert [run.run_id for run in delivery.stale] == [ids[1]]
    assert json.loads(delivery.report({ids[2]: 503})) == {
        "runs": [{"run_id": ids[2], "status": 503}, {"run_id": ids[1], "status": 409}]
    }
    for one in (ids[0], ids[2]):
        receiver.check(*signed(envelope(4, one), webhook_id=one))
    assert refusal(receiver, *request)[0] == 409


MALFORMED: list[Any] = [
    b"",
    b"not json",
    b"\xff",
    b"[" * 100_000,
    1,
    None,
    {},
    [1],
    [envelope(), {}],
    envelope(0),
    envelope(attempt="1"),
    envelope(attempt=True),
    envelope(attempt=1.0),
    envelope(scheduled_at="2026-12-01T00:00:00"),
    envelope(scheduled_at="yesterday"),
    envelope(scheduled_at=None),
    envelope(next_at=5),
    envelope(tenant=None),
    envelope(run_id=7),
    {name: value for name, value in envelope().items() if name != "payload"},
]


@pytest.mark.parametrize("content", MALFORMED, ids=lambda content: repr(content)[:40])
def test_signed_but_malformed(receiver: Receiver, content: Any) -> None:
    webhook_id = "batch_1" if isinstance(content, list) else RUN_ID
    assert refusal(receiver, *signed(content, webhook_id=webhook_id))[0] == 400


@pytest.mark.parametrize(
    ("content", "webhook_id"),
    [(envelope(), "20261201T000000Z-" + "4f" * 16), (envelope(), "batch_1"), ([envelope()], RUN_ID)],
)
def test_the_signed_id_is_that_of_the_body(receiver: Receiver, content: Any, webhook_id: str) -> None:
    assert refusal(receiver, *signed(content, webhook_id=webhook_id))[0] == 400


RAW: dict[str, Any] = {
    "bucketd_schedule": "n%C3%A4chtlich%20%25", "bucketd_tenant": "acme", "bucketd_scheduled_at": "2026-12-01T00:00:00Z",
    "bucketd_attempt": "2",
}  # fmt: skip


def test_a_raw_payload_with_its_run_in_headers() -> None:
    receiver = Receiver(SECRET, raw=True, clock=lambda: NOW_S)
    (run,) = receiver.check(*signed([1, "payload"], **RAW)).runs
    assert (run.run_id, run.schedule, run.tenant, run.attempt) == (RUN_ID, "nächtlich %", "acme", 2)
    assert (run.payload, run.previous_at) == ([1, "payload"], None)
    assert refusal(receiver, *signed({}, **(RAW | {"bucketd_attempt": "1"})))[0] == 409


@pytest.mark.parametrize(
    "changed", [{"bucketd_attempt": "x"}, {"bucketd_schedule": "%FF"}, {"bucketd_scheduled_at": "then"}]
)
def test_raw_headers_that_are_malformed(changed: dict[str, Any]) -> None:
    receiver = Receiver(SECRET, raw=True, clock=lambda: NOW_S)
    assert refusal(receiver, *signed({}, **(RAW | changed)))[0] == 400


def test_the_payload_of_a_tenant_does_not_pass_for_an_envelope(receiver: Receiver) -> None:
    """A raw target whose receiver expects envelopes would believe what a tenant wrote."""
    forged = envelope(tenant="somebody else")
    assert refusal(receiver, *signed(forged, **RAW))[0] == 400
    assert refusal(Receiver(SECRET, raw=True, clock=lambda: NOW_S), *signed(forged))[0] == 400


def test_a_body_has_a_bound() -> None:
    receiver = Receiver(SECRET, body_bytes=100, clock=lambda: NOW_S)
    assert refusal(receiver, {}, b"x" * 101)[0] == 413


@pytest.mark.parametrize("secrets", [[], "", "hunter2", ["whsec_"], [SECRET, "x"]])
def test_secrets_that_are_none(secrets: Any) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        Receiver(secrets)
    assert "hunter2" not in str(caught.value)


def test_attempts_are_bounded_and_forget_what_was_heard_of_longest_ago() -> None:
    attempts = RecentAttempts(most=2)
    assert attempts.raise_to("a", 5)
    assert attempts.raise_to("b", 5)
    assert not attempts.raise_to("a", 4)  # heard of again
    assert attempts.raise_to("c", 1)
    assert not attempts.raise_to("a", 4)
    assert attempts.raise_to("b", 1)
