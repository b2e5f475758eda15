"""With which arguments the router's own programs start: endpoint picker and routing sidecar."""

from __future__ import annotations

from llmd.dialects import RouterDialect
from llmd.pool import Pool
from llmd.vllm import DECODE_PORT, SERVING_PORT, Variable

EXT_PROC_PORT = 9002
GRPC_HEALTH_PORT = 9003
METRICS_PORT = 9090
CONFIG_DIRECTORY = "/config"
HEALTH_SERVICE = "inference-extension"  # what the picker's gRPC probes ask for


def picker_arguments(pool: Pool, *, config_path: str, drain_seconds: int, verbosity: int = 2) -> list[str]:
    """Arguments of the endpoint picker in pool mode. Its metrics want a bearer token that may read them."""
    return [
        f"--pool-name={pool.name}",
        f"--pool-namespace={pool.namespace}",
        "--pool-group=inference.networking.k8s.io",
        f"--config-file={config_path}",
        f"--grpc-port={EXT_PROC_PORT}",
        f"--grpc-health-port={GRPC_HEALTH_PORT}",
        f"--metrics-port={METRICS_PORT}",
        "--metrics-endpoint-auth=true",
        "--secure-serving=true",
        f"--drain-timeout={drain_seconds}s",
        "--tracing=false",  # its default is true, and without a collector it retries for ever
        "--zap-encoder=json",
        f"--v={verbosity}",
    ]


def picker_environment() -> list[Variable]:
    """Environment of the endpoint picker: who it is."""
    return [
        Variable(name="NAMESPACE", field_path="metadata.namespace"),
        Variable(name="POD_NAME", field_path="metadata.name"),
    ]


def sidecar_arguments(router: RouterDialect) -> list[str]:
    """Arguments of the routing sidecar in a decode pod: plain HTTP within the cluster, KV by NIXL."""
    return [
        f"--port={SERVING_PORT}",
        f"{router.sidecar_port_flag}={DECODE_PORT}",
        "--kv-connector=nixlv2",
        f"{router.sidecar_secure_flag}=false",
        "--zap-log-level=1",
    ]
