"""Which programs the node consists of: command line, what must be ready before, and how one sees that it is ready."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.node import config_files, network
from lab.node.certificates import FRONT_PROXY_CLIENT, Pki
from lab.node.spec import LabSpec
from lab.paths import NODE_PORTS

API_SERVER = "kube-apiserver"
CONTAINERD = "containerd"
FORWARDER = "forwarder"

_ETCD = "http://127.0.0.1:2379"
_GPU_PRODUCT = "lab-fake-gpu"  # value of GPU feature discovery's product label, for node selectors


@dataclass(frozen=True)
class HttpProbe:
    """Ready when `path` answers 200 on loopback."""

    port: int
    path: str
    tls: bool = False


@dataclass(frozen=True)
class SocketProbe:
    """Ready when someone listens on a unix socket."""

    path: Path


Probe = HttpProbe | SocketProbe


@dataclass(frozen=True, kw_only=True)
class Part:
    """One long-running program of the node.

    Attributes:
        name: What `status` calls it; also the name of its log.
        command: Absolute program and arguments.
        after: Parts that must be ready first.
        probe: How to see that it is ready; None = as soon as it runs.
        memory_mib: Soft limit of a Go program (GOMEMLIMIT): above it the collector works harder, nothing fails.
        listeners: Whether it inherits the listening sockets of the machine's loopback.
    """

    name: str
    command: tuple[str, ...]
    after: frozenset[str] = field(default_factory=frozenset)
    probe: Probe | None = None
    memory_mib: int | None = None
    listeners: bool = False


def table(spec: LabSpec, pki: Pki) -> tuple[Part, ...]:
    """Every part of the node, in an order that respects `after`."""
    return (
        _etcd(spec),
        _containerd(spec),
        _forwarder(),
        _api_server(spec, pki),
        _controller_manager(spec, pki),
        _scheduler(spec, pki),
        _kubelet(spec, pki),
        _kube_proxy(spec),
        _gpus(spec, pki),
    )


def _etcd(spec: LabSpec) -> Part:
    flags = {
        "name": "lab",
        "data-dir": spec.instance.state / "etcd",
        "listen-client-urls": _ETCD,
        "advertise-client-urls": _ETCD,
        "listen-peer-urls": "http://127.0.0.1:2380",
        "initial-advertise-peer-urls": "http://127.0.0.1:2380",
        "initial-cluster": "lab=http://127.0.0.1:2380",
        "log-level": "warn",
    }
    command = _command(spec, "etcd", flags)
    return Part(
        name="etcd",
        command=(
            *command,
            "--unsafe-no-fsync",
        ),  # a lab's data need not survive a power cut, and fsync is half of its writes
        probe=HttpProbe(2379, "/health"),
        memory_mib=128,
    )


def _api_server(spec: LabSpec, pki: Pki) -> Part:
    flags = {
        "advertise-address": network.NODE_IP,
        "bind-address": "0.0.0.0",  # noqa: S104  every interface of the lab's own network namespace
        "secure-port": network.API_PORT,
        "etcd-servers": _ETCD,
        "client-ca-file": pki.ca,
        "tls-cert-file": pki.certificate("apiserver"),
        "tls-private-key-file": pki.key("apiserver"),
        "kubelet-certificate-authority": pki.ca,
        "kubelet-client-certificate": pki.certificate("apiserver-kubelet-client"),
        "kubelet-client-key": pki.key("apiserver-kubelet-client"),
        "kubelet-preferred-address-types": "InternalIP",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "service-cluster-ip-range": network.SERVICE_CIDR,
        "service-node-port-range": f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}",
        "service-account-issuer": f"https://kubernetes.default.svc.{network.CLUSTER_DOMAIN}",
        "service-account-key-file": pki.directory / "service-account.pub",
        "service-account-signing-key-file": pki.key("service-account"),
        "requestheader-client-ca-file": pki.certificate("front-proxy-ca"),
        "requestheader-allowed-names": FRONT_PROXY_CLIENT,
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-username-headers": "X-Remote-User",
        "proxy-client-cert-file": pki.certificate(FRONT_PROXY_CLIENT),
        "proxy-client-key-file": pki.key(FRONT_PROXY_CLIENT),
        "profiling": "false",
        "v": 0,
    }
    return Part(
        name=API_SERVER,
        command=_command(spec, API_SERVER, flags),
        after=frozenset({"etcd"}),
        probe=HttpProbe(network.API_PORT, "/readyz", tls=True),
        memory_mib=450,
    )


def _controller_manager(spec: LabSpec, pki: Pki) -> Part:
    kubeconfig = pki.kubeconfig("controller-manager")
    options = spec.options
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "leader-elect": "false",  # there is one
        "use-service-account-credentials": "true",
        "root-ca-file": pki.ca,
        "service-account-private-key-file": pki.key("service-account"),
        "cluster-signing-cert-file": pki.ca,
        "cluster-signing-key-file": pki.key("ca"),
        "requestheader-client-ca-file": pki.certificate("front-proxy-ca"),
        "horizontal-pod-autoscaler-sync-period": f"{options.hpa_sync_period_seconds:g}s",
        "horizontal-pod-autoscaler-downscale-stabilization": f"{options.hpa_downscale_stabilization_seconds:g}s",
        "horizontal-pod-autoscaler-initial-readiness-delay": f"{options.hpa_initial_readiness_delay_seconds:g}s",
        "horizontal-pod-autoscaler-cpu-initialization-period": f"{options.hpa_cpu_initialization_period_seconds:g}s",
        "horizontal-pod-autoscaler-tolerance": f"{options.hpa_tolerance:g}",
        "profiling": "false",
        "v": 0,
    }
    return Part(
        name="kube-controller-manager",
        command=_command(spec, "kube-controller-manager", flags),
        after=frozenset({API_SERVER}),
        probe=HttpProbe(10257, "/healthz", tls=True),
        memory_mib=160,
    )


def _scheduler(spec: LabSpec, pki: Pki) -> Part:
    kubeconfig = pki.kubeconfig("scheduler")
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "profiling": "false",
        "v": 0,
    }
    return Part(
        name="kube-scheduler",
        command=_command(spec, "kube-scheduler", flags),
        after=frozenset({API_SERVER}),
        probe=HttpProbe(10259, "/healthz", tls=True),
        memory_mib=100,
    )


def _containerd(spec: LabSpec) -> Part:
    flags = {"config": config_files.config_directory(spec) / "containerd.toml", "log-level": "warn"}
    return Part(
        name=CONTAINERD,
        command=_command(spec, CONTAINERD, flags),
        probe=SocketProbe(config_files.containerd_socket(spec)),
        memory_mib=128,
    )


def _kubelet(spec: LabSpec, pki: Pki) -> Part:
    flags = {
        "config": config_files.config_directory(spec) / "kubelet.json",
        "kubeconfig": pki.kubeconfig("kubelet"),
        "root-dir": spec.instance.state / "kubelet",
        "cert-dir": spec.instance.state / "kubelet" / "pki",
        "node-ip": network.NODE_IP,
        "hostname-override": spec.instance.node,
        "node-labels": f"nvidia.com/gpu.product={_GPU_PRODUCT}",
        "v": 0,
    }
    return Part(
        name="kubelet",
        command=_command(spec, "kubelet", flags),
        after=frozenset({API_SERVER, CONTAINERD}),
        probe=HttpProbe(10248, "/healthz"),
        memory_mib=128,
    )


def _kube_proxy(spec: LabSpec) -> Part:
    flags = {
        "config": config_files.config_directory(spec) / "kube-proxy.json",
        "hostname-override": spec.instance.node,
        "v": 0,
    }
    return Part(
        name="kube-proxy",
        command=_command(spec, "kube-proxy", flags),
        after=frozenset({API_SERVER}),
        probe=HttpProbe(
            10256, "/livez"
        ),  # /healthz also wants the node object, which the kubelet may not have made yet
        memory_mib=64,
    )


def _forwarder() -> Part:
    return Part(name=FORWARDER, command=(sys.executable, "-m", "lab.node.forwarder"), listeners=True)


def _gpus(spec: LabSpec, pki: Pki) -> Part:
    arguments = ("--kubeconfig", str(pki.kubeconfig("admin")), "--node", spec.instance.node)
    return Part(
        name="fake-gpus",
        command=(sys.executable, "-m", "lab.node.gpus", *arguments, "--count", str(spec.options.gpus)),
        after=frozenset({API_SERVER}),
    )


def _command(spec: LabSpec, program: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    return (str(spec.tools[program]), *(f"--{name}={value}" for name, value in flags.items()))
