"""Alerts, dashboard and runbook belong together, and speak of metrics that there are. Each alert is raised by what it is for, by
Prometheus itself, and none by a healthy cluster."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bucketd.store.metrics import DURATION_S, LATENESS_S, OF_RUNNER, OF_SCHEDULER, Definition
from tests.ops.promql import problems
from tests.ops.runbook import RUNBOOK, commands, sections

OPS = Path(__file__).resolve().parents[2] / "ops"
ALERTS = OPS / "alerts.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]
DASHBOARD = json.loads((OPS / "grafana" / "bucketd.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ADAPTER = yaml.safe_load((OPS / "k8s" / "monitoring" / "prometheus-adapter.yaml").read_text())["rules"]

# What a healthy cluster of two processes shows: gauges as they stand, counters and histograms at rest or rising as they do.
HEALTHY = {
    "bucketd_ready": "1",
    "bucketd_planned_ahead_seconds": "120",
    "bucketd_settled_lag_seconds": "65",
    "bucketd_oldest_unsettled_seconds": "65",
    "bucketd_partitions_owned": "128",
    "bucketd_days_ahead_seconds": "604800",
    "bucketd_calls_most": "256",
    "bucketd_runner_alive": "1",
    "bucketd_build_info": "1",
}
END_MIN = 130  # longer than any window with the time that an alert waits, but for the one of a day
DAY_MIN = 1500
RISING = "0+{}xEND"  # a minute
CALM = "0xEND"
SCHEDULER, RUNNER = '{instance="scheduler"', '{instance="runner"'


def above(bound: float, bounds: tuple[float, ...], series: str) -> dict[str, str]:
    """Buckets of a histogram (beside those of health) all of whose values are greater than `bound`."""
    return {f'{series},le="{float(one)!r}"}}': CALM for one in bounds if one <= bound}


# What raises each alert: series that take the place of the healthy ones; "_" is one that is not there.
RAISED_BY: dict[str, dict[str, str]] = {
    "BucketdNoScheduler": {f'bucketd_build_info{SCHEDULER},role="scheduler",version="1"}}': "_xEND"},
    "BucketdNoRunner": {f'bucketd_build_info{RUNNER},role="runner",version="1"}}': "_xEND"},
    "BucketdNotReady": {f"bucketd_ready{RUNNER}}}": "0xEND"},
    "BucketdBlind": {f"bucketd_survey_age_seconds{SCHEDULER}}}": "_xEND"},
    "BucketdMixedVersions": {f'bucketd_build_info{RUNNER},role="runner",version="1"}}': "_xEND",
        f'bucketd_build_info{RUNNER},role="runner",version="2"}}': "1xEND"},
    "BucketdClockSkew": {f"bucketd_clock_skew_seconds{SCHEDULER}}}": "-0.3xEND"},
    "BucketdFiresLate": above(5.0, LATENESS_S, 'bucketd_lateness_seconds_bucket{instance="runner",path="fire"'),
    "BucketdUnsettled": {f"bucketd_oldest_unsettled_seconds{SCHEDULER}}}": "301xEND"},
    "BucketdPartitionsUnowned": {f"bucketd_partitions_unowned{SCHEDULER}}}": "1xEND"},
    "BucketdNotPlannedAhead": {f"bucketd_planned_ahead_seconds{SCHEDULER}}}": "29xEND"},
    "BucketdFeedLag": {f"bucketd_feed_lag_seconds{SCHEDULER}}}": "31xEND"},
    "BucketdBucketsExpired": {f"bucketd_buckets_expired_total{SCHEDULER}}}": RISING.format(1)},
    "BucketdReconciled": {f'bucketd_settled_rows_total{SCHEDULER},verdict="deferred"}}': RISING.format(70)},
    "BucketdMisfires": {f'bucketd_settled_rows_total{SCHEDULER},verdict="skipped_misfire"}}': RISING.format(1)},
    "BucketdOccurrencesExpired": {f"bucketd_occurrences_expired_total{SCHEDULER}}}": RISING.format(1)},
    "BucketdQueueOld": {f'bucketd_queue_oldest_seconds{SCHEDULER},shard="0",queue="main"}}': "31xEND"},
    "BucketdCrowdOld": {f'bucketd_queue_oldest_seconds{SCHEDULER},shard="0",queue="crowd"}}': "601xEND"},
    "BucketdQueueFull": {f"bucketd_queue_full_total{SCHEDULER}}}": RISING.format(1)},
    "BucketdRunsOverdue": {f"bucketd_runs_overdue{SCHEDULER}}}": "1001xEND"},
    "BucketdCallsSaturated": {f"bucketd_calls_in_flight{RUNNER}}}": "240xEND"},
    "BucketdRunnersDie": {f"bucketd_runners_dead_total{SCHEDULER}}}": RISING.format(1)},
    "BucketdRunsOrphaned": {f"bucketd_runs_orphaned_total{SCHEDULER}}}": RISING.format(1)},
    "BucketdMalformed": {f"bucketd_messages_malformed_total{RUNNER}}}": RISING.format(1)},
    "BucketdAttemptsFail": {f'bucketd_attempts_total{RUNNER},outcome="failed"}}': RISING.format(31),
        f'bucketd_attempts_total{RUNNER},outcome="succeeded"}}': RISING.format(69)},
    "BucketdRunsDie": {f"bucketd_runs_died_total{RUNNER}}}": RISING.format(2)},
    "BucketdDeadHooksGivenUp": {f'bucketd_dead_hooks_total{RUNNER},outcome="given_up"}}': RISING.format(1)},
    "BucketdBreakerOpen": {f"bucketd_breakers_open{SCHEDULER}}}": "1xEND"},
    "BucketdHoldForgotten": {f'bucketd_holds{SCHEDULER},scope="tenant"}}': "1xEND"},
    "BucketdStoreFailing": {f'bucketd_store_failures_total{SCHEDULER},part="own"}}': RISING.format(7)},
    "BucketdRedisLostData": {f"bucketd_redis_lost_data_total{SCHEDULER}}}": RISING.format(1)},
    "BucketdLeasesLost": {f'bucketd_partition_changes_total{SCHEDULER},change="lost"}}': RISING.format(1)},
    "BucketdStatementsSlow": above(2.5, DURATION_S, 'bucketd_batch_duration_seconds_bucket{instance="runner",step="confirm"'),
    "BucketdDaysMissing": {f"bucketd_days_missing{SCHEDULER}}}": "1xEND"},
    "BucketdDaysRunOut": {f"bucketd_days_ahead_seconds{SCHEDULER}}}": "172799xEND"},
    "BucketdSpecsFailed": {f"bucketd_specs_failed{SCHEDULER}}}": "1xEND"},
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert problems(rule["expr"]) == []
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["runbook"] == f"ops/runbook.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_the_dashboard_asks_for_metrics_that_there_are(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert problems(target["expr"].replace("$__rate_interval", "5m")) == []


@pytest.mark.parametrize("rule", [*ADAPTER["external"], *ADAPTER["custom"]], ids=lambda rule: rule["name"]["as"])
def test_the_autoscaler_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="n"').replace("<<.GroupBy>>", "pod")
    assert problems(query.replace("<<.Series>>", rule["name"]["as"])) == []
    assert problems(rule["seriesQuery"].replace('{__name__="', "").replace('",', "{", 1)) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("bucketd_no_such_thing > 0", "no metric bucketd_no_such_thing"),
        ("rate(bucketd_lateness_seconds[5m])", "no metric bucketd_lateness_seconds"),
        ('bucketd_build_info{role="x",color="y"}', "bucketd_build_info has no label color"),
        ('bucketd_confirms_total{verdict="maybe"}', "bucketd_confirms_total: verdict is never maybe"),
        ("sum by (color) (bucketd_ready)", "grouping by color, which none of its metrics has"),
        ("vector(1)", "no metric"),
    ],
)
def test_a_wrong_expression_is_seen(expression: str, problem: str) -> None:
    assert problems(expression) == [problem]


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    assert list(sections(RUNBOOK)) == NAMES
    for name, text in sections(RUNBOOK).items():
        assert re.findall(r"^\*\*(\w+):\*\* \S", text, re.MULTILINE) == ["Means", "Look", "Do"], name


def test_the_runbook_names_commands_and_options_that_there_are() -> None:
    found = list(commands(RUNBOOK))
    assert [problem for _, problem in found if problem] == []
    assert len({command for command, _ in found}) > 20


@pytest.mark.parametrize("text", ["`bucketd juggle`", "`bucketd hold --tenent x`", "`bucketd dead lits`"])
def test_a_command_that_there_is_not_is_seen(text: str) -> None:
    assert [problem for _, problem in commands(text) if problem]


@pytest.mark.long
def test_prometheus_raises_each_alert_when_it_should_and_none_in_health(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("CI"), "promtool (Debian: prometheus) must be there in CI"
        pytest.skip("needs promtool (Debian: prometheus)")
    assert list(RAISED_BY) == NAMES
    shutil.copy(ALERTS, tmp_path)
    patient = {rule["alert"] for rule in RULES if rule.get("for") == "1d"}
    soon = [case(name, END_MIN) for name in (None, *NAMES) if name not in patient]
    late = [case(name, DAY_MIN) for name in (None, *patient)]
    for name, interval, cases in (("soon", "5m", soon), ("late", "30m", late)):
        tests = {"rule_files": ["alerts.yaml"], "evaluation_interval": interval, "tests": cases}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(tests))  # which is YAML, too
    command = [promtool, "test", "rules", "soon.yaml", "late.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def case(raised: str | None, at_min: int) -> dict[str, Any]:
    """One test of promtool: a cluster with these series raises this alert by then; None: all are healthy, and nothing is raised. Of the
    other alerts nothing is said: one fault may raise two."""
    rules = [rule for rule in RULES if raised in (None, rule["alert"])]
    asked = " ".join(rule["expr"] for rule in rules)
    series = {name: values for name, values in healthy().items() if name.partition("{")[0] in asked}
    series |= RAISED_BY[raised] if raised else {}
    return {
        "name": raised or "health",
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values.replace("END", str(at_min))}
            for name, values in series.items()
            if values[0] != "_"
        ],
        # What an alert says about itself is compared by presence: `exp_alerts` would repeat every label and text.
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}}) > bool 0 or vector(0)',
                "eval_time": f"{at_min}m",
                "exp_samples": [{"labels": "{}", "value": int(rule["alert"] == raised)}],
            }
            for rule in rules
        ],
    }


def healthy() -> dict[str, str]:
    """All series of one scheduler and one runner, with the values of a cluster that is well."""
    found: dict[str, str] = {}
    for instance, definitions in (("scheduler", OF_SCHEDULER), ("runner", OF_RUNNER)):
        for definition in definitions:
            for labels in label_sets(definition, instance):
                found |= values(definition, f'instance="{instance}"' + labels)
    return found


def label_sets(definition: Definition, instance: str) -> list[str]:
    if definition.name == "bucketd_build_info":
        return [f',role="{instance}",version="1"']
    if definition.labels == ("shard", "queue"):
        return [f',shard="0",queue="{queue}"' for queue in ("main", "crowd")]
    known = definition.values or ("something",)
    return [f',{definition.labels[0]}="{value}"' for value in known] if definition.labels else [""]


def values(definition: Definition, labels: str) -> dict[str, str]:
    if definition.kind == "histogram":  # everything is in the lowest bucket
        bounds = [*map(repr, map(float, definition.bounds)), "+Inf"]
        return {f'{definition.name}_bucket{{{labels},le="{bound}"}}': RISING.format(100) for bound in bounds}
    if definition.kind == "counter":
        rises = 'outcome="succeeded"' in labels or "fires_" in definition.name
        return {f"{definition.name}{{{labels}}}": RISING.format(100) if rises else CALM}
    return {f"{definition.name}{{{labels}}}": f"{HEALTHY.get(definition.name, '0')}xEND"}
