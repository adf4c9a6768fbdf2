"""The key ring of the settings: seals what may lie in the database only sealed.

Fernet keys (AES-CBC and HMAC-SHA256), the first one seals, all of them open: so a new key is put in front, everything is sealed
anew, and the old one is taken out.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64decode
from binascii import Error
from functools import cached_property
from os import urandom
from typing import TYPE_CHECKING

from bucketd.store.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

HOW = "make one with `bucketd target secret new-key` and set BUCKETD_SECRET_KEYS to it, for runners and for who sets secrets"


class CannotOpen(Exception):
    """No key of the ring has sealed this, or it was altered."""


class KeyRing:
    """Seals and opens. `text`: keys with commas between, as in the settings; empty: a ring that can do neither.

    Raises ConfigError for a malformed key; no error and no repr shows any of them.
    """

    def __init__(self, text: str) -> None:
        self._keys = [part.strip() for part in text.split(",") if part.strip()]
        for place, key in enumerate(self._keys, 1):
            if not _is_key(key):
                raise ConfigError(
                    f"expected key {place} of secret_keys to be 32 bytes in URL-safe base64, got {len(key)} characters"
                    f" that are not; {HOW}"
                )

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"KeyRing({len(self._keys)} keys)"

    def require(self) -> None:
        """Raises ConfigError if there is no key."""
        if not self:
            raise ConfigError(f"expected a key to seal secrets with, got none; {HOW}")

    def seal(self, text: str) -> str:
        """Sealed with the first key. Raises ConfigError if there is none."""
        self.require()
        return self._fernets.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """The text that was sealed. Raises CannotOpen."""
        from cryptography.fernet import InvalidToken

        if not self:
            raise CannotOpen("no key is set")
        try:
            return self._fernets.decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise CannotOpen("no key of the ring has sealed it") from None

    @cached_property
    def _fernets(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet  # 30 ms that only who has keys pays

        return MultiFernet([Fernet(key) for key in self._keys])


def new_key() -> str:
    """A key for the ring."""
    return b64encode(urandom(32), altchars=b"-_").decode()


def _is_key(text: str) -> bool:
    try:
        return len(urlsafe_b64decode(text)) == 32
    except (Error, ValueError):
        return False
