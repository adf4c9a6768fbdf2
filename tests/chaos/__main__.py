"""`python -m tests.chaos`, `make chaos`: one play by a seed, with live progress, and a verdict in its last line.

Ends with code 1 and the evidence in a directory if anything is off.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.chaos import disk
from tests.chaos.evidence import clean, keep
from tests.chaos.fault import Shape
from tests.chaos.faults import KINDS
from tests.chaos.plan import Event, draw
from tests.chaos.play import START_S, Outcome, Play, last_line
from tests.chaos.screen import Screen
from tests.chaos.stage import DAY_S, Stage
from tests.chaos.workload import Workload
from tests.support.cluster import PACE

SHOWN = 20
LEAD_S, CALM_S = 12, 20  # nothing goes wrong at first, and at the end of the load
END_S = 85  # after the load: its last minute is settled, everything is stopped
AFTER_MIDNIGHT_S = 60  # of the load at least lies there; whole minutes, so that it ends with one


def main() -> int:
    """Exit code."""
    options = _parser().parse_args()
    seed = options.seed if options.seed is not None else secrets.randbelow(10**6)
    kept, options.keep = options.keep is not None, options.keep or Path(tempfile.mkdtemp(prefix="bucketd-chaos-"))
    console = Console(highlight=False, soft_wrap=True)
    kinds = [kind for kind in KINDS if options.only in kind.name]
    left_out = {kind.name: why for kind in kinds if (why := kind.missing())}
    load_s = int(options.minutes * 60 - START_S - END_S)
    shape = shape_of(load_s)
    possible = [kind for kind in kinds if kind.name not in left_out]
    events = draw(seed, possible, shape, from_s=LEAD_S, until_s=load_s - CALM_S)
    _print_plan(console, seed, events, left_out)
    try:
        outcome = asyncio.run(play(seed, shape, events, load_s, options, Screen(console)))
    except BaseException:
        clean(options.keep, keep=True)
        print(f"the play broke off; kept: {options.keep}")
        raise
    return report(console, options.keep, kept, seed, events, outcome)


def report(console: Console, directory: Path, kept: bool, seed: int, events: Sequence[Event], outcome: Outcome) -> int:
    """Complaints, the evidence for them, and the last line; the exit code."""
    complaints = outcome.verdict.complaints
    for complaint in complaints[:SHOWN]:
        console.print(complaint, markup=False)
    if len(complaints) > SHOWN:
        console.print(f".. and {len(complaints) - SHOWN} more")
    console.print(f"slowest: {outcome.slowest}", markup=False)
    if kept or complaints:
        keep(directory, seed, events, outcome)
    clean(directory, keep=kept or bool(complaints))
    if kept or complaints:
        print(f"kept: {directory}")
    print(last_line(outcome))
    return int(bool(complaints))


def shape_of(load_s: float) -> Shape:
    """The stage for a load of that length: midnight comes after about two thirds of it."""
    after_s = max(AFTER_MIDNIGHT_S, load_s / 3) // 60 * 60
    return Shape(nodes=3, runners=3, midnight_s=load_s - after_s)


async def play(
    seed: int, shape: Shape, events: Sequence[Event], load_s: int, options: argparse.Namespace, screen: Screen
) -> Outcome:
    """On a stage of its own, which is taken down in the end."""
    async with Stage(
        shape, options.keep, pace=PACE if options.quick else None, small_disks=disk.missing() is None
    ) as stage:
        begin_s = (int(time.time()) // DAY_S + 1) * DAY_S - int(shape.midnight_s)
        load = Workload(seed, begin_s, begin_s + load_s, options.scale)
        with screen:
            return await screen.show(Play(stage, load, events, screen.tell))


def _print_plan(console: Console, seed: int, events: Sequence[Event], left_out: dict[str, str]) -> None:
    console.print(f"seed {seed}: {len(events)} faults, in seconds after the begin of the load")
    for event in events:
        console.print(f"  {event}", markup=False)
    for name, why in left_out.items():
        console.print(f"  left out: {name} ({why})", markup=False)
    console.print(f"again: make chaos SEED={seed}    began {time.strftime('%H:%M:%S')}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    seed = os.environ.get("SEED")
    parser.add_argument("--seed", type=int, default=int(seed) if seed else None)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES") or 10))
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="of the load; 1: about 40 fires a second")
    parser.add_argument(
        "--quick", action="store_true", help="leases and heartbeats of a few seconds, as the tests have them"
    )
    parser.add_argument("--keep", type=Path, help="a directory for logs and evidence, kept whatever comes out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
