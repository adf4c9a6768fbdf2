"""Secrets of targets: from checked arguments to operations. The text of one is shown once, to who makes it."""

from __future__ import annotations

from bucketd.client import checks
from bucketd.errors import InvalidInput
from bucketd.store import secrets
from bucketd.store.keyring import KeyRing
from bucketd.store.operation import Operation
from bucketd.store.signing import key_of, new_secret

LONGEST_KEEP_S = 30 * 86_400


def rotate(name: str, secret: str | None, keep_old_s: int, ring: KeyRing) -> Operation[str]:
    """Gives the target this secret or a new one; returns it. Raises InvalidInput, NotFound, ConfigError."""
    name = checks.name(name, "name")
    keep_s = checks.integer(keep_old_s, "keep_old_s", 0, LONGEST_KEEP_S)
    text = new_secret() if secret is None else _checked(secret)
    yield from secrets.rotate(name, text, keep_s, ring)
    return text


def drop(name: str) -> Operation[None]:
    """Takes the secret from the target. Raises InvalidInput, NotFound."""
    yield from secrets.drop(checks.name(name, "name"))


def _checked(secret: object) -> str:
    """A secret as Standard Webhooks has it; no error shows it."""
    if not isinstance(secret, str):
        raise InvalidInput(f"expected secret to be text, got {type(secret).__name__}", field="secret")
    try:
        key_of(secret)
    except ValueError as error:
        raise InvalidInput(f"secret: {error}; leave it out to have one made", field="secret") from None
    return secret
