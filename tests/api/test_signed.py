"""Reports about targets that have a secret."""

import time

import pytest

from bucketd.api import App
from bucketd.client import Client
from bucketd.store.config import Settings
from bucketd.store.signing import key_of, new_secret, signature
from tests.api.conftest import Desk, LongRun
from tests.support.asgi import AsgiClient, lifespan


def signed(secret: str, webhook_id: str, body: bytes, *, at: float | None = None) -> dict[str, str]:
    """The three headers of Standard Webhooks."""
    at_s = int(time.time() if at is None else at)
    made = signature([key_of(secret)], webhook_id, at_s, body)
    return {"webhook-id": webhook_id, "webhook-timestamp": str(at_s), "webhook-signature": made}


@pytest.fixture
def secrets(api_settings: Settings, desk: Desk) -> tuple[int, str, str]:
    """A target with two valid secrets: its id, the new one, the old one."""
    target, old, new = desk.target(), new_secret(), new_secret()
    name = desk.db.execute("select name from bucketd.targets where target_id = %s", (target,)).fetchone()
    assert name is not None
    with Client(settings=api_settings) as client:
        client.targets.rotate_secret(name[0], old)
        client.targets.rotate_secret(name[0], new)
    return target, new, old


async def test_either_valid_secret_will_do(api: AsgiClient, desk: Desk, secrets: tuple[int, str, str]) -> None:
    target, *valid = secrets
    for secret in valid:
        run, body = desk.run(target=target), b'{"attempt": 1}'
        beat = await api.post(f"/runs/{run.id}/heartbeat", body, signed(secret, f"heartbeat_{run.id}_1", body))
        assert (beat.status, run.row["status"]) == (200, "running")
        headers = signed(secret, f"complete_{run.id}_1", body)
        headers["webhook-signature"] = f"v1a,other {headers['webhook-signature']}"
        assert (await api.post(f"/runs/{run.id}/complete", body, headers)).status == 200
        assert run.row["status"] == "succeeded"


def forgeries(run: LongRun, secret: str, body: bytes) -> dict[str, dict[str, str]]:
    """Requests that must not count, by what is wrong with them."""
    name = f"complete_{run.id}_1"
    good = signed(secret, name, body)
    return {
        "none": {},
        "other secret": signed(new_secret(), name, body),
        "other body": signed(secret, name, body + b" "),
        "of a heartbeat": signed(secret, f"heartbeat_{run.id}_1", body),
        "of another attempt": signed(secret, f"complete_{run.id}_2", body),
        "renamed": {**signed(secret, f"heartbeat_{run.id}_1", body), "webhook-id": name},
        "old": signed(secret, name, body, at=time.time() - 400),
        "of the future": signed(secret, name, body, at=time.time() + 400),
        "redated": {**good, "webhook-timestamp": str(int(time.time()) - 100)},
        "no time": {**good, "webhook-timestamp": "x"},
        "long time": {**good, "webhook-timestamp": "1" * 5_000},
        "no version": {**good, "webhook-signature": good["webhook-signature"].removeprefix("v1,")},
        "empty": {**good, "webhook-signature": ""},
        "not ASCII": {**good, "webhook-signature": "v1,ü"},
    }


async def test_forgeries_do_not_count(api: AsgiClient, desk: Desk, secrets: tuple[int, str, str]) -> None:
    run, body = desk.run(target=secrets[0]), b'{"attempt": 1}'
    before = run.row["wake_at"]
    for what, headers in forgeries(run, secrets[1], body).items():
        answer = await api.post(f"/runs/{run.id}/complete", body, headers)
        assert (answer.status, "www-authenticate" in answer.headers) == (401, True), what
        assert secrets[1] not in answer.raw.decode()
    assert (run.row["status"], run.row["wake_at"]) == ("running", before)


async def test_a_secret_that_cannot_be_opened_lets_nobody_in(
    url: str, desk: Desk, secrets: tuple[int, str, str]
) -> None:
    run, body = desk.run(target=secrets[0]), b'{"attempt": 1}'
    async with lifespan(app := App(Settings.load({}, dsn=url))):
        headers = signed(secrets[1], f"complete_{run.id}_1", body)
        answer = await AsgiClient(app).post(f"/runs/{run.id}/complete", body, headers)
    assert (answer.status, run.row["status"]) == (503, "running")
    assert "key ring" in answer.json["detail"]
