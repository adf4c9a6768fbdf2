"""`bucketd ring plan|move|unpin|drain`: moves partitions, in steps, and waits until they have arrived."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from bucketd.cli import options
from bucketd.cli.exits import UNHEALTHY
from bucketd.cli.output import emit, note, say
from bucketd.cli.progress import bar
from bucketd.cli.ring import Node, on_stores
from bucketd.cli.ring import group as group
from bucketd.cli.session import session
from bucketd.store.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    import asyncio

    from bucketd.ring.access import Access
    from bucketd.ring.drain import Drained
    from bucketd.ring.steps import Outcome, Placement
    from bucketd.ring.survey import Survey
    from bucketd.ring.who import Meant

INTERRUPTED = 130
Step = Annotated[int, typer.Option("--step", min=1, max=256, help="So many partitions at a time.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, max=3_600, help="For each step; then it is put back.")
]
Partitions = Annotated[
    list[int], typer.Argument(metavar="PARTITION..", min=0, max=255, help="Numbers, 0 to 255.", show_default=False)
]


@group.command()
def plan(
    context: typer.Context,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the moves, once they were shown and you agreed.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", "--abort", help="Take back the moves of the last --apply, however far it came.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show, whatever else is said.")] = False,
    aim: Annotated[
        float, typer.Option("--aim", min=1.01, max=10, help="Load of the busiest node over its share, at most.")
    ] = 1.1,
    step: Step = 16,
    timeout: Timeout = 30.0,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Levels the load that nodes measured with few moves: shows them, and the load before and after.

    With --apply, partitions move in steps; each step waits until the new owners plan and drain. A step that takes too long is put back,
    and the rest is left undone: code 1. Ctrl-C ends after the step: code 130. The moves hold while their nodes live, and beat the
    ring's own bound; by name, if the name is one node's alone, so that a restart keeps them.
    """
    if apply and undo:
        raise InvalidInput("expected one of --apply and --undo, got both; nothing was changed")
    from bucketd.cli.ring_drawing import draw_plan

    survey = on_stores(context, _survey)
    if undo:
        wanted = survey.undo
    else:
        survey.level(aim)
        wanted = survey.placements
        if not as_json:
            draw_plan(survey)
    if dry_run or not (apply or undo) or not wanted:
        if as_json:
            emit(survey.document(undo=undo))
        elif undo:
            say(f"would undo: {len(wanted)} moves" if wanted else "nothing to undo")
        return
    options.confirmed(f"{'Undo' if undo else 'Make'} {len(wanted)} moves, {step} at a time?", yes)
    outcome = _placed(context, survey, wanted, step, timeout, undo=undo)
    if outcome.done and not undo:
        note("take them back with `bucketd ring plan --undo`")
    _end(outcome, as_json, survey.document(undo=undo), "taken back" if undo else "moved")


async def _survey(stores: Access) -> Survey:
    from bucketd.ring.survey import survey

    return await survey(stores)


def _placed(
    context: typer.Context, survey: Survey, wanted: Sequence[Placement], step: int, timeout_s: float, *, undo: bool
) -> Outcome:
    """Applies what was shown. Raises Conflict if the ring is another one by now."""

    async def work(stores: Access) -> Outcome:
        from bucketd.ring.steps import Mover
        from bucketd.store import ring

        if not survey.still_holds(await stores.members()):
            raise Conflict(
                "the ring has changed since the moves were shown: expected the same nodes and words; look again"
            )
        with interruptible() as stop, bar("partitions moved") as report:
            outcome = await Mover(stores, report, stop, step, timeout_s, undo=not undo).place(wanted)
        if undo and not outcome.left:
            await ring.forget_undo(stores.redis, stores.keys)
        return outcome

    return on_stores(context, work)


