"""Which node an operator means: a name, the beginning of an id, or the node of this machine. Pure."""

from __future__ import annotations

from socket import gethostname
from typing import NamedTuple

from bucketd.store.config import Settings
from bucketd.store.errors import InvalidInput, NotFound
from bucketd.store.members import Members
from bucketd.store.ring import BY_NAME


class Meant(NamedTuple):
    """What a word is about (an id or `@name`), and which living nodes that are."""

    about: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return self.about.removeprefix(BY_NAME) if self.about.startswith(BY_NAME) else self.about[:8]


def find(text: str, ring: Members) -> Meant:
    """`text`: a node's name, with or without @, or so much of an id that no other has it. Raises NotFound, InvalidInput.

    With @ a name need not be that of anybody alive. An id is looked for among living nodes, and those that words are about.
    """
    if text.startswith(BY_NAME) and len(text) > 1:
        return _named(text, ring)
    by_name = _named(BY_NAME + text, ring)
    known = {*ring.nodes, *ring.gone, *ring.words.abouts()}
    by_id = sorted(about for about in known if text and about.startswith(text) and not about.startswith(BY_NAME))
    if len(by_id) + bool(by_name.nodes) > 1:
        names = [f"{node[:12]} ({ring.names.get(node) or '-'})" for node in by_id]
        names += [f"@{text}"] if by_name.nodes else []
        raise InvalidInput(f"node: expected one, got {text!r}, which may be {', '.join(names)}", field="node")
    if by_id:
        return Meant(by_id[0], tuple(node for node in by_id if node in ring.nodes))
    if by_name.nodes or by_name.about in ring.words.abouts():
        return by_name
    raise NotFound(f"no node {text!r}; there are: {_listed(ring.nodes, ring)}")


def here(settings: Settings, ring: Members) -> Meant:
    """The one incarnation that has the name of this process's machine (or of BUCKETD_NODE_NAME). Raises NotFound, InvalidInput."""
    name = settings.node_name or gethostname()
    nodes = _named(BY_NAME + name, ring).nodes
    if not nodes:
        raise NotFound(f"no node is called {name!r} as this machine is; there are: {_listed(ring.nodes, ring)}")
    if len(nodes) > 1:
        raise InvalidInput(
            f"node: expected one with the name {name!r}, got {len(nodes)}: {_listed(nodes, ring)}; say which, or give each"
            " its own BUCKETD_NODE_NAME",
            field="node",
        )
    return Meant(nodes[0], nodes)


def _named(about: str, ring: Members) -> Meant:
    name = about.removeprefix(BY_NAME)
    return Meant(about, tuple(node for node in ring.nodes if ring.names.get(node) == name))


def _listed(nodes: tuple[str, ...], ring: Members) -> str:
    return ", ".join(f"{node[:8]} ({ring.names.get(node) or '-'})" for node in nodes) or "none"
