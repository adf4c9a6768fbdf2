"""A short play of fixed faults, with as many kinds as fit into the time: what `make chaos` does for ten minutes by a seed."""

import shutil
import time
from pathlib import Path

import pytest

from tests.chaos import disk
from tests.chaos.evidence import keep
from tests.chaos.fault import Fault, Shape
from tests.chaos.faults import KINDS, edits, network, postgres, processes, redis
from tests.chaos.plan import Event
from tests.chaos.play import Play, last_line
from tests.chaos.stage import DAY_S, Stage
from tests.chaos.workload import Workload
from tests.support.cluster import PACE, QUICK_DEATH

SEED = 20_261_201
SHAPE = Shape(nodes=2, runners=2)
START_S, LOAD_S = 12, 50
BOUND_S = 75  # what Redis lost is found when its minute is settled

SCRIPT: list[tuple[float, str, Fault]] = [
    (2, "node: kill -9", processes.Killed("node 0", 1.5)),
    (3, "postgres: reply lost after commit", postgres.ReplyLost("runner 1", 0.5)),
    (6, "redis: FLUSHALL", redis.Flushed(0.0)),
    (7, "runner: SIGSTOP past its lease", processes.Asleep("runner 0", 4.0)),
    (9, "postgres: backends terminated", postgres.Terminated(0.1)),
    (11, "node: dies at after_drain", processes.KilledAt("node 1", "after_drain:2", 4.0)),
    (12, "redis: restart with an older copy", redis.RolledBack(0.3, 1.0)),
    (13, "runner: dies at after_commit", processes.KilledAt("runner 0", "after_commit", 4.0)),
    (15, "postgres: an occurrence of a dropped day", postgres.DayDropped()),
    (17, "edits: a storm around due instants", edits.Storm(1, 8.0)),
    (19, "redis: out of memory", redis.OutOfMemory(2.5)),
    (21, "node: SIGSTOP past its lease", processes.Asleep("node 0", 4.0)),
    (22, "postgres: crash", postgres.Restarted(0.3, postgres.CRASH)),
    (26, "runner: dies at after_response", processes.KilledAt("runner 1", "after_response:3", 3.0)),
    (27, "network: node - redis away for a moment", network.Between("node 1", "redis", "silent", 2.5)),
    (28, "postgres: failover with lost commits", postgres.FailedOver(0.2, 0.7)),
    (33, "redis: failover with lost writes", redis.FailedOver(0.2, 0.7)),
    (34, "node: SIGTERM", processes.Stopped("node 1", 0.5)),
]  # fmt: skip


def plan() -> list[Event]:
    """The script, as the plan of a play."""
    kinds = {kind.name: kind for kind in KINDS}
    return [Event(at_s, kinds[name], fault) for at_s, name, fault in SCRIPT]


def keep_logs(directory: Path, place: Path) -> None:
    """Beside the evidence."""
    for log in directory.glob("*.log"):
        shutil.copy(log, place)


@pytest.fixture
def directory(servers: Path) -> Path:
    """One that other users may enter, gone with the session."""
    return servers / f"chaos-{time.monotonic_ns()}"


@pytest.mark.timeout(240)
async def test_nothing_is_lost_doubled_or_early_whatever_goes_wrong(directory: Path, tmp_path: Path) -> None:
    midnight_s = (int(time.time()) // DAY_S + 1) * DAY_S
    load = Workload(SEED, midnight_s - LOAD_S, midnight_s, scale=0.3)
    async with Stage(SHAPE, directory, pace=PACE | QUICK_DEATH, small_disks=disk.missing() is None) as stage:
        outcome = await Play(stage, load, plan(), print, start_s=START_S, kept_s=0).run()
    print(last_line(outcome))
    if outcome.verdict.complaints:
        keep(tmp_path, SEED, plan(), outcome)
        keep_logs(directory, tmp_path)
    assert not outcome.verdict.complaints, "\n".join([f"see {tmp_path}", *outcome.verdict.complaints[:20]])
    assert outcome.fires > 500
    assert len(outcome.happened) == len(SCRIPT)
    assert outcome.worst_recovery_s < BOUND_S
