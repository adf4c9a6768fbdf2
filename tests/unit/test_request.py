"""Headers and body of a request: what is signed is what is sent."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.runner.bodies import body, taken_apart
from bucketd.runner.request import headers_of, request_of
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.store.runners import CallTarget
from bucketd.store.secrets import Secret
from bucketd.store.signing import signature

NOW_S = 1_800_000_000.75
INSTANTS = '"scheduled_at":"2026-12-01T00:00:00Z","previous_at":null,"next_at":"2026-12-02T00:00:00Z"'
TARGET = CallTarget(
    target_id=1, revision=1, name="t", url="http://t.example/", headers={"X-Own": "1", "Webhook-Signature": "forged"},
    connect_timeout_s=5, timeout_s=30, max_attempts=5, retry_base_s=10, retry_cap_s=100, batch_max=1, batch_linger_ms=0,
    batch_by_tenant=False, body="envelope", max_running=None, rate_per_s=None, complete_within_s=None,
)  # fmt: skip
NEW, OLD = Secret(b"n" * 32, None), Secret(b"o" * 32, NOW_S + 1)


def run_of(text: str, attempt: int = 3) -> Run:
    fields: dict[str, Any] = dict.fromkeys(Run._fields)
    given = {"attempt": attempt, "run_id": "r-1", "body": text, "claim": Claim(Incarnation.__new__(Incarnation))}
    return Run(**{**fields, **given})


ENVELOPE = body("r-1", "nightly", "acme", INSTANTS, 3, '{"a":  1}')


def test_unsigned_without_a_secret() -> None:
    """The one that the target's own headers bring is the user's: the client refuses it, raw SQL is what it is."""
    headers = headers_of(replace(TARGET, headers={}), "r-1", b"x", NOW_S)
    assert "webhook-signature" not in headers
    assert headers["webhook-timestamp"] == "1800000000"


def test_signed_with_each_valid_secret_newest_first() -> None:
    content, headers = request_of(run_of(ENVELOPE), replace(TARGET, secrets=(NEW, OLD)), NOW_S)
    assert content == ENVELOPE.encode()
    assert headers["webhook-signature"] == signature([NEW.key, OLD.key], "r-1", 1_800_000_000, content)
    assert (headers["x-own"], headers["bucketd-attempt"], headers["webhook-id"]) == ("1", "3", "r-1")
    assert "bucketd-schedule" not in headers


@pytest.mark.parametrize("until_s", [NOW_S, NOW_S - 100])
def test_an_old_secret_that_has_ended_does_not_sign(until_s: float) -> None:
    headers = headers_of(replace(TARGET, secrets=(NEW, Secret(OLD.key, until_s))), "r-1", b"x", NOW_S)
    assert headers["webhook-signature"] == signature([NEW.key], "r-1", 1_800_000_000, b"x")


def test_a_secret_is_in_no_repr() -> None:
    assert "nnnn" not in repr(replace(TARGET, secrets=(NEW, OLD)))
    assert "nnnn" not in repr(NEW)


def test_a_raw_body_is_the_payload_as_stored() -> None:
    target = replace(TARGET, body="raw", secrets=(NEW,))
    content, headers = request_of(run_of(ENVELOPE), target, NOW_S)
    assert content == b'{"a":  1}'
    assert headers["webhook-signature"] == signature([NEW.key], "r-1", 1_800_000_000, content)
    facts = {name: value for name, value in headers.items() if name.startswith("bucketd-")}
    assert facts == {
        "bucketd-attempt": "3",
        "bucketd-schedule": "nightly",
        "bucketd-tenant": "acme",
        "bucketd-scheduled-at": "2026-12-01T00:00:00Z",
        "bucketd-next-at": "2026-12-02T00:00:00Z",
    }


NAMES = st.text(st.characters(codec="utf-8"), min_size=1) | st.sampled_from(
    ['","payload":', '"payload":', "payload", '\\","payload":1', " a b ", "100%25", "a\r\nx: b"]
)


@given(
    name=NAMES,
    tenant=NAMES,
    payload=st.sampled_from(['"x"', "null", '{"payload":[1,"}"]}', '  {"a": 1.0,"payload":{}}']),
)
def test_any_name_comes_through_the_headers(name: str, tenant: str, payload: str) -> None:
    text = body("r-1", name, tenant, INSTANTS, 3, payload)
    facts, found = taken_apart(text)
    assert found == payload
    assert (facts["schedule"], facts["tenant"], facts["attempt"]) == (name, tenant, 3)
    assert json.loads(text)["schedule"] == name
    _, headers = request_of(run_of(text), replace(TARGET, body="raw"), NOW_S)
    for header, value in (("bucketd-schedule", name), ("bucketd-tenant", tenant)):
        assert unquote(headers[header], errors="strict") == value
        assert headers[header].isascii()
        assert headers[header].isprintable()
        assert " " not in headers[header]
