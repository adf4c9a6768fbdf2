"""Whether this node's tzdata are good enough for the cluster: whoever has older ones must not compute."""

from __future__ import annotations

from bucketd.store.errors import SchemaError
from bucketd.timing import TZDATA_VERSION
from bucketd.timing.zones import release_order


def unfit(cluster: str | None) -> SchemaError | None:
    """What to stop with if the cluster computes with the release `cluster` (None: with none yet); None if this node's is as new."""
    if cluster is None or cluster == TZDATA_VERSION:
        return None
    try:
        older = release_order(TZDATA_VERSION) < release_order(cluster)
    except ValueError as error:
        return SchemaError(f"{error} in tzdata_version of bucketd.cluster; correct it")
    if not older:
        return None
    return SchemaError(
        f"expected tzdata {cluster} or newer, which the cluster computes with, got {TZDATA_VERSION} on this node:"
        " upgrade the package tzdata here"
    )
