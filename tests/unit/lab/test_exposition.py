"""The stand-ins' exposition text is what Prometheus reads."""

from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference
from prometheus_client.parser import text_string_to_metric_families

from lab.stand_ins.exposition import counter, gauge, histogram, render

OBSERVED = [0.0, 0.1, 0.1000001, 0.5, 2.0, 1e9]


def test_a_histogram_counts_as_prometheus_client_does():
    bounds = [0.1, 0.5, 2.0]
    registry = CollectorRegistry()
    theirs = Reference("h", "text", ["m"], buckets=bounds, registry=registry)
    ours = histogram("h", "text", bounds, "m")
    for value in OBSERVED:
        theirs.labels("x").observe(value)
        ours.of("x").observe(value)
    (family,) = text_string_to_metric_families(render([ours]).decode())
    expected = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in next(iter(registry.collect())).samples
        if not sample.name.endswith("_created")
    }
    assert family.type == "histogram"
    assert {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples} == expected


def test_bounds_are_shown_as_they_are_written():
    family = histogram("h", "text", (0.5, 1, 2.0))
    family.of().observe(1)
    assert [line.split(" ")[0] for line in render([family]).decode().splitlines()[2:6]] == [
        'h_bucket{le="0.5"}',
        'h_bucket{le="1"}',
        'h_bucket{le="2.0"}',
        'h_bucket{le="+Inf"}',
    ]


def test_values_carry_their_labels_escaped():
    family = counter("c_total", "text", "model_name", "engine")
    family.of('a"b\\c\nd', "0").inc()
    family.of('a"b\\c\nd', "0").inc(2)
    (parsed,) = text_string_to_metric_families(render([family]).decode())
    assert parsed.type == "counter"
    assert [(sample.labels, sample.value) for sample in parsed.samples] == [
        ({"model_name": 'a"b\\c\nd', "engine": "0"}, 3.0)
    ]


def test_a_family_without_a_series_is_left_out():
    shown, never_asked = gauge("shown", "text", "pod"), histogram("h", "text", (1,))
    shown.of("a").set(1)
    assert render([shown, never_asked]) == b'# HELP shown text\n# TYPE shown gauge\nshown{pod="a"} 1.0\n'
    shown.clear()
    assert render([shown, never_asked]) == b""
