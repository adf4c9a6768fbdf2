"""What a process counts, as Prometheus reads it.

Counting costs the data path next to nothing: what a process counts anyway (plain numbers, kept for its log) is turned into
Prometheus's families when somebody scrapes, and a histogram takes a batch of values at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bucketd.store.metrics import Definition, Kind

_FAMILIES: dict[Kind, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_NOTHING: Mapping[tuple[str, ...], Any] = MappingProxyType({})


class Histogram:
    """Counts of values by bucket. For one thread."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Adds one value; it belongs to the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Adds a batch. Values of one batch mostly lie in one bucket or two, so it looks at the least and the greatest first."""
        if not values:
            return
        low, high = bisect_left(self._bounds, min(values)), bisect_left(self._bounds, max(values))
        if low == high:
            self._counts[low] += len(values)
        else:
            for value in values:
                self._counts[bisect_left(self._bounds, value, low, high)] += 1
        self.total += sum(values)

    def buckets(self) -> list[tuple[str, float]]:
        """(bound as text, values up to it), the last one without a bound."""
        names = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


class Sample(NamedTuple):
    """What a metric shows now, for these values of its labels."""

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


class Exposition(Collector):
    """Makes families of what `read` says. Counters and histograms whose labels' values are known begin at 0; a gauge that `read` does not
    mention is not shown."""

    def __init__(self, definitions: Sequence[Definition], read: Callable[[], Iterable[Sample]]) -> None:
        self._definitions = tuple(definitions)
        self._read = read

    def describe(self) -> list[Metric]:
        """The families without values, which nobody has before the process has started."""
        return [_family(definition) for definition in self._definitions]

    def collect(self) -> Iterator[Metric]:
        """The families that show something. Raises KeyError for a sample of a metric that is not defined here."""
        found: dict[str, dict[tuple[str, ...], float | Histogram]] = {d.name: _beginning(d) for d in self._definitions}
        for sample in self._read():
            found[sample.name][sample.labels] = sample.value
        for definition in self._definitions:
            if samples := found[definition.name]:
                yield _family(definition, samples)


def _beginning(definition: Definition) -> dict[tuple[str, ...], float | Histogram]:
    if definition.kind == "gauge" or (definition.labels and not definition.values):
        return {}
    labels: list[tuple[str, ...]] = [(value,) for value in definition.values] or [()]
    return {one: Histogram(definition.bounds) if definition.bounds else 0.0 for one in labels}


def _family(definition: Definition, samples: Mapping[tuple[str, ...], float | Histogram] = _NOTHING) -> Metric:
    """Raises ValueError for labels that are not the definition's."""
    made: Metric = _FAMILIES[definition.kind](definition.name, definition.text, labels=definition.labels)
    for labels, value in samples.items():
        if len(labels) != len(definition.labels):
            raise ValueError(f"expected labels {definition.labels} of {definition.name}, got {labels}")
        if isinstance(value, Histogram):
            made.add_metric(labels, value.buckets(), value.total)  # type: ignore[attr-defined]
        else:
            made.add_metric(labels, value)  # type: ignore[attr-defined]
    return made
