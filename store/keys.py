"""Every Redis key name, and the hash tags that spread them.

All keys of a partition carry the tag of its shard, so each script touches one slot and is atomic in Redis Cluster too.
Plain tags `{s00}`..`{s15}` fall on four places of the slot space only; so tag i is `{i.k}` with the smallest k whose slot lies in
the middle half of the i-th sixteenth of the 16,384 slots (Redis Cluster specification, "Hash tags").
"""

from __future__ import annotations

from binascii import crc_hqx

PARTITIONS = 256
SHARDS = 16
SLOTS = 16_384
GROUP = "runners"  # the consumer group of every queue


def slot(tag: str) -> int:
    """Slot of a hash tag: CRC16 (XMODEM) of the tag modulo 16,384."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def _tag(shard: int) -> str:
    width = SLOTS // SHARDS
    low, high = shard * width + width // 4, shard * width + width * 3 // 4
    return next(tag for k in range(SLOTS) if low <= slot(tag := f"{shard}.{k}") < high)


TAGS = tuple(_tag(shard) for shard in range(SHARDS))


def shard_of(partition: int) -> int:
    """Shard of a partition."""
    return partition % SHARDS


class Keys:
    """Key names under one prefix; clusters that share a Redis differ in it."""

    def __init__(self, prefix: str = "bucketd") -> None:
        self.prefix = prefix
        self._fence = tuple(f"{prefix}:{{{TAGS[shard_of(p)]}}}:fence:{p}" for p in range(PARTITIONS))
        self._lease = tuple(f"{prefix}:{{{TAGS[shard_of(p)]}}}:lease:{p}" for p in range(PARTITIONS))
        self._bucket = tuple(f"{prefix}:{{{TAGS[shard_of(p)]}}}:bucket:{p}:" for p in range(PARTITIONS))
        self._crowd = tuple(f"{prefix}:{{{TAGS[shard_of(p)]}}}:crowd:{p}:" for p in range(PARTITIONS))
        self.main_queues = tuple(f"{prefix}:{{{tag}}}:queue" for tag in TAGS)
        self.crowd_queues = tuple(f"{prefix}:{{{tag}}}:crowd-queue" for tag in TAGS)
        self.queues = self.main_queues + self.crowd_queues

    def bucket(self, partition: int, minute: int, crowd: bool = False) -> str:
        """Sorted set of the fires of one partition due in one minute (minutes since the epoch); score = due in ms. What a tenant has
        due at one instant in very large numbers stands in one of its own, the crowd's, so that nobody is drained behind it."""
        return f"{(self._crowd if crowd else self._bucket)[partition]}{minute}"

    def fence(self, partition: int) -> str:
        """Hash: epoch, token, plan_seq of the partition's owner."""
        return self._fence[partition]

    def lease(self, partition: int) -> str:
        """String with a time to live: the incarnation that owns the partition."""
        return self._lease[partition]

    def queue(self, partition: int, crowd: bool = False) -> str:
        """Stream of the partition's shard: drained fires on their way to a runner; those of crowds in one of their own."""
        return (self.crowd_queues if crowd else self.main_queues)[shard_of(partition)]

    @property
    def members(self) -> str:
        """Sorted set: scheduler nodes; score = when the node is believed gone, ms of the cluster's clock."""
        return f"{self.prefix}:{{ring}}:members"

    @property
    def member_info(self) -> str:
        """Hash: node -> msgpack of what operators want to know about it (host, pid, partitions, lag)."""
        return f"{self.prefix}:{{ring}}:info"

    @property
    def names(self) -> str:
        """Hash: node -> its name for operators, which its next incarnation may have again."""
        return f"{self.prefix}:{{ring}}:names"

    @property
    def freed(self) -> str:
        """Hash: partition -> msgpack of since when it is nobody's and how busy it was; written by who gave it up, gone when it is taken."""
        return f"{self.prefix}:{{ring}}:freed"

    def timeline(self, database: str) -> str:
        """String with a time to live: the newest timeline of a Postgres database that anybody works on."""
        return f"{self.prefix}:{{ring}}:timeline:{database}"

    @property
    def weights(self) -> str:
        """Hash: node (or @name) -> weight in the ring, set by operators (default 1; 0 = cordoned)."""
        return f"{self.prefix}:{{ring}}:weights"

    @property
    def cordons(self) -> str:
        """Hash: node (or @name) -> since when it is to own nothing, epoch seconds; set by operators."""
        return f"{self.prefix}:{{ring}}:cordons"

    @property
    def moves(self) -> str:
        """Hash: partition -> node (or @name) that is to own it, set by operators."""
        return f"{self.prefix}:{{ring}}:moves"

    @property
    def undo(self) -> str:
        """Hash: partition -> what stood in `moves` before the last rebalancing touched it (empty: nothing)."""
        return f"{self.prefix}:{{ring}}:undo"

    @property
    def rebalancing(self) -> str:
        """String with a time to live: who moves partitions just now."""
        return f"{self.prefix}:{{ring}}:rebalancing"

    @property
    def nudge(self) -> str:
        """Pub/sub channel: a schedule was written; look at the change feed now."""
        return f"{self.prefix}:nudge"

    @property
    def ring_changed(self) -> str:
        """Pub/sub channel: a node joined, left or released partitions; look at the ring now."""
        return f"{self.prefix}:ring-changed"

    @property
    def wake(self) -> str:
        """Pub/sub channel: rows with wake_at now were written (triggers, backfills, releases); runners look at once."""
        return f"{self.prefix}:wake"

    @property
    def cancel(self) -> str:
        """Pub/sub channel: ids of runs that were ended, joined by commas; whoever calls one of them closes the connection."""
        return f"{self.prefix}:cancel"

    @property
    def limits(self) -> str:
        """Hash: since when every limit is counted, and when somebody last counted; ms of Redis's clock. All keys of limits share a tag:
        one script looks at all that a run needs."""
        return f"{self.prefix}:{{limits}}:state"

    def limits_of(self, caller: str) -> str:
        """String with a time to live: number of the caller's last report."""
        return f"{self.prefix}:{{limits}}:caller:{caller}"

    def limit(self, name: str) -> str:
        """Of a cap a hash, caller -> "held:until"; of a rate a hash of its bucket: tokens, at. Both with a time to live."""
        return f"{self.prefix}:{{limits}}:{name}"