@contextmanager
def interruptible() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one ends the process as ever."""
    import asyncio

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def ask_for_end() -> None:
        stop.set()
        restore()
        note("ends after this step; once more to leave at once", "yellow")

    def restore() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask_for_end)
    try:
        yield stop
    finally:
        restore()


def _end(outcome: Outcome, as_json: bool, document: dict[str, object], done_to: str) -> None:
    done, left = len(outcome.done), len(outcome.left)
    if as_json:
        emit({**document, "done": done, "left": left, "problem": outcome.problem})
    else:
        say(f"{done_to}: {done} of {done + left} partitions")
    if outcome.problem:
        note(outcome.problem, "bold red")
        raise typer.Exit(UNHEALTHY)
    if left:
        raise typer.Exit(INTERRUPTED)


@group.command()
def move(
    context: typer.Context,
    partitions: Partitions,
    node: Node,
    timeout: Timeout = 30.0,
    as_json: options.Json = False,
) -> None:
    """Moves partitions to a node, and waits until they have arrived; if they do not, puts it back: code 1.

    They stay there while it lives and is not cordoned, however full it is, until `unpin`.
    """

    async def work(stores: Access) -> Outcome:
        from bucketd.ring.steps import Mover, Placement
        from bucketd.ring.who import find

        meant = find(node, await stores.members())
        if len(meant.nodes) != 1:
            raise InvalidInput(
                f"node: expected a living one, got {meant} with {len(meant.nodes)} incarnations", field="node"
            )
        wanted = [Placement(partition, meant.about, meant.nodes[0]) for partition in dict.fromkeys(partitions)]
        with interruptible() as stop, bar("partitions moved") as report:
            return await Mover(stores, report, stop, timeout_s=timeout).place(wanted)

    _end(on_stores(context, work), as_json, {}, "moved")


@group.command()
def unpin(
    context: typer.Context,
    partitions: Annotated[
        list[int] | None,
        typer.Argument(metavar="PARTITION..", min=0, max=255, help="Numbers, 0 to 255.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that were moved.")] = False,
    timeout: Timeout = 30.0,
    as_json: options.Json = False,
) -> None:
    """Leaves partitions to the ring again, and waits until they have arrived. Code 1: not in time."""
    if everything == bool(partitions):
        raise InvalidInput("expected either --all, or partitions")

    async def work(stores: Access) -> Outcome:
        from bucketd.ring.steps import Mover, restored

        ring = await stores.members()
        moved = ring.words.moves
        wanted = restored(ring, {p: None for p in (moved if everything else partitions or ()) if p in moved})
        with interruptible() as stop, bar("partitions left to the ring") as report:
            return await Mover(stores, report, stop, timeout_s=timeout).place(wanted)

    _end(on_stores(context, work), as_json, {}, "left to the ring")


@group.command()
def drain(
    context: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="A name or the beginning of an id; absent: the node of this machine."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, max=3_600, help="Wait so long at most.")
    ] = 30.0,
    force: Annotated[
        bool, typer.Option("--force", help="Also if no other node can take over: nothing fires then.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Cordons a node and waits until it owns nothing and others own all of it. For deploys: then stop it.

    Without NODE: the incarnation that has this machine's name; it alone is cordoned, and who comes after it begins afresh. By name, the
    cordon stays until `uncordon`. Code 1: not in time; 3: no such node; 5: no other node could take over, nothing was changed.
    """

    async def work(stores: Access) -> tuple[Meant, Drained]:
        from bucketd.ring.drain import drain as drain_node
        from bucketd.ring.who import find, here

        ring = await stores.members()
        meant = here(session(context).settings(), ring) if node is None else find(node, ring)
        if not meant.nodes:
            raise NotFound(f"no node {meant} is alive; to keep partitions from those to come: `bucketd ring cordon`")
        with bar("partitions handed over") as report:
            return meant, await drain_node(stores, meant, timeout_s=timeout, force=force, report=report)

    meant, found = on_stores(context, work)
    if as_json:
        emit({"about": meant.about, "nodes": meant.nodes, "over": found.over, "drained": found})
    elif found.over:
        say(f"drained: node {meant} owns nothing; {found.had} partitions are with others")
    if not found.over:
        note(
            f"node {meant} still owns {found.left} of {found.had} partitions, and nobody owns {found.unowned}, after {timeout:g} s;"
            " it stays cordoned; `bucketd ring show` tells more",
            "bold red",
        )
        raise typer.Exit(UNHEALTHY)
