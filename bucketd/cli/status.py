"""`bucketd status`: the cluster at one glance."""

from __future__ import annotations

import typer

from bucketd.cli.options import Json
from bucketd.cli.output import emit, plain, stdout
from bucketd.cli.progress import working
from bucketd.cli.session import session


def status(context: typer.Context, as_json: Json = False) -> None:
    """Shows schedules, runs of the last minute, lateness, backlog, and which node owns which of the 256 partitions.

    Counts of runs stop at 100,000. For a verdict and advice see `bucketd doctor`.
    """
    from bucketd.cli.drawing import drawn
    from bucketd.cli.readings import reader

    with working("reading"), reader(session(context).settings()) as source:
        reading = source.read()
    if not as_json:
        stdout().print(drawn(reading))
        return
    figures = plain(reading.status)
    assert isinstance(figures, dict)
    emit(figures | {"late_p50_s": reading.late_p50_s, "late_p99_s": reading.late_p99_s, "nodes": reading.owners})
