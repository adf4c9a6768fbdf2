"""The demo in five acts: open, load, fire and kill, backfill, verdict."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from types import FrameType

import psycopg
from rich.console import Console

from bucketd.client import Client
from bucketd.demo import seed, table
from bucketd.demo.deliveries import DeliveryLog
from bucketd.demo.expect import Occurrence, occurrences
from bucketd.demo.load import TARGET, put
from bucketd.demo.screen import Screen
from bucketd.demo.stage import PACE, Actor, DemoError, Stage
from bucketd.demo.verdict import Row, Verdict, judge
from bucketd.demo.watch import View, Watch
from bucketd.store.statements import statements

TICK_S = 0.2
READY_S = 30.0
TAKE_OVER_S = 30.0
HEAL_S = 120.0  # what the engine promises: this long after a fault, every occurrence that was due has its run
BACKFILL_S = 60.0
LEAD_S = 3  # from the begin of loading to the first instant of the load
DAY_S = 86_400
FAILED = 1


def demo(*, quick: bool = False, keep: bool = False, console: Console | None = None) -> int:
    """Runs the demo; 0 only if every occurrence was delivered, none twice and none early.

    `quick`: less of everything, under a minute. `keep`: leave the directory with data, logs and record, and say where.
    Raises EmbeddedError where servers cannot be started. Leaves nothing running, on Ctrl-C and SIGTERM too.
    """
    console = console or Console(highlight=False)
    before = signal.signal(signal.SIGTERM, _interrupt)
    stage = Stage(keep=keep)
    try:
        with stage:
            return _play(stage, console, seed.QUICK if quick else seed.FULL)
    except DemoError as error:
        console.print(f"✘ {error}", style="bold red", markup=False, soft_wrap=True)
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, before)
        if keep:
            console.print(f"kept: {stage.directory}", soft_wrap=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _play(stage: Stage, console: Console, scale: seed.Scale) -> int:
    with Screen(console) as screen, ExitStack() as stack:
        play = _open(stage, screen, scale, stack)
        play.gather()
        play.load()
        play.fire()
        play.backfill()
        verdict = play.close()
    table.show(console, verdict, screen.elapsed_s)
    return 0 if verdict.good else FAILED


def _open(stage: Stage, screen: Screen, scale: seed.Scale, stack: ExitStack) -> Play:
    """Servers and the target; what is opened towards them is closed before they stop."""
    screen.act(1, "two servers, two schedulers, two runners, one target")
    stage.start_servers()
    screen.say("Postgres and Redis are up, in a directory of their own")
    url = stage.start_target()
    log = stack.enter_context(closing(DeliveryLog(stage.deliveries)))
    dead_after_s = float(PACE["BUCKETD_RUNNER_DEAD_AFTER_S"])
    watch = stack.enter_context(closing(Watch(stage.dsn, stage.redis_url, log, dead_after_s)))
    client = stack.enter_context(Client(stage.dsn, redis_url=stage.redis_url))
    client.targets.put(TARGET, url)
    return Play(stage, screen, scale, watch, log, client)


@dataclass(slots=True)
class Play:
    """One performance; the acts in order. What a later act needs of an earlier one stands in the fields."""

    stage: Stage
    screen: Screen
    scale: seed.Scale
    watch: Watch
    log: DeliveryLog
    client: Client
    product: list[seed.Job] = field(default_factory=list)
    fires: set[Occurrence] = field(default_factory=set)
    loaded_s: tuple[int, int] = (0, 0)  # begin and end of loading: instants between may fire or not
    start_s: int = 0
    disturbed_s: tuple[float, float] = (0.0, 0.0)

    def gather(self) -> None:
        """2 scheduler nodes and 2 runners; all partitions are owned in the end."""
        for number in (1, 2):
            self.stage.start_scheduler(f"scheduler {number}")
            self.stage.start_runner(f"runner {number}")
        self._wait(self._all_there, READY_S, "two schedulers that share all partitions, and two runners")
        self.screen.say("every partition has its owner, both runners are alive", "green", mark="✔")

    def load(self) -> None:
        """The product, and the load whose first instant comes right after."""
        self.screen.act(2, "load schedules")
        begin_s = int(time.time())
        self.product = seed.product(self.scale, begin_s)
        put(self.client, self.product, lambda done, total: None)
        self.loaded_s = (begin_s, ceil(time.time()))
        self.watch.live_from_s = begin_s
        self.screen.say(
            f"{len(self.product)} schedules of {self.scale.tenants} tenants in as many zones around the world"
        )
        self.start_s = ceil(time.time()) + LEAD_S
        jobs = seed.load(self.scale, self.start_s)
        put(self.client, jobs, lambda done, total: None)
        if time.time() >= self.start_s:
            raise DemoError(
                f"loading {len(jobs):,} schedules took over {LEAD_S} s: the machine is too busy; try --quick"
            )
        self.fires = occurrences(jobs, self.start_s, self.start_s + self.scale.window_s)
        self.watch.promise(self.fires)
        self.screen.say(
            f"{len(jobs):,} schedules that fire {len(self.fires):,} times in the next {self.scale.window_s} s"
        )

    def fire(self) -> None:
        """Watch it; half-way, in the middle of a burst, one scheduler and one runner are killed."""
        self.screen.act(3, f"fire; two processes die in a burst of {self.scale.burst} calls")
        self._until(seed.burst_at(self.scale, self.start_s) + 0.1)
        killed_s = time.time()
        for actor in (self._actor("runner 1"), self._actor("scheduler 1")):
            self.stage.kill(actor)
            self.screen.say(f"kill -9 {actor.pid}: {actor.name} is gone", "bold red", mark="✗")
        self._wait(self._healed, TAKE_OVER_S, "scheduler 2 to take all partitions over")
        self.disturbed_s = (killed_s - 1.0, time.time())
        self.screen.say(
            f"scheduler 2 owns all partitions, {time.time() - killed_s:.1f} s after the kill", "green", mark="✔"
        )
        self._until(self.start_s + self.scale.window_s)
        self._wait(lambda view: self._have(self.fires), HEAL_S, "what was due to be delivered", strict=False)

    def backfill(self) -> None:
        """The last 24 h of the product, as if it had been scheduled yesterday."""
        until_s = self.loaded_s[0]
        due = occurrences(self.product, until_s - DAY_S, until_s)
        self.screen.act(4, f"backfill the last 24 h of the product: {len(due):,} runs")
        self.watch.promise(due)
        self.client.backfill(_utc(until_s - DAY_S), _utc(until_s), labels=seed.PRODUCT)
        self._wait(lambda view: self._have(due), BACKFILL_S, "the backfill", strict=False)
        self.screen.say("the backfill is done" if self._have(due) else "the backfill is late", mark="·")

    def close(self) -> Verdict:
        """Stops everything, then compares. What the product had due meanwhile is in it, too."""
        self.screen.act(5, "stop, and compare")
        end_s = int(time.time())
        meanwhile = occurrences(self.product, self.loaded_s[1], end_s)
        self.watch.promise(meanwhile)
        self._wait(lambda view: view.overdue == 0, HEAL_S, "what the product had due", strict=False)
        self.stage.stop()
        stopped_s = ceil(time.time())
        self.log.read()
        rows = _rows(self.stage.dsn)
        either_way = occurrences(self.product, *self.loaded_s) | occurrences(self.product, end_s, stopped_s)
        return judge(self.watch.promised, either_way, self.log.all, rows, self.loaded_s[0], self.disturbed_s)

    def _until(self, at_s: float) -> None:
        while time.time() < at_s:
            self._look()
            time.sleep(max(0.0, min(TICK_S, at_s - time.time())))

    def _wait(self, condition: Callable[[View], bool], limit_s: float, what: str, *, strict: bool = True) -> None:
        """Until it holds. After `limit_s`: DemoError if `strict`, else go on, and the verdict will show it."""
        end = time.monotonic() + limit_s
        while not condition(self._look()):
            if time.monotonic() > end:
                if strict:
                    raise DemoError(f"waited {limit_s:.0f} s for {what}, in vain; use --keep to look at the logs")
                self.screen.say(f"waited {limit_s:.0f} s for {what}, in vain", "bold red", mark="✘")
                return
            time.sleep(TICK_S)

    def _look(self) -> View:
        self.stage.check()
        view = self.watch.look()
        self.screen.show(view, self.stage.actors)
        return view

    def _have(self, due: set[Occurrence]) -> bool:
        return self.watch.delivered(due) == len(due)

    def _all_there(self, view: View) -> bool:
        schedulers = {actor.pid for actor in self.stage.actors if actor.name.startswith("scheduler")}
        runners = {actor.pid for actor in self.stage.actors if actor.name.startswith("runner")}
        return view.complete and {pid for pid, _ in view.owners} == schedulers and runners <= view.runners

    def _healed(self, view: View) -> bool:
        alive = {actor.pid for actor in self.stage.actors if actor.alive}
        return view.complete and {pid for pid, _ in view.owners} <= alive and view.overdue == 0

    def _actor(self, name: str) -> Actor:
        return next(actor for actor in self.stage.actors if actor.name == name)


def _rows(dsn: str) -> list[Row]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(statements("ledger")["runs"]).fetchall()
    return [
        Row((tenant, name, int(at_s)), status, attempt, missed, finished_s)
        for tenant, name, at_s, status, attempt, missed, finished_s in found
    ]


def _utc(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
