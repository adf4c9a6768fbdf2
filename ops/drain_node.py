#!/usr/bin/env python3
"""Drains a scheduler node: it hands over what it owns, and others own all of it when this ends with code 0. Then stop the node.

    python ops/drain_node.py                  the node of this machine or container, by BUCKETD_NODE_NAME or the host's name
    python ops/drain_node.py rack-7           whoever has that name, until `bucketd ring uncordon rack-7`
    python ops/drain_node.py 3f0c6a1e         one incarnation, by the beginning of its id
    python ops/drain_node.py --timeout 20     seconds to wait at most; 30 if absent

The same as `bucketd ring drain`, as a preStop hook or a step of a deploy calls it. Needs BUCKETD_DSN and BUCKETD_REDIS_URL.
Codes: 0 drained; 1 not in time, it stays cordoned; 2 wrong usage; 3 no such node; 4 a store is away; 5 no other node could take over, and
nothing was changed. Stopping a node without draining loses nothing either: SIGTERM hands over too. Draining first tells whether it worked.
"""

import sys

from bucketd.cli import main

if __name__ == "__main__":
    sys.exit(main(["ring", "drain", *sys.argv[1:]]))
