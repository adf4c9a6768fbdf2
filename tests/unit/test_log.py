"""Log lines: text by default, JSON objects if asked for, the same fields under the same names."""

import json
import logging
import math
from collections.abc import Iterator
from uuid import UUID

import pytest

from bucketd.store.config import Settings
from bucketd.store.errors import ConfigError
from bucketd.store.log import event, to_stderr, warn

ID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    logger = logging.getLogger("bucketd")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("info")
    event("ring", nodes=2, after_s=1 / 3, note="a b", none=None)
    [line] = lines(capsys)
    assert line.endswith('Z INFO ring nodes=2 after_s=0.333 note="a b" none=None')


def test_json_has_the_same_fields_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("info", "json")
    warn(
        "ring",
        nodes=2,
        after_s=1 / 3,
        note='a "b"\nc',
        none=None,
        ok=True,
        id=ID,
        text=b"x",
        far=math.inf,
        odd=math.nan,
    )
    [line] = lines(capsys)
    found = json.loads(line, parse_constant=pytest.fail)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning", "event": "ring", "nodes": 2, "after_s": 0.333, "note": 'a "b"\nc', "none": None, "ok": True,
        "id": str(ID), "text": "b'x'", "far": "inf", "odd": "nan",
    }  # fmt: skip


def test_json_of_what_others_log_under_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("info", "json")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("bucketd.other").exception("it failed: %s", 7)
    [line] = lines(capsys)
    found = json.loads(line)
    assert (found["level"], found["event"]) == ("error", "it failed: 7")
    assert "ValueError: why" in found["traceback"]


def test_the_level_holds_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("warning", "json")
    event("quiet")
    assert lines(capsys) == []


def test_no_other_format() -> None:
    with pytest.raises(ConfigError, match="BUCKETD_LOG_FORMAT"):
        Settings.load({"BUCKETD_LOG_FORMAT": "xml"})
