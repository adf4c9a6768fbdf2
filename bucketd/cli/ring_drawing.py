"""The ring, drawn: nodes, a map of partitions coloured by load, what operators said, and a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bucketd.cli.output import clean, note, say, short, stdout, table

if TYPE_CHECKING:
    from rich.text import Text

    from bucketd.ring.picture import PartitionView, Picture
    from bucketd.ring.survey import Survey

MAP_WIDTH = 64
BAR_WIDTH = 24
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_HEAT = ("dim", "green", "yellow", "bold red")  # of the busiest partition: nothing, up to a third, up to two, more


def draw(picture: Picture) -> None:
    """Nodes, map, what is unowned, what operators said."""
    total = sum(node.per_min for node in picture.nodes) or 1.0
    rows = [
        (
            letter,
            node.name or "-",
            node.id[:8],
            f"{node.host or '-'}:{node.pid or '-'}",
            short(node.age_s),
            f"{node.weight:g}",
            node.state,
            node.partitions,
            f"{node.per_min:,.1f}",
            "█" * round(node.per_min / total * BAR_WIDTH),
            _late(node.late_p50_ms),
            _late(node.late_max_ms),
            f"{node.backlog:,}",
            short(node.settled_lag_s),
        )
        for letter, node in zip(_letters(), picture.nodes, strict=False)
    ]
    columns = ("", "node", "id", "host:pid", ">age", ">weight", "state", ">partitions", ">fires/min", "share of fires")
    table((*columns, ">late p50", ">late max", ">backlog", ">settled"), rows, empty="no node is alive")
    stdout().print(_map(picture))
    _draw_unowned(picture)
    _draw_words(picture)
    if queued := sum(picture.queued):
        say(f"{queued:,} fires in the queues, on their way to runners")


def _letters() -> Iterable[str]:
    return (_LETTERS[place % len(_LETTERS)] for place in range(10_000))


def _late(ms: int | None) -> str:
    return short(None if ms is None else ms / 1000)


def _map(picture: Picture) -> Text:
    """256 letters, each the owner's; `.` has none. The colour is the partition's part of what the busiest one has."""
    from rich.text import Text

    letters = dict(zip((node.id for node in picture.nodes), _letters(), strict=False))
    busiest = max((partition.per_min or 0.0 for partition in picture.partitions), default=0.0)
    text = Text()
    for partition in picture.partitions:
        text.append(letters.get(partition.owner or "", "."), style=_heat(partition, busiest))
        if partition.id % MAP_WIDTH == MAP_WIDTH - 1:
            text.append(f"  {partition.id - MAP_WIDTH + 1}-{partition.id}\n", style="dim")
    text.append("a letter is the owner, . nobody; the redder, the busier", style="dim")
    return text


def _heat(partition: PartitionView, busiest: float) -> str:
    if partition.owner is None:
        return "bold red reverse"
    if not partition.per_min:
        return _HEAT[0]
    return _HEAT[min(3, 1 + int(3 * partition.per_min / busiest))]


def _draw_unowned(picture: Picture) -> None:
    if not picture.unowned:
        return
    longest = max((p.unowned_s for p in picture.unowned if p.unowned_s is not None), default=None)
    since = "nobody knows since when" if longest is None else f"the longest for {short(longest)}"
    ids = ", ".join(str(partition.id) for partition in picture.unowned[:16])
    more = f" and {len(picture.unowned) - 16} more" if len(picture.unowned) > 16 else ""
    say(f"{len(picture.unowned)} partitions are nobody's ({ids}{more}), {since}", "bold red")


def _draw_words(picture: Picture) -> None:
    said = [f"weight {weight:g} for {_about(about)}" for about, weight in sorted(picture.weights.items())]
    said += [f"{_about(about)} cordoned" for about in sorted(picture.cordons)]
    if picture.moves:
        elsewhere = sum(p.moved_to is not None and p.wanted != p.owner for p in picture.partitions)
        plural = "" if len(picture.moves) == 1 else "s"
        said.append(
            f"{len(picture.moves)} partition{plural} moved" + (f", {elsewhere} on their way" if elsewhere else "")
        )
    if said:
        say(f"said by operators: {'; '.join(said)} (kept in Redis, and lost with it)")


def _about(about: str) -> str:
    return clean(about if about.startswith("@") else about[:8])


def draw_partitions(picture: Picture) -> None:
    """A line each."""
    names = {node.id: node.name or node.id[:8] for node in picture.nodes}
    rows = (
        (
            partition.id,
            "-" if partition.owner is None else f"{names.get(partition.owner, '-')} {partition.owner[:8]}",
            "-" if partition.moved_to is None else _about(partition.moved_to),
            partition.epoch,
            short(partition.lease_ms / 1000) if partition.owner else "-",
            "-" if partition.per_min is None else f"{partition.per_min:,.1f}",
            _late(partition.late_max_ms),
            f"{partition.backlog:,}",
            short(partition.settled_lag_s),
            short(partition.unowned_s),
        )
        for partition in picture.partitions
    )
    columns = (">partition", "owner", "moved to", ">epoch", ">lease", ">fires/min", ">late max", ">backlog")
    table((*columns, ">settled", ">unowned"), rows, empty="no partition")


def draw_plan(survey: Survey) -> None:
    """Moves, and the load of each node before and after."""
    found, ring = survey.plan, survey.ring
    assert found is not None
    called = {node: f"{ring.names.get(node) or '-'} {node[:8]}" for node in found.before}
    rows = [
        (called[node], f"{before:,.1f}", f"{found.after[node]:,.1f}", sum(m.source == node for m in found.moves),
         sum(m.target == node for m in found.moves))
        for node, before in found.before.items()
    ]  # fmt: skip
    table(("node", ">fires/min before", ">after", ">gives", ">takes"), rows, empty="no node may own anything")
    moves = ((move.partition, f"{move.per_min:,.1f}", called[move.source], called[move.target]) for move in found.moves)
    if found.moves:
        table((">partition", ">fires/min", "from", "to"), moves, empty="")
    say(
        f"busiest node: {found.level_before:.2f} of its share"
        + (f", {found.level_after:.2f} after {len(found.moves)} moves" if found.moves else "; nothing to move")
    )
    if not found.reached:
        why = f"; the largest partition alone makes {found.possible:.2f}" if found.possible > found.aim else ""
        note(f"the aim of {found.aim:g} is not reached{why}", "yellow")
    elif len(found.moves) > found.at_least:
        note(f"no plan needs less than {found.at_least} moves")
    if survey.unsure:
        note(f"{survey.unsure} partitions were measured for less than a minute: a later plan is surer", "yellow")
