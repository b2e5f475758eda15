"""How Envoy carries a request to the pod that the endpoint picker chose: its bootstrap.

The upstream standalone chart's (Aug 2026), for Envoy 1.33 to 1.40, with these differences:
- the routing headers of a client are removed on arrival: the picker alone may choose a pod, also while it is away
  (fail-open);
- an idle connection to a model server ends before the server would end it, which a request in flight would see as a
  reset;
- no health check of the picker's cluster: it is one process of the same pod, Envoy would route to it anyway (panic
  threshold), and the pod's readiness asks it;
- connecting to a pod of the same cluster may take 10 s, not 1,000.
"""

from __future__ import annotations

import json
from typing import Any

from llmd.router import EXT_PROC_PORT
from llmd.vllm import KEEP_ALIVE_SECONDS

FILE_NAME = "envoy.yaml"  # key of the ConfigMap
CONFIG_DIRECTORY = "/etc/envoy"
HTTP_PORT = 8081
READY_PORT = 19001
ADMIN_PORT = 19000
READY_PATH = "/ready"
STATS_PATH = "/stats/prometheus"
DESTINATION_HEADER = "x-gateway-destination-endpoint"  # ip:port, set by the picker
PREFILL_HEADER = "x-prefiller-host-port"  # set by the picker, read by the routing sidecar

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - a pod's own network; clients come through the Service
_LOOPBACK = "127.0.0.1"
_BUFFER_BYTES = 32 * 1024  # per connection: a prompt streams through the picker, it is never held whole
_UNBOUNDED = 40000  # requests and connections; the picker is who sheds load, not a circuit breaker
_LONGEST = "86400s"  # a generation may take as long as it likes; the client ends it

_V3 = "type.googleapis.com/envoy.extensions"
_HTTP_MANAGER = f"{_V3}.filters.network.http_connection_manager.v3.HttpConnectionManager"

JsonObject = dict[str, Any]


def bootstrap(*, ext_proc_port: int = EXT_PROC_PORT, ext_proc_tls: bool = True) -> JsonObject:
    """Static bootstrap for an Envoy in the endpoint picker's own pod.

    `ext_proc_tls`: the picker serves with a certificate it made itself, so Envoy encrypts and does not verify.
    """
    return {
        "admin": {"address": _address(_LOOPBACK, ADMIN_PORT)},
        "static_resources": {
            "listeners": [_ready_listener(), _http_listener()],
            "clusters": [_original_destination(), _ext_proc_cluster(ext_proc_port, tls=ext_proc_tls), _admin_cluster()],
        },
    }


def render(config: JsonObject) -> str:
    """The bootstrap as text: indented JSON, which is YAML, ending in a newline."""
    return json.dumps(config, indent=2) + "\n"


def arguments(*, drain_seconds: int, concurrency: int) -> list[str]:
    """Envoy's command line after the image's entrypoint `envoy`; `concurrency` is its number of worker threads."""
    return [
        "--config-path",
        f"{CONFIG_DIRECTORY}/{FILE_NAME}",
        "--log-level",
        "warn",
        "--concurrency",
        str(concurrency),
        "--drain-strategy",
        "immediate",
        "--drain-time-s",
        str(drain_seconds),
    ]


def _http_listener() -> JsonObject:
    remove: list[object] = [{"remove": header} for header in (DESTINATION_HEADER, PREFILL_HEADER)]
    manager: JsonObject = {
        "@type": _HTTP_MANAGER,
        "stat_prefix": "http",
        "codec_type": "AUTO",
        "route_config": {"name": "models", "virtual_hosts": [_virtual_host("models", _model_route())]},
        "http_filters": [_ext_proc_filter(), _router_filter()],
        "early_header_mutation_extensions": [
            {
                "name": "envoy.http.early_header_mutation.header_mutation",
                "typed_config": {
                    "@type": f"{_V3}.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                    "mutations": remove,
                },
            }
        ],
        "common_http_protocol_options": {"headers_with_underscores_action": "REJECT_REQUEST"},
        "http2_protocol_options": {
            "max_concurrent_streams": 100,
            "initial_stream_window_size": 65536,
            "initial_connection_window_size": 1048576,
        },
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
        "use_remote_address": True,
        "stream_idle_timeout": _LONGEST,
        "request_timeout": _LONGEST,
        "upgrade_configs": [{"upgrade_type": "websocket"}],
    }
    return {**_listener("http", HTTP_PORT, manager), "per_connection_buffer_limit_bytes": _BUFFER_BYTES}


