#!/usr/bin/env python3
"""Levels the load of the scheduler nodes: shows a plan of moves, asks, and applies it in steps with progress.

    python ops/rebalance.py --dry-run         the plan: moves, load of each node before and after; nothing is changed
    python ops/rebalance.py                   the same, then asks and moves 16 partitions at a time
    python ops/rebalance.py --step 4 --yes    4 at a time, without asking
    python ops/rebalance.py --undo            takes back what the last one moved, however far it came

The same as `bucketd ring plan --apply`. Ctrl-C ends after the step, says what was done, and --undo takes it back. Needs BUCKETD_DSN and
BUCKETD_REDIS_URL. Codes: 0 done; 1 a step did not arrive in time and was put back; 2 wrong usage; 4 a store is away; 5 somebody else moves
partitions, or the ring changed meanwhile; 130 interrupted.
"""

import sys

from bucketd.cli import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    undo = {"--undo", "--abort"} & {*arguments}
    sys.exit(main(["ring", "plan", *([] if undo else ["--apply"]), *arguments]))
