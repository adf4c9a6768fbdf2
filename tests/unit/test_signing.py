"""Signatures against the published vector of Standard Webhooks, and keys as its specification bounds them."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.store.signing import key_of, new_secret, signature

# The vector that the reference libraries of the specification are tested with.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT_S = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def secret_of(size: int) -> str:
    return "whsec_" + base64.b64encode(bytes(size)).decode()


def test_the_published_vector() -> None:
    assert signature([key_of(SECRET)], ID, AT_S, BODY) == SIGNATURE


def test_one_signature_a_key_with_blanks_between() -> None:
    other = key_of(new_secret())
    first, second = signature([other, key_of(SECRET)], ID, AT_S, BODY).split(" ")
    assert second == SIGNATURE
    assert first == signature([other], ID, AT_S, BODY) != SIGNATURE


@given(key=st.binary(min_size=24, max_size=64), webhook_id=st.text(st.characters(codec="ascii")), body=st.binary())
def test_it_is_the_hmac_of_id_time_and_body(key: bytes, webhook_id: str, body: bytes) -> None:
    digest = hmac.new(key, webhook_id.encode() + b".17." + body, hashlib.sha256).digest()
    assert signature([key], webhook_id, 17, body) == "v1," + base64.b64encode(digest).decode()


def test_a_key_is_not_used_up() -> None:
    """The prepared hash of a key is copied: what was signed before has no part in what is signed next."""
    assert [signature([key_of(SECRET)], ID, AT_S, BODY) for _ in range(3)] == [SIGNATURE] * 3


def test_new_secrets_are_keys_of_32_bytes_and_differ() -> None:
    made = {new_secret() for _ in range(20)}
    assert len(made) == 20
    assert {len(key_of(secret)) for secret in made} == {32}


@pytest.mark.parametrize("size", [24, 64])
def test_the_shortest_and_the_longest_key(size: int) -> None:
    assert key_of(secret_of(size)) == bytes(size)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        secret_of(23),
        secret_of(65),
        SECRET.removeprefix("whsec_"),
        SECRET.upper(),
        SECRET + "=",
        SECRET[:-1],
        SECRET + "\n",
        "whsec_" + "ä" * 40,
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 33).decode(),
    ],
)
def test_what_is_no_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="base64 of 24 to 64 bytes") as caught:
        key_of(secret)
    assert len(secret) < 10 or secret[6:] not in str(caught.value)
