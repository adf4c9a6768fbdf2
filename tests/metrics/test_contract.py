"""The contract with whoever alerts: what is documented, what is defined and what is counted are the same."""

import ast
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from bucketd.runner import meter as of_runner
from bucketd.runner.breakers import BreakerReport
from bucketd.runner.confirm import ConfirmReport
from bucketd.runner.hooks import HookReport
from bucketd.runner.intake import IntakeReport
from bucketd.runner.limits import LimitsReport
from bucketd.runner.result import ResultReport
from bucketd.runner.wake import WakeReport
from bucketd.scheduler import meter as of_scheduler
from bucketd.store.confirm import Verdict
from bucketd.store.metrics import ALL, ENDS, OF_RUNNER, OF_SCHEDULER, REFUSALS, Definition
from bucketd.store.model import RunStatus
from tests.metrics.document import PATH, replaced

ROOT = Path(__file__).resolve().parents[2]
REPORTS = (IntakeReport, ConfirmReport, WakeReport, ResultReport, BreakerReport, LimitsReport, HookReport)
# Fields of reports that are no metric: sums of others, or a flag for the loop.
NOT_SHOWN = {"messages", "fires", "full"}
UNITS = ("_seconds", "_total", "_bytes")


def test_the_page_says_what_is_defined() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert text == replaced(text), (
        "python -m tests.metrics.document writes it anew; a changed name breaks people's alerts"
    )


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_definition_is_well_formed(one: Definition) -> None:
    assert re.fullmatch(r"bucketd_[a-z_]+", one.name)
    assert one.name.endswith("_total") == (one.kind == "counter")
    assert (one.kind == "histogram") == bool(one.bounds)
    assert list(one.bounds) == sorted(set(one.bounds))
    assert one.text.endswith(".")
    assert not one.values or len(one.labels) == 1
    assert not {"le", "instance", "job", "quantile"} & set(one.labels)


def test_no_name_is_defined_twice() -> None:
    assert [name for name, times in Counter(one.name for one in ALL).items() if times > 1] == []


@pytest.mark.parametrize(
    ("counted", "definitions"), [(of_runner.COUNTED, OF_RUNNER), (of_scheduler.COUNTED, OF_SCHEDULER)]
)
def test_each_counter_is_fed_once_and_by_a_value_that_it_has(
    counted: dict[str, tuple[str, tuple[str, ...]]], definitions: tuple[Definition, ...]
) -> None:
    assert len(set(counted.values())) == len(counted)
    series = {(one.name, (value,)) for one in definitions for value in one.values} | {
        (one.name, ()) for one in definitions if not one.labels
    }
    counters = {one.name for one in definitions if one.kind == "counter"}
    assert set(counted.values()) == {(name, labels) for name, labels in series if name in counters}


def test_each_field_of_a_runners_report_is_shown_or_known_not_to_be() -> None:
    known = set(of_runner.COUNTED) | NOT_SHOWN
    shown = {name.partition("_")[0] for name in known}  # of counters by reason: refused_early, ended_dead
    assert [item.name for report in REPORTS for item in fields(report) if item.name not in known | shown] == []


def test_each_verdict_and_status_has_its_value() -> None:
    refused = {"duplicate" if verdict is Verdict.RUN else verdict.name.lower() for verdict in Verdict}
    kept = {"runner_dead", "again"}
    assert refused - kept <= set(REFUSALS)
    assert {status.value for status in RunStatus} - {"running", "deferred", "succeeded"} <= set(ENDS)


def counted_in(folder: str) -> set[str]:
    """Literal names that are given to `count` of a node."""
    found = set()
    for path in (ROOT / folder).glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "count":
                owner = ast.unparse(call.func.value)
                if owner.endswith("node") and call.args and isinstance(call.args[0], ast.Constant):
                    found.add(str(call.args[0].value))
    return found


def test_what_a_node_counts_is_shown() -> None:
    # What settling wrote is shown by its verdict; the flag that the skew was told of is none.
    assert counted_in("bucketd/scheduler") - {"settled_late", "skew_warned"} == {
        name for name in of_scheduler.COUNTED if not name.startswith("verdict_")
    }
