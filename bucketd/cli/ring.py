"""`bucketd ring show|weight|cordon|uncordon`: who owns what and how busy it is, and what operators say about nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, say
from bucketd.cli.progress import working
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from bucketd.ring.access import Access
    from bucketd.ring.who import Meant

group = typer.Typer(
    no_args_is_help=True,
    help="Who owns which partitions, and steering that. What operators say is kept in Redis, and lost with it.",
)

LIGHTEST, HEAVIEST = 0.05, 20.0
NODE = "a node's name (whoever has it, after a restart too), or the beginning of its id (this incarnation)"
Node = Annotated[str, typer.Argument(metavar="NODE", help=f"{NODE[0].upper()}{NODE[1:]}.", show_default=False)]
T = TypeVar("T")


def on_stores(context: typer.Context, work: Callable[[Access], Awaitable[T]]) -> T:
    """Runs `work` on both stores. Raises ConfigError, StoreUnavailable, SchemaError, and what it raises."""
    import asyncio

    from bucketd.ring.access import access

    settings = session(context).settings()

    async def run() -> T:
        async with access(settings) as stores:
            return await work(stores)

    return asyncio.run(run())


@group.command()
def show(
    context: typer.Context,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Every partition too: owner, epoch, lease, load, backlog.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Shows nodes with share and load, the map of partitions, and what nobody owns and for how long.

    Fires a minute are those of the last five minutes, as each owner counts them. Lateness is how long after it was due a fire left its
    bucket; the backlog is what is due and still in one. What runners have yet to do is in `bucketd status`. Code 1: some partition
    has no owner.
    """
    from bucketd.cli.exits import UNHEALTHY
    from bucketd.cli.ring_drawing import draw, draw_partitions
    from bucketd.ring.reading import look

    with working("reading"):
        picture = on_stores(context, look)
    if as_json:
        emit(picture)
    else:
        draw(picture)
        if partitions:
            draw_partitions(picture)
    if picture.unowned:
        raise typer.Exit(UNHEALTHY)


@group.command()
def weight(
    context: typer.Context,
    node: Node,
    weight: Annotated[
        float,
        typer.Argument(
            metavar="W", help="Its share relative to the others'; 1 is what everybody has.", show_default=False
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Gives a node more or less than the others. Of a machine with two cores among machines with four: 0.5."""
    if not LIGHTEST <= weight <= HEAVIEST:
        raise InvalidInput(
            f"weight: expected {LIGHTEST:g} to {HEAVIEST:g}, got {weight:g}; `bucketd ring cordon` takes everything away",
            field="weight",
        )

    async def work(stores: Access) -> Meant:
        from bucketd.ring.who import find
        from bucketd.store import ring

        meant = find(node, await stores.members())
        await ring.weigh(stores.redis, stores.keys, meant.about, weight)
        return meant

    _told(on_stores(context, work), f"has weight {weight:g}", as_json, weight=weight)


@group.command()
def cordon(context: typer.Context, node: Node, as_json: options.Json = False) -> None:
    """Takes a node's partitions away, and gives it none, until `uncordon`. `drain` does the same and waits."""

    async def work(stores: Access) -> Meant:
        from bucketd.ring.who import find
        from bucketd.store import ring

        meant = find(node, await stores.members())
        await ring.cordon(stores.redis, stores.keys, [meant.about], stores.clock.now())
        return meant

    _told(on_stores(context, work), "is cordoned", as_json, cordoned=True)


@group.command()
def uncordon(context: typer.Context, node: Node, as_json: options.Json = False) -> None:
    """Lets a node own partitions again. By its name: its living incarnations too, if they were cordoned one by one. Code 3: it was not."""

    async def work(stores: Access) -> Meant:
        from bucketd.ring.who import find
        from bucketd.store import ring

        members = await stores.members()
        meant = find(node, members)
        if not await ring.uncordon(stores.redis, stores.keys, {meant.about, *meant.nodes}):
            cordoned = ", ".join(sorted(about[:8] for about in members.words.cordons)) or "none"
            raise NotFound(f"node {meant} is not cordoned; cordoned are: {cordoned}")
        return meant

    _told(on_stores(context, work), "may own partitions", as_json, cordoned=False)


def _told(meant: Meant, what: str, as_json: bool, **said: object) -> None:
    if as_json:
        emit({"about": meant.about, "nodes": meant.nodes, **said})
        return
    alive = "" if meant.nodes else " (nobody of that name is alive)"
    say(f"node {meant} {what}{alive}")
