"""The key ring: the first key seals, all open, and neither is ever shown."""

import base64

import pytest

from bucketd.store.config import Settings
from bucketd.store.errors import ConfigError
from bucketd.store.keyring import CannotOpen, KeyRing, new_key


def test_what_was_sealed_is_opened() -> None:
    ring = KeyRing(new_key())
    sealed = ring.seal("whsec_ä")
    assert "whsec" not in sealed
    assert ring.open(sealed) == "whsec_ä"
    assert ring.seal("whsec_ä") != sealed  # equal secrets cannot be told by what lies in the database


def test_rotation_of_the_ring() -> None:
    old, new = new_key(), new_key()
    sealed = KeyRing(old).seal("s")
    both = KeyRing(f"{new}, {old}")
    assert both.open(sealed) == "s"
    anew = both.seal(both.open(sealed))
    assert KeyRing(new).open(anew) == "s"
    with pytest.raises(CannotOpen, match="no key of the ring"):
        KeyRing(old).open(anew)


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-8] + "AAAAAAA=", lambda text: "", lambda text: text[:40] + "BB" + text[42:]]
)
def test_altered_is_not_opened(damage: object) -> None:
    ring = KeyRing(new_key())
    assert callable(damage)
    with pytest.raises(CannotOpen):
        ring.open(damage(ring.seal("s")))


def test_an_empty_ring_seals_and_opens_nothing() -> None:
    ring = KeyRing(" , ")
    assert not ring
    with pytest.raises(ConfigError, match="bucketd target secret new-key"):
        ring.seal("s")
    with pytest.raises(CannotOpen, match="no key is set"):
        ring.open(KeyRing(new_key()).seal("s"))


@pytest.mark.parametrize(
    "bad", ["hunter2", base64.urlsafe_b64encode(bytes(31)).decode(), base64.urlsafe_b64encode(bytes(33)).decode(), "ä"]
)
def test_a_malformed_key_stops_the_start_and_is_not_shown(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"key 2 of secret_keys.*new-key") as caught:
        Settings.load({"BUCKETD_SECRET_KEYS": f"{new_key()},{bad}"})
    assert bad not in str(caught.value)
    assert caught.value.__cause__ is None


def test_neither_ring_nor_settings_show_a_key() -> None:
    key = new_key()
    settings = Settings.load({}, secret_keys=key)
    for shown in (repr(KeyRing(key)), repr(settings), str(settings), str(settings.shown())):
        assert key not in shown
    assert settings.shown()["secret_keys"] == "***"
    assert Settings.load({}).shown()["secret_keys"] == ""
