"""Logs: one event name a line, fields as key=value or all of it as a JSON object, through the standard logging of the host process."""

from __future__ import annotations

import json
import logging
import math
import sys
import time

_LOGGER = logging.getLogger("bucketd")
_EVENT, _FIELDS = "bucketd_event", "bucketd_fields"  # attributes of a record


def event(name: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Writes one event. Values with blanks are quoted; floats are cut to three digits."""
    if _LOGGER.isEnabledFor(level):
        text = "".join(f" {key}={_text(value)}" for key, value in fields.items())
        _LOGGER.log(level, "%s%s", name, text, extra={_EVENT: name, _FIELDS: fields})


def warn(name: str, **fields: object) -> None:
    """An event that an operator should look at when it repeats."""
    event(name, level=logging.WARNING, **fields)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value).replace("\n", " ")
    return f'"{text}"' if " " in text or not text else text


class JsonLines(logging.Formatter):
    """A JSON object a line: `time` (UTC), `level`, `event` and the fields by their names; numbers stay numbers, floats are cut to three
    digits. A record of somebody else has its message as `event`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; never raises for a value that JSON does not have."""
        fields = getattr(record, _FIELDS, {})
        head = {
            "time": f"{time.strftime(_TIME, time.gmtime(record.created))}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "event": getattr(record, _EVENT, None) or record.getMessage(),
        }
        if record.exc_info:
            head["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**head, **{key: _plain(value) for key, value in fields.items()}, **head})


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)


_TIME = "%Y-%m-%dT%H:%M:%S"


def _text_lines() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", _TIME)
    formatter.converter = time.gmtime
    return formatter


def to_stderr(level: str, form: str = "text") -> None:
    """Sends events of this process to stderr with UTC times, as `text` or `json`. For our own processes; a library leaves logging
    alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else _text_lines())
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False
    # A line for each connection and try; duties say when they begin to fail and when they are well again.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
