"""Which objects let Prometheus find the model servers and the router."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from components.manifests import Manifest, children, metadata
from components.model_server_objects import MODEL_SERVER_PORT
from components.router_objects import METRICS_PORT
from llmd import labels
from llmd.names import Names
from llmd.roles import Role

_API = "monitoring.coreos.com/v1"
ENGINE_INTERVAL = "15s"  # the HPA's sync: a longer one only makes decode's signal older
ROUTER_INTERVAL = "10s"  # upstream's; the prefill query averages over a minute, so over six samples


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """Which fleets there are."""

    names: Names
    roles: tuple[Role, ...]


class Monitoring(pulumi.ComponentResource):
    """A PodMonitor for each fleet and a ServiceMonitor for the router; their names are the queries' job labels."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:Monitoring", name, None, opts)
        child = children(self, opts)
        _pod_monitors(args.names, args.roles, child)
        _service_monitor(args.names, child)
        self.register_outputs({"jobs": [args.names.router_job, *(args.names.engine_job(role) for role in args.roles)]})


def pod_monitor_spec(names: Names, role: Role) -> Manifest:
    """PodMonitorSpec of one fleet: the engine itself, which on decode pods is behind the sidecar."""
    return {
        "namespaceSelector": {"matchNames": [names.namespace]},
        "selector": {"matchLabels": labels.role_selector(names, role)},
        "podMetricsEndpoints": [{"port": MODEL_SERVER_PORT, "path": "/metrics", "interval": ENGINE_INTERVAL}],
    }


def service_monitor_spec(names: Names) -> Manifest:
    """ServiceMonitorSpec of the endpoint picker, which shows its metrics to who may see them."""
    return {
        "namespaceSelector": {"matchNames": [names.namespace]},
        "selector": {"matchLabels": labels.router_selector(names)},
        "endpoints": [
            {
                "port": METRICS_PORT,
                "path": "/metrics",
                "interval": ROUTER_INTERVAL,
                "authorization": {
                    "type": "Bearer",
                    "credentials": {"name": names.router_metrics_token, "key": "token"},
                },
            }
        ],
    }


def _pod_monitors(names: Names, roles: Iterable[Role], child: pulumi.ResourceOptions) -> list[CustomResource]:
    return [
        CustomResource(
            names.deployment(role),
            api_version=_API,
            kind="PodMonitor",
            metadata=metadata(names.deployment(role), names.namespace, labels.model_server(names, role)),
            spec=pod_monitor_spec(names, role),
            opts=child,
        )
        for role in roles
    ]


def _service_monitor(names: Names, child: pulumi.ResourceOptions) -> CustomResource:
    return CustomResource(
        names.router,
        api_version=_API,
        kind="ServiceMonitor",
        metadata=metadata(names.router, names.namespace, labels.router(names)),
        spec=service_monitor_spec(names),
        opts=child,
    )
