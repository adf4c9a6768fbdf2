"""Histograms, and families made of samples."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bucketd.store.exposition import Exposition, Histogram, Sample
from bucketd.store.metrics import LATENESS_S, OF_RUNNER, OF_SCHEDULER, Definition

BOUNDS = (0.01, 0.1, 1.0)
DEFINITIONS = (
    Definition("bucketd_some_total", "counter", "Some.", ("kind",), ("a", "b")),
    Definition("bucketd_plain_total", "counter", "Plain."),
    Definition("bucketd_open_total", "counter", "Open.", ("part",)),
    Definition("bucketd_level", "gauge", "Level."),
    Definition("bucketd_wait_seconds", "histogram", "Wait.", bounds=BOUNDS),
)


def scraped(
    *samples: Sample, definitions: tuple[Definition, ...] = DEFINITIONS
) -> dict[tuple[str, tuple[str, ...]], float]:
    """What Prometheus would read."""
    registry = CollectorRegistry()
    registry.register(Exposition(definitions, lambda: samples))
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@given(st.lists(st.floats(-1, 20_000), max_size=60))
def test_a_batch_counts_as_its_values_one_by_one(values: list[float]) -> None:
    singly, together = Histogram(LATENESS_S), Histogram(LATENESS_S)
    for value in values:
        singly.observe(value)
    together.observe_all(values)
    assert together.buckets() == singly.buckets()
    assert together.total == pytest.approx(singly.total)


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(-1, 2)), max_size=60))
def test_a_bucket_holds_what_does_not_exceed_its_bound(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe_all(values)
    names, counts = zip(*histogram.buckets(), strict=True)
    assert names == ("0.01", "0.1", "1.0", "+Inf")
    assert counts == (*(sum(value <= bound for value in values) for bound in BOUNDS), len(values))
    assert all(before <= after for before, after in pairwise(counts))


def test_counters_begin_at_zero_and_gauges_with_a_value() -> None:
    assert scraped() == {
        ("bucketd_some_total", ("a",)): 0,
        ("bucketd_some_total", ("b",)): 0,
        ("bucketd_plain_total", ()): 0,
        ("bucketd_wait_seconds_bucket", ("0.01",)): 0,
        ("bucketd_wait_seconds_bucket", ("0.1",)): 0,
        ("bucketd_wait_seconds_bucket", ("1.0",)): 0,
        ("bucketd_wait_seconds_bucket", ("+Inf",)): 0,
        ("bucketd_wait_seconds_count", ()): 0,
        ("bucketd_wait_seconds_sum", ()): 0,
    }


def test_samples_are_shown_under_their_labels() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe_all([0.05, 0.5, 7.0])
    found = scraped(
        Sample("bucketd_some_total", 3, ("b",)),
        Sample("bucketd_open_total", 2, ('x"\n\\y',)),
        Sample("bucketd_level", -1.5),
        Sample("bucketd_wait_seconds", histogram),
    )
    assert found["bucketd_some_total", ("a",)] == 0
    assert found["bucketd_some_total", ("b",)] == 3
    assert found["bucketd_open_total", ('x"\n\\y',)] == 2
    assert found["bucketd_level", ()] == -1.5
    assert found["bucketd_wait_seconds_bucket", ("0.1",)] == 1
    assert found["bucketd_wait_seconds_count", ()] == 3
    assert found["bucketd_wait_seconds_sum", ()] == pytest.approx(7.55)


def test_a_sample_of_no_definition_is_a_defect() -> None:
    with pytest.raises(KeyError):
        scraped(Sample("bucketd_unknown", 1))


def test_labels_that_are_not_the_definitions_are_a_defect() -> None:
    with pytest.raises(ValueError, match="expected labels"):
        scraped(Sample("bucketd_level", 1, ("surplus",)))


@pytest.mark.parametrize("definitions", [OF_SCHEDULER, OF_RUNNER])
def test_the_real_ones_can_be_registered_and_scraped(definitions: tuple[Definition, ...]) -> None:
    found = scraped(definitions=definitions)
    for one in definitions:
        series: list[tuple[str, ...]] = [(value,) for value in one.values] or [()] * (not one.labels)
        name = f"{one.name}_count" if one.kind == "histogram" else one.name
        assert [found.get((name, labels)) for labels in series] == [None if one.kind == "gauge" else 0] * len(series)
