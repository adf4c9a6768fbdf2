"""A whole cluster, as tests/cluster has it."""

from tests.cluster.conftest import cluster

__all__ = ["cluster"]
