"""Dead letters: looking at them, and what replaying, running again and discarding do to them and to their runs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import Client, every
from bucketd.client import RunStatus
from bucketd.errors import Conflict, InvalidInput, NotFound
from bucketd.store.model import run_id
from tests.client.conftest import Rows, bury, count

HOUR = timedelta(hours=1)


def put(client: Client, name: str = "s", **fields: Any) -> UUID:
    return client.schedules.put(name, every("1m", phase=0), target="hook", **fields).id


def test_a_replay_sends_the_run_back_and_takes_the_letter_away(
    client: Client, rows: Rows, sql: psycopg.Connection[Any]
) -> None:
    made = put(client)
    at = rows.add(made, HOUR, "dead", attempt=5)
    letter = bury(sql, made, at)
    shown = client.dead.list().items[0]
    assert (shown.id, shown.run_id, shown.payload, shown.failures) == (
        letter,
        run_id(made, at),
        {"a": 1},
        ({"attempt": 5},),
    )
    assert client.dead.replay(letter).replayed == 1
    run = client.runs.get(run_id(made, at))
    assert (run.status, run.reason, run.attempt, run.finished_at) == (RunStatus.DEFERRED, "replayed", 5, None)
    assert run.wake_at is not None
    assert client.dead.list().items == ()


def test_a_replay_of_what_cannot_go_back_is_refused_whole(
    client: Client, dsn: str, rows: Rows, sql: psycopg.Connection[Any]
) -> None:
    made = put(client)
    good = bury(sql, made, rows.add(made, HOUR, "dead", attempt=5))
    old = bury(sql, made, rows.now() - timedelta(days=90))
    with pytest.raises(Conflict, match=rf"{old} \(the day of its run was dropped\)"):
        client.dead.replay([good, old])
    assert count(sql, "dead_letters") == 2
    with psycopg.connect(dsn) as connection:  # in the caller's transaction the refusal leaves no half of it either
        with pytest.raises(Conflict):
            client.dead.replay([good, old], connection=connection)
        connection.commit()
    assert count(sql, "dead_letters") == 2
    with pytest.raises(NotFound):
        client.dead.replay([good, 10**9])
    done = client.dead.replay(tenant="default")
    assert (done.replayed, done.left, done.in_the_way) == (1, 1, (f"{old} (the day of its run was dropped)",))
    with pytest.raises(Conflict):
        client.dead.replay(all=True)
    would = client.dead.replay(all=True, dry_run=True)
    assert (would.replayed, would.left) == (0, 1)


def test_one_letter_and_their_count(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = put(client)
    now = datetime.now(UTC)
    ids = [bury(sql, made, now - i * HOUR, name=f"s{i % 2}") for i in range(5)]
    assert client.dead.get(ids[3]) == client.dead.list(name="s1").items[0]
    with pytest.raises(NotFound, match="does not exist"):
        client.dead.get(10**9)
    assert client.dead.count() == client.dead.count(target="hook", tenant="default") == 5
    assert (client.dead.count(name="s1"), client.dead.count(name="s0", bound=2)) == (2, 2)
    assert client.dead.count(target="nowhere") == client.dead.count(tenant="acme") == 0


def test_discarding(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = put(client)
    now = datetime.now(UTC)
    ids = [bury(sql, made, now - i * HOUR, name=f"s{i % 2}") for i in range(6)]
    with pytest.raises(NotFound):
        client.dead.discard([ids[0], 10**9])
    assert client.dead.discard(ids[0]) == 1
    assert client.dead.discard(name="s1") == 3
    assert client.dead.discard(target="nowhere") == 0
    assert [letter.id for letter in client.dead.list()] == [ids[4], ids[2]]
    assert client.dead.discard(all=True) == 2


def test_letters_are_chosen_by_all_that_is_known_of_them(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = {name: put(client, name, labels={"team": name, "x": "1"}) for name in ("a", "b")}
    now = datetime.now(UTC)
    ids = [bury(sql, made["ab"[i % 2]], now - i * HOUR, name="ab"[i % 2]) for i in range(4)]
    sql.execute("update bucketd.dead_letters set died_at = scheduled_at")
    sql.execute("update bucketd.dead_letters set reason = 'rejected' where dead_letter_id = %s", (ids[1],))
    sql.execute("update bucketd.dead_letters set schedule_id = gen_random_uuid() where dead_letter_id = %s", (ids[3],))
    for which, expected in (
        ({"reason": "rejected"}, [1]),
        ({"labels": {"team": "a"}}, [0, 2]),
        ({"labels": {"team": "b", "x": "1"}}, [1]),  # the schedule of 3 is gone
        ({"labels": {"team": "a", "x": "2"}}, []),
        ({"from_": now - HOUR}, [0, 1]),
        ({"to": now - HOUR}, [2, 3]),
        ({"from_": now - 2 * HOUR, "to": now}, [1, 2]),
        ({"name": "b", "target": "hook", "to": now - 2 * HOUR}, [3]),
    ):
        wanted: Any = which
        assert [letter.id for letter in client.dead.list(**wanted)] == [ids[i] for i in reversed(expected)], which
        assert client.dead.count(**wanted) == len(expected), which
    assert client.dead.discard(reason="rejected", labels={"team": "b"}) == 1
    with pytest.raises(InvalidInput, match="expected from_ before to"):
        client.dead.count(from_=now, to=now)
    with pytest.raises(InvalidInput, match="expected either ids"):
        client.dead.replay(ids[0], reason="rejected")
    with pytest.raises(TypeError, match="colour"):
        client.dead.list(colour="red")  # type: ignore[call-arg]


def test_a_letter_tells_what_a_replay_would_do_otherwise(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = put(client, payload={"a": 1})
    letter = bury(sql, made, datetime.now(UTC))
    sql.execute("update bucketd.dead_letters set payload = (select payload from bucketd.schedules)")
    assert client.dead.get(letter).changed == ()
    put(client, payload={"a": 2})
    assert client.dead.get(letter).changed == ("payload",)
    client.targets.put("other", "http://localhost:9/other")
    client.schedules.put("s", every("1m", phase=0), target="other", payload={"a": 1})
    assert client.dead.get(letter).changed == ("target",)
    assert client.dead.get(letter).payload == {"a": 1}
    client.schedules.delete("s")
    assert client.dead.get(letter).changed is None


def test_to_run_again_makes_a_new_run_and_keeps_the_letter(
    client: Client, rows: Rows, sql: psycopg.Connection[Any]
) -> None:
    made = put(client)
    at = rows.add(made, HOUR, "dead", attempt=5)
    letter = bury(sql, made, at)
    first = client.runs.get(client.dead.run_again(letter))
    assert (first.schedule_id, first.origin, first.attempt, first.status) == (made, "trigger", 0, RunStatus.DEFERRED)
    assert first.id != run_id(made, at)
    assert rows.status(made, at) == ("dead", None)
    assert client.dead.get(letter).id == letter
    second = client.dead.run_again(letter, discard=True)
    assert second not in (first.id, run_id(made, at))
    with pytest.raises(NotFound):
        client.dead.run_again(letter)
    gone = bury(sql, made, at)
    client.schedules.delete("s")
    with pytest.raises(Conflict, match="was deleted"):
        client.dead.run_again(gone)
