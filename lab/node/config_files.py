"""What kubelet, containerd, CNI and kube-proxy are configured with, as functions from a spec to text."""

import json
from pathlib import Path

from lab.node import network
from lab.node.certificates import Pki
from lab.node.spec import LabSpec

MAX_PODS = 110  # the kubelet's own default, and below the 253 addresses of the pods' network

_ROOT_OF_SOCKETS = "containerd.sock"


def containerd_socket(spec: LabSpec) -> Path:
    """Where containerd listens; absolute, as `ctr -a` wants it."""
    return spec.instance.run / _ROOT_OF_SOCKETS


def containerd(spec: LabSpec) -> str:
    """Containerd 2 configuration (TOML, version 3).

    `restrict_oom_score_adj`: without CAP_SYS_RESOURCE nobody may lower an OOM score, and runc fails when asked to.
    AppArmor is off because a loaded profile would outlive the lab in the kernel. Its volatile state is in the lab's
    private /run, and its database is not synced to disk: a lab that was killed starts anew.
    """
    state = spec.instance.state
    return f"""version = 3
root = "{state / "containerd"}"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{containerd_socket(spec)}"

[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true

[plugins.'io.containerd.internal.v1.opt']
  path = "{state / "opt"}"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{spec.sandbox_image}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{spec.cni_plugins}"]
    conf_dir = "{cni_directory(spec)}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{spec.tools["runc"]}"
        SystemdCgroup = false
"""


def cni_directory(spec: LabSpec) -> Path:
    """Where the network configuration list of the pods is."""
    return spec.instance.state / "cni"


def cni(spec: LabSpec) -> str:
    """How a pod gets its address (CNI configuration list).

    `ptp` rather than `bridge`: each pod is a routed neighbour of the node, so that traffic between two pods passes the
    node's iptables. A bridge would carry it below them (unless the machine has br_netfilter): answers of a Service
    would not find their way back, and a fault test could not cut a path.
    """
    document = {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "ptp",
                "mtu": 1500,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": network.POD_CIDR}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": str(spec.instance.state / "addresses"),
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    return json.dumps(document, indent=1)


def kubelet(spec: LabSpec, pki: Pki) -> str:
    """KubeletConfiguration v1beta1.

    cgroups per QoS class are off: the lab measures and limits containers, and a kubelet below a cgroup namespace has no
    node-wide tree to divide. Eviction is nearly off, since a developer's disk is often 90 % full.
    """
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.NODE_IP,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.ca)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.certificate("kubelet-server")),
        "tlsPrivateKeyFile": str(pki.key("kubelet-server")),
        "containerRuntimeEndpoint": f"unix://{containerd_socket(spec)}",
        "clusterDNS": [network.CLUSTER_DNS],
        "clusterDomain": network.CLUSTER_DOMAIN,
        "resolvConf": str(resolv_conf(spec)),
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # a collected image could not be pulled again: there is no registry
        "maxPods": MAX_PODS,
        "syncFrequency": "10s",  # how late a changed Secret reaches its pod; by default a minute
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": str(spec.instance.state / "volume-plugins"),
        "serializeImagePulls": False,
        "registerWithTaints": [],
        "shutdownGracePeriod": "0s",
        "logging": {"verbosity": 0},
    }
    return json.dumps(document, indent=1)


def resolv_conf(spec: LabSpec) -> Path:
    """What pods with `dnsPolicy: Default` resolve with: an empty file, because nothing outside can be reached."""
    return spec.instance.state / "resolv.conf"


def kube_proxy(pki: Pki) -> str:
    """KubeProxyConfiguration v1alpha1; conntrack limits are the machine's and stay as they are."""
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": network.NODE_IP,
        "clientConnection": {"kubeconfig": str(pki.kubeconfig("kube-proxy"))},
        "clusterCIDR": network.POD_CIDR,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "iptables",
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s",
            "udpStreamTimeout": "0s",
        },
    }
    return json.dumps(document, indent=1)


def write(spec: LabSpec, pki: Pki) -> None:
    """Write all of it into the state directory."""
    directory = config_directory(spec)
    for path in (directory, cni_directory(spec)):
        path.mkdir(parents=True, exist_ok=True)
    (directory / "containerd.toml").write_text(containerd(spec))
    (directory / "kubelet.json").write_text(kubelet(spec, pki))
    (directory / "kube-proxy.json").write_text(kube_proxy(pki))
    (cni_directory(spec) / "10-lab.conflist").write_text(cni(spec))
    resolv_conf(spec).write_text("")


def config_directory(spec: LabSpec) -> Path:
    """Where the parts' configuration files are."""
    return spec.instance.state / "config"
