"""A runner reads every version up to the one that it announces; what is newer it acknowledges unread, and settling covers it."""

import pytest

from bucketd.store.fires import MESSAGE_VERSION, encode_message
from tests.runner.conftest import World
from tests.support.target import Target

NEWER = MESSAGE_VERSION + 1


@pytest.mark.parametrize(("reads", "runs"), [(MESSAGE_VERSION, 1), (NEWER, 2)], ids=["an old release", "a new release"])
async def test_it_reads_what_it_announces(
    reads: int, runs: int, world: World, target: Target, hook: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETD_TEST_MESSAGE_VERSION", str(reads))
    fires = [world.fire(world.schedule(hook), world.now_s - 5) for _ in range(2)]
    world.put_raw(encode_message(fires[0][15], [fires[0]]))
    world.put_raw(encode_message(fires[1][15], [fires[1]], 17, version=NEWER))
    async with world.runner() as runner:
        assert world.value("select message_version from bucketd.runners") == reads
        await world.until({"succeeded": runs})
        await world.until_quiet()
        assert runner.totals["malformed"] == 2 - runs
    assert len(target.runs) == runs