def _model_route() -> JsonObject:
    action = {"cluster": "original_destination", "timeout": _LONGEST, "idle_timeout": _LONGEST}
    return {"match": {"prefix": "/"}, "route": action}


def _ready_listener() -> JsonObject:
    ready: JsonObject = {
        "name": "envoy.filters.http.health_check",
        "typed_config": {
            "@type": f"{_V3}.filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": False,
            "headers": [{"name": ":path", "string_match": {"exact": READY_PATH}}],
        },
    }
    stats: JsonObject = {"match": {"path": STATS_PATH}, "route": {"cluster": "admin"}}
    manager: JsonObject = {
        "@type": _HTTP_MANAGER,
        "stat_prefix": "ready",
        "route_config": {"name": "ready", "virtual_hosts": [_virtual_host("ready", stats)]},
        "http_filters": [ready, _router_filter()],
    }
    return _listener("ready", READY_PORT, manager)


def _ext_proc_filter() -> JsonObject:
    return {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": f"{_V3}.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "ext_proc", "authority": "localhost"}},
            # streams that are under way survive a picker that restarts; new ones have no destination and get 503
            "failure_mode_allow": True,
            "message_timeout": "1000s",  # the picker may hold a request in its queue
            "processing_mode": {
                "request_header_mode": "SEND",
                "response_header_mode": "SEND",
                "request_body_mode": "FULL_DUPLEX_STREAMED",
                "response_body_mode": "FULL_DUPLEX_STREAMED",
                "request_trailer_mode": "SEND",
                "response_trailer_mode": "SEND",
            },
        },
    }


def _router_filter() -> JsonObject:
    return {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{_V3}.filters.http.router.v3.Router", "suppress_envoy_headers": True},
    }


def _original_destination() -> JsonObject:
    options: JsonObject = {
        "@type": f"{_V3}.upstreams.http.v3.HttpProtocolOptions",
        "common_http_protocol_options": {"idle_timeout": f"{KEEP_ALIVE_SECONDS // 2}s"},
        "explicit_http_config": {"http_protocol_options": {}},
    }
    limits: JsonObject = {
        "max_connections": _UNBOUNDED,
        "max_pending_requests": _UNBOUNDED,
        "max_requests": _UNBOUNDED,
    }
    return {
        "name": "original_destination",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "10s",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION_HEADER},
        "circuit_breakers": {"thresholds": [limits]},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
    }


def _ext_proc_cluster(port: int, *, tls: bool) -> JsonObject:
    cluster: JsonObject = {
        **_static_cluster("ext_proc", port),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_V3}.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": _UNBOUNDED}},
            }
        },
        # every request and response holds one stream to the picker for as long as it lasts
        "circuit_breakers": {"thresholds": [{"max_requests": _UNBOUNDED, "max_pending_requests": _UNBOUNDED}]},
    }
    if tls:
        context = {"@type": f"{_V3}.transport_sockets.tls.v3.UpstreamTlsContext"}
        cluster["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return cluster


def _admin_cluster() -> JsonObject:
    return _static_cluster("admin", ADMIN_PORT)


def _static_cluster(name: str, port: int) -> JsonObject:
    endpoint: JsonObject = {"endpoint": {"address": _address(_LOOPBACK, port)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _virtual_host(name: str, *routes: JsonObject) -> JsonObject:
    return {"name": name, "domains": ["*"], "routes": list(routes)}


def _listener(name: str, port: int, manager: JsonObject) -> JsonObject:
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": name, "address": _address(_ANY_ADDRESS, port), "filter_chains": [chain]}


def _address(host: str, port: int) -> JsonObject:
    return {"socket_address": {"address": host, "port_value": port}}
