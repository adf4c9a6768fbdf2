"""What counts as a crowd, and that nothing is lost when it is put apart."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bucketd.scheduler.crowds import Flat, apart
from bucketd.store.buckets import BucketId
from bucketd.store.fires import tail

MOST = 5


def fire(n: int, tenant: int, at_s: int) -> bytes:
    return n.to_bytes(16, "big") + bytes(4) + tenant.to_bytes(2, "big") + tail(at_s, None, None)


fires = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([60, 61, 62]), st.integers(7, 9)), max_size=60)


@given(fires)
def test_a_crowd_is_many_fires_of_one_tenant_at_one_instant(drawn: list[tuple[int, int, int]]) -> None:
    entries: dict[BucketId, Flat] = {}
    for n, (partition, at_s, tenant) in enumerate(drawn):
        entries.setdefault(BucketId(partition, 1), []).extend((at_s * 1_000, fire(n, tenant, at_s)))
    number = Counter((at_s, tenant) for _, at_s, tenant in drawn)
    found = apart(entries, MOST)
    expected = Counter(
        (BucketId(partition, 1, number[at_s, tenant] >= MOST), at_s * 1_000, fire(n, tenant, at_s))
        for n, (partition, at_s, tenant) in enumerate(drawn)
    )
    assert expected == Counter(
        (id, due, member) for id, flat in found.items() for due, member in zip(flat[::2], flat[1::2], strict=True)
    )
    assert all(found.values()), "no bucket is empty"


def test_a_batch_without_a_crowd_is_left_as_it_is() -> None:
    entries: dict[BucketId, Flat] = {
        BucketId(3, 1): [part for n in range(MOST - 1) for part in (60_000, fire(n, 7, 60))]
    }
    assert apart(entries, MOST) is entries
