"""The stand-in's exposition text is what Prometheus reads."""

from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference
from prometheus_client.parser import text_string_to_metric_families

from lab.stand_ins.model_server.exposition import Histogram, Page, Value

OBSERVED = [0.0, 0.1, 0.1000001, 0.5, 2.0, 1e9]


def test_a_histogram_counts_as_prometheus_client_does():
    bounds = [0.1, 0.5, 2.0]
    registry = CollectorRegistry()
    theirs = Reference("h", "text", ["m"], buckets=bounds, registry=registry)
    ours = Histogram("h", {"m": "x"}, bounds)
    for value in OBSERVED:
        theirs.labels("x").observe(value)
        ours.observe(value)
    page = Page()
    page.add("h", "histogram", "text", ours)
    (family,) = text_string_to_metric_families(page.render().decode())
    expected = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in next(iter(registry.collect())).samples
        if not sample.name.endswith("_created")
    }
    assert family.type == "histogram"
    assert {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples} == expected


def test_values_carry_their_labels_escaped():
    page = Page()
    value = Value("c_total", {"model_name": 'a"b\\c\nd', "engine": "0"})
    value.inc()
    value.inc(2)
    page.add("c_total", "counter", "text", value)
    (family,) = text_string_to_metric_families(page.render().decode())
    assert family.type == "counter"
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"model_name": 'a"b\\c\nd', "engine": "0"}, 3.0)
    ]
