"""Slots as Redis Cluster counts them, and tags that spread over all of them."""

import re

import pytest

from bucketd.store.keys import PARTITIONS, SHARDS, SLOTS, TAGS, Keys, shard_of, slot


def test_crc16_is_that_of_the_cluster_specification() -> None:
    assert slot("123456789") == 0x31C3 == 12739


def test_each_tag_lies_in_the_middle_half_of_its_sixteenth() -> None:
    assert len(set(TAGS)) == SHARDS == 16
    width = SLOTS // SHARDS
    for shard, tag in enumerate(TAGS):
        assert width / 4 <= slot(tag) - shard * width < width * 3 / 4
        number, k = tag.split(".")
        assert int(number) == shard
        smaller = [slot(f"{shard}.{i}") - shard * width for i in range(int(k))]
        assert not [place for place in smaller if width / 4 <= place < width * 3 / 4], "the smallest k is taken"


@pytest.mark.parametrize("masters", [2, 3, 4, 5, 6, 8])
def test_every_master_gets_shards(masters: int) -> None:
    """Slots are dealt in equal ranges; six masters were what plain tags failed on."""
    assert {slot(tag) * masters // SLOTS for tag in TAGS} == set(range(masters))


def test_keys_of_a_partition_share_one_tag_and_differ_otherwise() -> None:
    keys = Keys("somebody")
    seen: set[str] = set()
    for partition in range(PARTITIONS):
        names = [
            keys.fence(partition), keys.lease(partition), keys.bucket(partition, 29_000_000),
            keys.bucket(partition, 29_000_001), keys.queue(partition),
        ]  # fmt: skip
        assert {re.search(r"\{(.*?)\}", name)[1] for name in names} == {TAGS[shard_of(partition)]}  # type: ignore[index]
        assert not seen & set(names[:4])
        seen |= set(names[:4])
        assert all(name.startswith("somebody:") for name in names)
    assert len({keys.queue(partition) for partition in range(PARTITIONS)}) == SHARDS
    ring = {keys.members, keys.member_info, keys.names, keys.freed, keys.weights, keys.cordons, keys.moves}
    ring |= {keys.undo, keys.rebalancing}
    rest = {*ring, keys.nudge, keys.ring_changed, keys.wake}
    assert len(rest) == 12
    assert not rest & seen
