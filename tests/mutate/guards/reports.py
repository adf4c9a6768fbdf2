"""Reports of long runs: who may send one, and what it may still change."""

from collections.abc import Iterator

from tests.mutate.guard import Guard

SIGNED = "bucketd/api/signed.py"
REPORTS = "store/sql/long_runs.sql"
FORGED = "tests/api/test_signed.py::test_forgeries_do_not_count"
FENCED = "tests/store/test_report_fences.py::test_what_went_on_meanwhile_stays_as_it_is"


def fences() -> Iterator[Guard]:
    """Of each statement: the attempt is the token, and it is worth something until that attempt has ended."""
    for kind, table in (("heartbeat", ""), ("completion", ""), ("reported-failure", "r.")):
        indent = "    " if kind == "completion" else "        "
        yield Guard(
            name=f"attempt-of-{kind}",
            file=REPORTS,
            text=f"{indent}and {table}attempt = %(attempt)s::integer  -- guard: attempt-of-{kind}\n",
            instead="",
            invariant="I2 results from the current attempt",
            why=f"{kind}: a report about an older attempt ends or prolongs the newer one",
            tests=(f"{FENCED}[attempt-{kind}]",),
        )
        yield Guard(
            name=f"end-of-{kind}",
            file=REPORTS,
            text=f"{indent}and {table}status = 'running'  -- guard: end-of-{kind}\n",
            instead="",
            invariant="I2 an attempt ends once",
            why=f"{kind}: a late report is written over the end that counted",
            tests=(f"{FENCED}[end-{kind}]",),
        )


GUARDS = (
    Guard(
        name="report-signature",
        file=SIGNED,
        text="if not any(compare_digest(one, other) for one in given for other in ours):  # guard: report-signature",
        instead="if not (given and ours):",
        invariant="I11 who knows the secret speaks for the target",
        why="anybody ends anybody's runs",
        tests=(FORGED,),
    ),
    Guard(
        name="report-id",
        file=SIGNED,
        text='    if headers.get("webhook-id") != webhook_id:  # guard: report-id\n',
        instead='    webhook_id = headers.get("webhook-id", "")\n    if not webhook_id:\n',
        invariant="I11 who knows the secret speaks for the target",
        why="one signed heartbeat that was overheard completes its run, or another",
        tests=(FORGED,),
    ),
    Guard(
        name="report-time",
        file=SIGNED,
        text="timestamp.isdigit() and abs(now_s - int(timestamp[:12])) <= TOLERANCE_S):  # guard: report-time",
        instead="timestamp.isdigit()):",
        invariant="I11 who knows the secret speaks for the target",
        why="what was overheard is good for ever",
        tests=(FORGED,),
    ),
    *fences(),
)
