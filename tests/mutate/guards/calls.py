"""Step 4, run row to target: who may call, what is called, and where a connection may go."""

from tests.mutate.guard import Guard

EGRESS = "tests/runner/test_egress_calls.py"
JUDGED = "        reason = self._why_not(address, passage)  # guard: egress\n"

GUARDS = (
    Guard(
        name="lease-before-call",
        file="runner/lanes.py",
        text="return not self._closed and self._heartbeat.believed()  # guard: lease-before-call",
        instead="return not self._closed",
        invariant="I2 one runner an attempt",
        why="a runner that slept calls runs that others were given meanwhile",
        tests=("tests/runner/test_heartbeat.py::test_without_a_believed_lease_no_call_begins",),
    ),
    Guard(
        name="ended-run",
        file="runner/single.py",
        text="        if not self._cancellations.wants(run):  # guard: ended-run\n            return ENDED\n",
        instead="",
        invariant="I5 no call of a run that was ended",
        why="a claimed run that waits for its turn is called after it was cancelled",
        tests=("tests/runner/test_ended_before_call.py::test_a_run_that_was_ended_while_it_waited_is_not_called",),
    ),
    Guard(
        name="target-revision",
        file="runner/lanes.py",
        text="await self._targets.need(revisions)  # guard: target-revision",
        instead="await self._targets.need(dict.fromkeys(revisions, 0))",
        invariant="I11 URL and secret of its own schedule, as they stand",
        why="a target that was moved is called where it was",
        tests=("tests/runner/test_calls.py::test_an_edited_target_is_called_at_its_new_url",),
    ),
    Guard(
        name="limits-after-loss",
        file="store/lua/limits.lua",
        text="or last < q.acked then since = now + q.lease_ms end -- guard: limits-after-loss",
        instead="then since = now + q.lease_ms end",
        invariant="caps hold through a loss of Redis",
        why="after a failover to an older copy the places of calls that go on are given out again",
        tests=("tests/runner/test_limits.py::test_a_redis_that_went_back_in_time_counts_as_lost",),
    ),
    Guard(
        name="egress",
        file="runner/egress.py",
        text=JUDGED,
        instead="""\
        literal = passage is not None and passage.destination.is_address
        reason = self._why_not(address, passage) if literal else None
""",
        invariant="no call into the own network",
        why="a check before the name is resolved says nothing about where the connection goes",
        tests=(f"{EGRESS}::test_all_denied_addresses_are_named", f"{EGRESS}::test_rebinding"),
    ),
    Guard(
        name="egress/judged-once",
        file="runner/egress.py",
        text=JUDGED,
        instead="""\
        host = passage.destination.host if passage is not None else address
        reason = self.__dict__.setdefault("judged", {}).setdefault(host, self._why_not(address, passage))
""",
        invariant="no call into the own network",
        why="a name that resolves to another address the second time has passed already",
        tests=(f"{EGRESS}::test_rebinding",),
    ),
)
