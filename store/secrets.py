"""Secrets of targets: the newest of each, and the one before it for as long as both are valid. Sealed wherever they lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bucketd.store.errors import Conflict, NotFound
from bucketd.store.keyring import CannotOpen, KeyRing
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.signing import key_of
from bucketd.store.statements import statements

_SQL = "secrets"
PAGE = 500  # secrets a transaction


@dataclass(frozen=True, slots=True)
class Secret:
    """An opened one. `until_s`: epoch seconds at which it ends; None: it is the newest."""

    key: bytes = field(repr=False)
    until_s: float | None


@dataclass(frozen=True, slots=True)
class Resealed:
    """How many targets' secrets were sealed anew. `unreadable`: the names of those that no key of the ring opens."""

    secrets: int = 0
    unreadable: tuple[str, ...] = ()

    def __add__(self, other: Resealed) -> Resealed:
        return Resealed(self.secrets + other.secrets, self.unreadable + other.unreadable)


@dataclass(frozen=True, slots=True)
class ResealStep:
    """One page, and where to go on; None: that was the last."""

    counts: Resealed
    after: int | None


def rotate(name: str, secret: str, keep_old_s: int, ring: KeyRing) -> Operation[None]:
    """Makes this the target's secret; the one it had stays valid for `keep_old_s`. To give the one it has changes nothing.

    Raises NotFound, ConfigError (no key to seal with).
    """
    sealed = ring.seal(secret)
    target_id, current = yield from _lock(name)
    if current is None or not _holds(current, secret, ring):
        values = {"target_id": target_id, "sealed": sealed, "keep_old_s": keep_old_s}
        yield Query(statements(_SQL)["rotate"], values)


def drop(name: str) -> Operation[None]:
    """Takes its secrets from the target, which is called unsigned from then on. Idempotent. Raises NotFound."""
    target_id, _ = yield from _lock(name)
    yield Query(statements(_SQL)["drop"], {"target_id": target_id})


def valid(target_id: int, ring: KeyRing) -> Operation[tuple[Secret, ...]]:
    """The target's valid secrets, newest first; empty: it has none. Raises Conflict if the ring cannot open one."""
    rows = yield Query(statements(_SQL)["of_target"], {"target_id": target_id})
    try:
        return opened(rows, ring)
    except CannotOpen as error:
        raise Conflict(why_sealed(error)) from None


def opened(sealed: Iterable[Row], ring: KeyRing) -> tuple[Secret, ...]:
    """From pairs of a sealed secret and its end. Raises CannotOpen."""
    return tuple(Secret(key_of(ring.open(text)), until_s) for text, until_s in sealed)


def why_sealed(error: CannotOpen) -> str:
    """What a run or a caller is told about a target whose secret cannot be opened."""
    return (
        f"the target's secret cannot be opened here, and it is not called unsigned: {error};"
        " give this process the key ring (BUCKETD_SECRET_KEYS) with which it was set"
    )


def reseal(after: int, ring: KeyRing) -> Operation[ResealStep]:
    """Seals a page of secrets anew with the ring's first key, from the target behind `after` on. Raises ConfigError (no key)."""
    ring.require()
    rows = yield Query(statements(_SQL)["page"], {"after": after, "limit": PAGE})
    done: list[tuple[int, str, str | None]] = []
    unreadable = []
    for target_id, name, sealed, old_sealed in rows:
        try:
            done.append((target_id, _anew(sealed, ring), None if old_sealed is None else _anew(old_sealed, ring)))
        except CannotOpen:
            unreadable.append(name)
    if done:
        targets, fresh, older = zip(*done, strict=True)
        values = {"targets": list(targets), "sealed": list(fresh), "old_sealed": list(older)}
        yield Query(statements(_SQL)["reseal"], values)
    return ResealStep(Resealed(len(done), tuple(unreadable)), rows[-1][0] if len(rows) == PAGE else None)


def _anew(sealed: str, ring: KeyRing) -> str:
    return ring.seal(ring.open(sealed))


def _lock(name: str) -> Operation[tuple[int, str | None]]:
    rows = yield Query(statements(_SQL)["lock"], {"name": name})
    if not rows:
        raise NotFound(f"expected the name of a target, got {name!r}, which does not exist; create it with targets.put")
    target_id, sealed = rows[0]
    return target_id, sealed


def _holds(sealed: str, secret: str, ring: KeyRing) -> bool:
    try:
        return ring.open(sealed) == secret
    except CannotOpen:
        return False
