"""Does Envoy's bootstrap route by the picker's word alone?

That the real Envoy accepts it is tested in the engine tier.
"""

import json

import yaml

from llmd import envoy


def find(value, key):
    """Every value of `key` at any depth."""
    found = []
    if isinstance(value, dict):
        found += [value[key]] if key in value else []
        for inner in value.values():
            found += find(inner, key)
    if isinstance(value, list):
        for inner in value:
            found += find(inner, key)
    return found


def listener(config, name):
    [one] = [one for one in config["static_resources"]["listeners"] if one["name"] == name]
    return one


def cluster(config, name):
    [one] = [one for one in config["static_resources"]["clusters"] if one["name"] == name]
    return one


def test_requests_go_where_the_pickers_header_says():
    config = envoy.bootstrap()
    assert [route["cluster"] for route in find(listener(config, "http"), "route")] == ["original_destination"]
    destination = cluster(config, "original_destination")
    assert destination["type"] == "ORIGINAL_DST"
    assert destination["original_dst_lb_config"] == {
        "use_http_header": True,
        "http_header_name": "x-gateway-destination-endpoint",
    }


def test_a_client_cannot_choose_a_pod():
    assert find(listener(envoy.bootstrap(), "http"), "mutations") == [
        [{"remove": "x-gateway-destination-endpoint"}, {"remove": "x-prefiller-host-port"}]
    ]


def test_the_picker_sees_both_bodies_as_streams_before_routing():
    filters = find(listener(envoy.bootstrap(), "http"), "http_filters")[0]
    assert [one["name"] for one in filters] == ["envoy.filters.http.ext_proc", "envoy.filters.http.router"]
    mode = filters[0]["typed_config"]["processing_mode"]
    assert (mode["request_body_mode"], mode["response_body_mode"]) == ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED")


def test_the_admin_port_is_the_pods_own_and_only_ready_and_stats_are_shown():
    config = envoy.bootstrap()
    assert config["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 19000}
    ready = listener(config, "ready")
    assert find(ready, "string_match") == [{"exact": "/ready"}]
    assert find(ready, "match") == [{"path": "/stats/prometheus"}]
    assert [one["address"]["socket_address"]["port_value"] for one in config["static_resources"]["listeners"]] == [
        19001,
        8081,
    ]


def test_an_idle_connection_ends_before_the_model_server_ends_it():
    [options] = cluster(envoy.bootstrap(), "original_destination")["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"]["idle_timeout"] == "60s"


def test_tls_to_the_picker_can_be_off():
    assert "transport_socket" in cluster(envoy.bootstrap(), "ext_proc")
    assert "transport_socket" not in cluster(envoy.bootstrap(ext_proc_tls=False), "ext_proc")


def test_the_text_is_json_and_yaml_and_stable():
    text = envoy.render(envoy.bootstrap())
    assert yaml.safe_load(text) == json.loads(text) == envoy.bootstrap()
    assert text == envoy.render(envoy.bootstrap())


def test_the_command_line_reads_the_mounted_file():
    given = envoy.arguments(drain_seconds=66, concurrency=2)
    assert given[:2] == ["--config-path", "/etc/envoy/envoy.yaml"]
    assert given[given.index("--concurrency") + 1] == "2"
    assert given[given.index("--drain-time-s") + 1] == "66"
