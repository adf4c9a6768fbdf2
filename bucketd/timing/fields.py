"""The grammar of one cron field: text to items, and the checks of their numbers. What items mean is in `expand`.

Items are read for all five fields before any number is checked, and each check goes over all fields, left to right,
before the next one starts.
"""

import re
from dataclasses import dataclass

from bucketd.timing.errors import CronError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Field:
    """`top` ends `n/s`; `hash_lo`..`hash_hi` is what a bare H draws from."""

    name: str
    lo: int
    hi: int
    top: int
    hash_lo: int
    hash_hi: int
    names: dict[str, int]


MINUTE = Field("minute", 0, 59, 59, 0, 59, {})
HOUR = Field("hour", 0, 23, 23, 0, 23, {})
DOM = Field("dom", 1, 31, 31, 1, 28, {})
MONTH = Field("month", 1, 12, 12, 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
DOW = Field("dow", 0, 7, 6, 0, 6, {name: number for number, name in enumerate(_WEEKDAYS)})
FIELDS = (MINUTE, HOUR, DOM, MONTH, DOW)


@dataclass(frozen=True, slots=True)
class Item:
    """One member of a list.

    `form` is all, value, range, hash, last (L, L-n), near (nW), last_working (LW), nth (d#k) or last_of (dL);
    `first` and `second` are its numbers as written: value or bounds, n of L-n and nW, d and k.
    """

    token: str
    form: str
    first: int | None = None
    second: int | None = None
    step: int | None = None


_VALUE = r"(?:[0-9]+|[a-z]{3})"
_STEP = r"(?:/(?P<step>[0-9]+))?"
_PLAIN = tuple(
    (form, re.compile(pattern + _STEP))
    for form, pattern in (
        ("all", r"\*"),
        ("value", f"(?P<first>{_VALUE})"),
        ("range", f"(?P<first>{_VALUE})-(?P<second>{_VALUE})"),
        ("hash", r"h(?:\((?P<first>[0-9]+)-(?P<second>[0-9]+)\))?"),
    )
)
_SPECIAL = {
    "dom": (
        ("last_working", re.compile("lw")),
        ("last", re.compile("l(?:-(?P<first>[0-9]+))?")),
        ("near", re.compile("(?P<first>[0-9]+)w")),
    ),
    "dow": (
        ("nth", re.compile(f"(?P<first>{_VALUE})#(?P<second>[0-9]+)")),
        ("last_of", re.compile(f"(?P<first>{_VALUE})l")),
    ),
}


def read_field(field: Field, text: str) -> list[Item]:
    """The items of lower-case `text`; raises `CronError` ``bad_token`` for anything outside the grammar."""
    if text == "?" and field in (DOM, DOW):
        return [Item("?", "all")]
    return [_read_item(field, token) for token in text.split(",")]


def _read_item(field: Field, token: str) -> Item:
    for form, pattern in (*_PLAIN, *_SPECIAL.get(field.name, ())):
        match = pattern.fullmatch(token)
        if match is not None:
            return _item_of(field, token, form, match.groupdict())
    raise bad_token(field, token)


def _item_of(field: Field, token: str, form: str, parts: dict[str, str | None]) -> Item:
    step = parts.get("step")
    return Item(
        token,
        form,
        _number(field, token, parts.get("first")),
        _number(field, token, parts.get("second")),
        None if step is None else int(step),
    )


def _number(field: Field, token: str, text: str | None) -> int | None:
    if text is None or text.isdigit():
        return None if text is None else int(text)
    if text not in field.names:
        raise bad_token(field, token)
    return field.names[text]


def check_ranges(field: Field, item: Item) -> None:
    """Numbers inside the field (code ``out_of_range``)."""
    for number, lo, hi in _limits(field, item):
        if not lo <= number <= hi:
            raise CronError(
                "out_of_range",
                f"expected {_what(item)} of the {field.name} field to be {lo} to {hi}, got {shown(item.token)}",
                field.name,
                item.token,
            )
    if item.form == "hash" and item.step is not None:
        lo, hi = hash_bounds(field, item)
        if lo <= hi and item.step > hi - lo + 1:
            raise CronError(
                "out_of_range",
                f"expected a step of at most {hi - lo + 1} for H in the {field.name} field, got {shown(item.token)}",
                field.name,
                item.token,
            )


def check_step(field: Field, item: Item) -> None:
    """No step 0 (code ``bad_step``)."""
    if item.step == 0:
        message = f"expected a step of 1 or more in the {field.name} field, got {shown(item.token)}"
        raise CronError("bad_step", message, field.name, item.token)


def check_bounds(field: Field, item: Item) -> None:
    """H(a-b) ascends (code ``bad_range``); plain ranges may wrap around."""
    lo, hi = hash_bounds(field, item)
    if item.form == "hash" and lo > hi:
        raise CronError(
            "bad_range",
            f"expected H(low-high) in the {field.name} field, got {shown(item.token)}; H does not wrap around",
            field.name,
            item.token,
        )


def hash_bounds(field: Field, item: Item) -> tuple[int, int]:
    """What an H item draws from."""
    if item.first is None or item.second is None:
        return field.hash_lo, field.hash_hi
    return item.first, item.second


def bad_token(field: Field, token: str) -> CronError:
    extra = {
        "dom": "a number, a-b, */n, a list, L, L-n, LW, nW, H or ? alone",
        "dow": "a number or SUN-SAT, a-b, */n, a list, d#k, dL, H or ? alone",
        "month": "a number or JAN-DEC, a-b, */n, a list or H",
    }.get(field.name, "a number, a-b, */n, a list or H")
    got = shown(token) if token else "an empty item"
    return CronError("bad_token", f"expected {extra} in the {field.name} field, got {got}", field.name, token)


def shown(token: str) -> str:
    return repr(token if len(token) <= 40 else token[:37] + "...")


def _limits(field: Field, item: Item) -> list[tuple[int, int, int]]:
    limits = [(item.first, field.lo, field.hi), (item.second, field.lo, field.hi)]
    if item.form == "last":
        limits = [(item.first, 1, 30)]
    elif item.form == "nth":
        limits[1] = (item.second, 1, 5)
    return [(number, lo, hi) for number, lo, hi in limits if number is not None]


def _what(item: Item) -> str:
    return {"last": "n in L-n", "near": "n in nW", "nth": "d#k"}.get(item.form, "values")
