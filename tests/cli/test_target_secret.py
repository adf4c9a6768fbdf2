"""`bucketd target secret ..`: a secret is printed once, by who makes it, and never again."""

import pytest

from bucketd.receiver import Receiver
from bucketd.store.keyring import new_key
from bucketd.store.signing import key_of, new_secret
from tests.cli.conftest import Cli
from tests.support.target import Target

KEY = new_key()


def test_from_a_key_to_a_dropped_secret(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.done("target", "put", "hook", "http://example.com/")
    refused = cli("target", "secret", "rotate", "hook")
    assert refused.code == 2
    assert "bucketd target secret new-key" in refused.err
    key = cli.done("target", "secret", "new-key").out.strip()
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", key)
    made = cli.done("target", "secret", "rotate", "hook")
    secret = made.out.strip()
    assert key_of(secret)
    assert "only time" in made.err
    given = new_secret()
    answer = cli.done("target", "secret", "rotate", "hook", "--stdin", "--keep-old", "0", stdin=f"{given}\n")
    again = cli.done("target", "secret", "rotate", "hook", "--stdin", "--json", stdin=given)
    assert again.json == {"target": "hook", "keep_old_s": 86_400}
    assert cli.done("target", "show", "hook", "--json").json["signed"] is True
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", f"{new_key()},{key}")
    resealed = cli.done("target", "secret", "reseal")
    assert resealed.out == "sealed anew: the secrets of 1 targets\n"
    shown = [
        answer,
        again,
        resealed,
        cli.done("config"),
        cli.done("target", "show", "hook"),
        cli.done("audit", "--json"),
    ]
    for hidden in (secret, given, key):
        assert all(hidden.strip("=") not in result.out + result.err for result in shown)
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", new_key())
    stuck = cli("target", "secret", "reseal")
    assert (stuck.code, "hook" in stuck.err) == (1, True)
    assert cli("target", "secret", "drop", "hook").code == 2  # nobody can be asked
    assert cli.done("target", "secret", "drop", "hook", "--yes").out == "dropped: hook is called unsigned\n"
    assert cli.done("target", "show", "hook", "--json").json["signed"] is False


def test_a_bad_secret_is_not_echoed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", KEY)
    cli.done("target", "put", "hook", "http://example.com/")
    result = cli("target", "secret", "rotate", "hook", "--stdin", stdin="hunter2")
    assert result.code == 2
    assert "whsec_" in result.err
    assert "hunter2" not in result.err


@pytest.mark.parametrize(("options", "raw"), [((), False), (("--batch-max", "5"), False), (("--body", "raw"), True)])
def test_a_trial_call_is_signed_like_any_other(
    cli: Cli, target: Target, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], raw: bool
) -> None:
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", KEY)
    cli.done("target", "put", "hook", target.url, *options)
    secret = cli.done("target", "secret", "rotate", "hook").out.strip()
    cli.done("target", "test", "hook", "--payload", '{"a": 1}')
    (request,) = target.requests
    (run,) = Receiver(secret, raw=raw).check(request.headers, request.raw).runs
    assert (run.schedule, run.tenant, run.attempt, run.payload) == ("bucketd-test", "default", 1, {"a": 1})
    monkeypatch.setenv("BUCKETD_SECRET_KEYS", new_key())
    refused = cli("target", "test", "hook")
    assert refused.code == 5
    assert "not called unsigned" in refused.err
    assert len(target.requests) == 1
