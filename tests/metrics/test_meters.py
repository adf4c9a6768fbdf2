"""What a node and a runner say before they have started: nothing that is not so."""

from bucketd.runner.loop import Runner
from bucketd.scheduler.node import Scheduler
from bucketd.store.config import Settings
from bucketd.store.metrics import OF_RUNNER, OF_SCHEDULER
from tests.metrics.test_figures import scraped

NOWHERE = Settings.load({}, dsn="postgresql://x@127.0.0.1:9/x", redis_url="redis://127.0.0.1:9/0")


async def test_a_node_that_has_not_started_can_be_scraped_and_is_not_ready() -> None:
    meter = Scheduler(NOWHERE).meter
    assert meter.checks() == {"stores": False, "leases": True, "working": True}
    found = scraped(*meter.read(), definitions=OF_SCHEDULER)
    assert found["bucketd_partitions_owned", ()] == 0
    assert {"bucketd_settled_lag_seconds", "bucketd_clock_skew_seconds"} & {name for name, _ in found} == set()


async def test_a_runner_that_has_not_started_can_be_scraped_and_is_not_ready() -> None:
    meter = Runner(NOWHERE).meter
    assert not all(meter.checks().values())
    found = scraped(*meter.read(), definitions=OF_RUNNER)
    assert found["bucketd_confirms_total", ("confirmed",)] == 0
    assert "bucketd_runner_alive" not in {name for name, _ in found}
