"""All guards that `make mutate` takes away, along the way of a fire. A new guard of the product gets its marker and an entry here."""

from tests.mutate.guard import Guard
from tests.mutate.guards import calls, confirm, ownership, queues, reports, results, runs, settle, wake

GUARDS: tuple[Guard, ...] = (
    *ownership.GUARDS,
    *queues.GUARDS,
    *runs.GUARDS,
    *confirm.GUARDS,
    *calls.GUARDS,
    *results.GUARDS,
    *reports.GUARDS,
    *wake.GUARDS,
    *settle.GUARDS,
)
