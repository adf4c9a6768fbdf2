"""`bucketd target secret ..`: what requests to a target are signed with."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bucketd.cli import options
from bucketd.cli.exits import UNHEALTHY
from bucketd.cli.output import emit, note, say
from bucketd.cli.progress import bar
from bucketd.cli.session import session

group = typer.Typer(no_args_is_help=True, help="Secrets that sign requests (Standard Webhooks), and what seals them.")

TargetName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the target.", show_default=False)]


@group.command("new-key")
def new_key() -> None:
    """Prints a new key for BUCKETD_SECRET_KEYS, which seals secrets in the database. Keep it where passwords are kept.

    To change it: put the new one in front (new,old), restart runners, `bucketd target secret reseal`, take the old one out.
    """
    from bucketd.store.keyring import new_key as made

    say(made())


@group.command()
def rotate(
    context: typer.Context,
    name: TargetName,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Your own secret (whsec_..), read from stdin; else one is made.")
    ] = False,
    keep_old: Annotated[str, typer.Option(help="How long the old secret signs too: 0, 90m, 24h; 30d at most.")] = "24h",
    as_json: options.Json = False,
) -> None:
    """Gives the target a new secret and prints it, this once. Requests are signed with it from now on."""
    given = sys.stdin.read().strip() if from_stdin else None
    keep_s = int(options.fraction(keep_old, "keep_old"))
    with session(context).client() as client:
        secret = client.targets.rotate_secret(name, given, keep_old_s=keep_s)
    if as_json:
        emit({"target": name, "keep_old_s": keep_s} | ({} if given else {"secret": secret}))
    elif given:
        say(f"{name}: requests are signed with the secret that you gave")
    else:
        say(secret)
        note("this is the only time that it is shown; give it to who receives the calls")


@group.command()
def drop(context: typer.Context, name: TargetName, yes: options.Yes = False) -> None:
    """Takes the secret from the target: its requests go unsigned from then on."""
    with session(context).client() as client:
        client.targets.get(name)  # ask about what exists only
        options.confirmed(f"Call {name} unsigned from now on?", yes)
        client.targets.drop_secret(name)
    say(f"dropped: {name} is called unsigned")


@group.command()
def reseal(context: typer.Context, as_json: options.Json = False) -> None:
    """Seals all secrets anew with the first key of BUCKETD_SECRET_KEYS. Code 1: there are some that none of the keys opens."""
    with session(context).client() as client, bar("sealing") as report:
        done = client.targets.reseal_secrets(progress=lambda secrets: report(secrets, None))
    if as_json:
        emit(done)
    else:
        say(f"sealed anew: the secrets of {done.secrets} targets")
        if done.unreadable:
            note(
                f"no key opens those of {', '.join(done.unreadable)}: add the key they were set with, or rotate them",
                "bold red",
            )
    if done.unreadable:
        raise typer.Exit(UNHEALTHY)
