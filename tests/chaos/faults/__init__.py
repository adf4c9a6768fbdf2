"""All kinds of faults, by module."""

from tests.chaos.fault import Kind
from tests.chaos.faults import clocks, edits, messages, network, postgres, processes, redis, versions

KINDS: tuple[Kind, ...] = (
    *processes.KINDS,
    *redis.KINDS,
    *postgres.KINDS,
    *network.KINDS,
    *clocks.KINDS,
    *messages.KINDS,
    *versions.KINDS,
    *edits.KINDS,
)
