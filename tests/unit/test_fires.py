"""The 34 bytes of a fire and the message that carries many: what goes in comes out, what is torn is refused."""

import struct
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.store.fires import (
    FIRE,
    MESSAGE_VERSION,
    Fire,
    Malformed,
    decode_message,
    encode_message,
    members,
    tail,
    unpack,
)

u32 = st.integers(0, 2**32 - 1)
far = st.none() | st.integers(1, 2**40)


@given(st.lists(st.tuples(st.uuids(), u32, st.integers(0, 32_767)), max_size=20), u32, far, far)
def test_members_unpack_to_what_was_packed(
    heads: list[tuple[UUID, int, int]], at_s: int, previous_s: int | None, next_s: int | None
) -> None:
    packed = b"".join(id.bytes + version.to_bytes(4, "big") + tenant.to_bytes(2, "big") for id, version, tenant in heads)
    fires = members(packed, tail(at_s, previous_s, next_s))
    assert all(len(fire) == FIRE.size == 34 for fire in fires)
    neighbours = (min(previous_s or 0, 2**32 - 1), min(next_s or 0, 2**32 - 1))
    assert unpack(b"".join(fires)) == [Fire(id.bytes, version, tenant, at_s, *neighbours) for id, version, tenant in heads]


@given(st.integers(0, 255), st.lists(st.binary(min_size=34, max_size=34), min_size=1, max_size=50))
def test_a_message_decodes_to_what_was_encoded(partition: int, fires: list[bytes]) -> None:
    assert decode_message(encode_message(partition, fires)) == (partition, b"".join(fires))


def test_each_version_adds_a_field_and_is_read_by_who_knows_it() -> None:
    newer = MESSAGE_VERSION + 1
    message = encode_message(3, [WHOLE], 17, version=newer)
    assert decode_message(message, newest=newer) == (3, WHOLE)
    assert decode_message(encode_message(3, [WHOLE]), newest=newer) == (3, WHOLE)
    for raw, newest in ((message, MESSAGE_VERSION), (encode_message(3, [WHOLE], version=newer), newer)):
        with pytest.raises(Malformed, match="expected a message of version"):
            decode_message(raw, newest=newest)


@given(st.binary(max_size=100))
def test_noise_is_malformed_and_never_another_error(raw: bytes) -> None:
    try:
        partition, packed = decode_message(raw)
    except Malformed:
        return
    assert 0 <= partition <= 255
    assert len(packed) % 34 == 0


WHOLE = bytes(FIRE.size)


@pytest.mark.parametrize(
    "message",
    [
        [MESSAGE_VERSION + 1, 3, WHOLE],
        [0, 3, WHOLE],
        [True, 3, WHOLE],
        [float(MESSAGE_VERSION), 3, WHOLE],
        ["x" * 100_000, 3, WHOLE],
        [MESSAGE_VERSION, 2**60, WHOLE],
        [MESSAGE_VERSION, 256, WHOLE],
        [MESSAGE_VERSION, -1, WHOLE],
        [MESSAGE_VERSION, b"3", WHOLE],
        [MESSAGE_VERSION, 3, b""],
        [MESSAGE_VERSION, 3, WHOLE + b"x"],
        [MESSAGE_VERSION, 3, WHOLE[:-1]],
        [MESSAGE_VERSION, 3, None],
        [MESSAGE_VERSION, 3],
        [MESSAGE_VERSION, 3, WHOLE, 4],
        MESSAGE_VERSION,
        {"version": 1},
        None,
    ],
)
def test_a_strange_message_is_malformed(message: object) -> None:
    with pytest.raises(Malformed, match="expected"):
        decode_message(msgpack.packb(message))


def test_a_torn_message_is_malformed() -> None:
    whole = encode_message(7, [WHOLE, WHOLE])
    for length in range(len(whole)):
        with pytest.raises(Malformed):
            decode_message(whole[:length])


def test_torn_fires_do_not_unpack() -> None:
    with pytest.raises(struct.error):
        unpack(bytes(FIRE.size + 1))
