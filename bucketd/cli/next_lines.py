"""`bucketd next --jsonl`: questions about fires, one a line, to answers, one a line and in order. No store is asked.

A line that cannot be answered gets an error code and stops nothing. Answers go out whenever the lines read so far are
answered, so a program may ask and wait, ask and wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, TextIO

from bucketd.timing.cron import parse_cron
from bucketd.timing.duration import parse_duration
from bucketd.timing.errors import TimingError
from bucketd.timing.occurrences import fires_between, next_fire
from bucketd.timing.offsets import LAST_S
from bucketd.timing.spec import AtSpec, EverySpec, Spec

BAD_REQUEST = "bad_request"
MOST_FIRES = 10_000
LONGEST_LINE = 1 << 20  # bytes: no question is longer, and memory is bounded

_KINDS = ("expr", "every", "at")
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_CHUNK = 1 << 16
_DEFAULT_FIRES = 5
_ONE_BY_ONE = 100  # more fires are cheaper by the day


class BadRequest(ValueError):
    """A line that asks nothing that could be answered."""


def answer_lines(asked: BinaryIO, told: TextIO) -> None:
    """Answers every line of `asked` on `told` until the input ends."""
    for lines in _batches(asked):
        told.write("".join([answer(line) + "\n" for line in lines]))
        told.flush()


def answer(line: bytes) -> str:
    """The answer to one line, without newline: `{"id":..,"fires":[..]}` or `{"id":..,"error":".."}`, ASCII only. Never raises."""
    identity = "null"
    try:
        asked = _decode(line)
        identity = _identity(asked)
        # Quoted by hand: an instant has no character to escape, and encoding 10,000 of them is most of the work.
        fires = '","'.join(map(_instant, _fires(asked)))
    except TimingError as error:
        return f'{{"id":{identity},"error":"{error.code}"}}'
    except BadRequest:
        return f'{{"id":{identity},"error":"{BAD_REQUEST}"}}'
    return f'{{"id":{identity},"fires":["{fires}"]}}' if fires else f'{{"id":{identity},"fires":[]}}'


def _batches(asked: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines, as many as there are to be read at once; of a line that is too long only the beginning is kept."""
    rest = b""
    while chunk := asked.read1(_CHUNK):  # type: ignore[attr-defined]  # of all buffered streams
        *lines, tail = chunk.split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            rest = tail
            yield lines
        elif len(rest) <= LONGEST_LINE:
            rest += tail
    if rest:
        yield [rest]


def _decode(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise BadRequest
    try:
        asked = _read(line.decode())
    except (ValueError, RecursionError):
        raise BadRequest from None
    if not isinstance(asked, dict):
        raise BadRequest
    return asked


def _no_constant(text: str) -> Any:
    raise ValueError(text)  # NaN and Infinity are no JSON


_read = json.JSONDecoder(parse_constant=_no_constant).decode


def _identity(asked: Mapping[str, Any]) -> str:
    """The id as it is to be echoed; any JSON will do that can be written again (1e999 cannot)."""
    identity = asked.get("id")
    if type(identity) is int and -(2**63) < identity < 2**63:
        return str(identity)
    try:
        return json.dumps(identity, allow_nan=False)
    except (ValueError, RecursionError):
        raise BadRequest from None


def _fires(asked: Mapping[str, Any]) -> list[int]:
    count = asked.get("n")
    if count is None:
        count = _DEFAULT_FIRES
    elif type(count) is not int or not 1 <= count <= MOST_FIRES:
        raise BadRequest
    after = asked.get("after")
    after = datetime.now(UTC).replace(tzinfo=None) - _EPOCH if after is None else _since_epoch(after)
    spec, phase = _spec(asked)
    # Fires are whole seconds, so one after 12:00:00.5 is one after 12:00:00.
    return _first(spec, after // _SECOND, phase, count)


def _first(spec: Spec, after_s: int, phase: int, count: int) -> list[int]:
    if count > _ONE_BY_ONE:
        return fires_between(spec, after_s + 1, LAST_S + 1, phase, count)
    found: list[int] = []
    for _ in range(count):
        at_s = next_fire(spec, after_s, phase)
        if at_s is None:
            break
        found.append(at_s)
        after_s = at_s
    return found


def _spec(asked: Mapping[str, Any]) -> tuple[Spec, int]:
    """What is asked about, and its phase. tz, gap and fold must be good whatever it is; they matter for expr alone."""
    given = [kind for kind in _KINDS if asked.get(kind) is not None]
    if not given and "expr" in asked and "every" not in asked and "at" not in asked:
        given = ["expr"]  # null is no text: code `empty`
    if len(given) != 1:
        raise BadRequest
    kind = given[0]
    tz, gap, fold, seed = (asked.get(name) for name in ("tz", "gap", "fold", "seed"))
    if seed is not None:
        _check_text(seed)
    spec, _ = parse_cron(
        asked["expr"] if kind == "expr" else "* * * * *",
        "UTC" if tz is None else tz,
        gap="auto" if gap is None else gap,
        fold="auto" if fold is None else fold,
        seed=seed,
    )
    if kind == "expr":
        return spec, 0
    if kind == "at":
        return AtSpec(), -(-_since_epoch(asked["at"]) // _SECOND)  # rounded up: never early
    every_s = parse_duration(asked["every"])
    return EverySpec(every_s), _phase(asked.get("phase"), every_s)


def _phase(phase: Any, every_s: int) -> int:
    if phase in (None, 0, "0", "0s") and phase is not False:
        return 0
    phase_s = parse_duration(phase)
    if phase_s >= every_s:
        raise BadRequest
    return phase_s


def _check_text(value: Any) -> None:
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):  # no text, or half a surrogate pair
        raise BadRequest from None


def _since_epoch(text: Any) -> timedelta:
    """Of an ISO instant with Z or an offset, in any year from 1 to 9999 of its own clock."""
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise BadRequest from None
    offset = at.utcoffset()
    if offset is None:
        raise BadRequest
    # Not by astimezone, which cannot leave the years 1 to 9999.
    return at.replace(tzinfo=None) - _EPOCH - offset


def _instant(at_s: int) -> str:
    return (_EPOCH + timedelta(0, at_s)).isoformat() + "Z"
