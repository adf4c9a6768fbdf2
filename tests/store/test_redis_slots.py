"""Which key of a command counts, what of it is hashed, and whom the map names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from bucketd.store.keys import SLOTS, slot
from bucketd.store.redis_url import Host
from bucketd.store.slots import SlotMap, key_of, tag_of

A, B, C = Host("a", 1), Host("b", 2), Host("c", 3)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("GET", "k"), "k"),
        (("ZADD", b"k", 1, b"m"), "k"),
        (("EVALSHA", "digest", 2, "k", "l", 5), "k"),
        (("EVAL", "text", 1, "k"), "k"),
        (("XGROUP CREATE", "k", "g", "0"), "k"),
        (("XINFO STREAM", "k"), "k"),
        (("XREADGROUP", b"GROUP", "g", "STREAMS", b"COUNT", 1, b"STREAMS", "k", "l", ">", ">"), "k"),
        (("PUBLISH", "channel", b""), None),
        (("INFO", "server"), None),
        (("TIME",), None),
    ],
)
def test_the_key_of_a_command(command: tuple[object, ...], key: str | None) -> None:
    assert key_of(command) == key


@given(st.text(alphabet="ab{}:.1é", max_size=12))
def test_a_key_is_hashed_as_redis_does(key: str) -> None:
    assert slot(tag_of(key)) == key_slot(key.encode())


def test_a_map_of_ranges_with_a_gap_and_what_moved_since() -> None:
    found = SlotMap([(8_000, SLOTS - 1, B), (0, 4_999, A), (6_000, 6_000, C)], frozenset({A, B, C}))
    assert [found.master(at) for at in (0, 4_999, 5_000, 5_999, 6_000, 6_001, 8_000, SLOTS - 1)] == [
        A, A, None, None, C, None, B, B,
    ]  # fmt: skip
    assert (found.masters(), found.patched, bool(found), bool(SlotMap())) == ([A, C, B], False, True, False)
    other = Host("d", 4)
    found.move(5_000, other)
    assert (found.master(5_000), found.master(4_999), found.patched) == (other, A, True)
    assert (found.masters(), found.nodes) == ([A, C, B, other], frozenset({A, B, C, other}))
