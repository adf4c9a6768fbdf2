"""Logs: one event name a line, fields as key=value, through the standard logging of the host process."""

from __future__ import annotations

import logging
import sys
import time

_LOGGER = logging.getLogger("bucketd")


def event(name: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Writes one event. Values with blanks are quoted; floats are cut to three digits."""
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s%s", name, "".join(f" {key}={_text(value)}" for key, value in fields.items()))


def warn(name: str, **fields: object) -> None:
    """An event that an operator should look at when it repeats."""
    event(name, level=logging.WARNING, **fields)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value).replace("\n", " ")
    return f'"{text}"' if " " in text or not text else text


def to_stderr(level: str) -> None:
    """Sends events of this process to stderr with UTC times. For our own processes; a library leaves logging alone."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False
