"""The configuration files of the node's programs."""

import json
import tomllib
from pathlib import Path

import pytest

from lab.node import config_files, network
from lab.node.certificates import Pki
from lab.node.spec import LabSpec, NodeOptions
from lab.paths import Instance


@pytest.fixture
def spec() -> LabSpec:
    return LabSpec(
        instance=Instance("t9"),
        options=NodeOptions(),
        tools={"runc": Path("/usr/sbin/runc")},
        cni_plugins=Path("/usr/lib/cni"),
        sandbox_image="lab.example/pause:1",
    )


def test_containerd_is_told_what_a_machine_without_all_capabilities_needs(spec):
    document = tomllib.loads(config_files.containerd(spec))
    runtime = document["plugins"]["io.containerd.cri.v1.runtime"]
    assert document["version"] == 3
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["disable_hugetlb_controller"] is True
    options = runtime["containerd"]["runtimes"]["runc"]["options"]
    assert options == {"BinaryName": "/usr/sbin/runc", "SystemdCgroup": False}


def test_containerd_never_asks_a_registry_for_the_sandbox(spec):
    images = tomllib.loads(config_files.containerd(spec))["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"] == {"sandbox": "lab.example/pause:1"}


def test_containerd_keeps_what_must_not_outlive_the_lab_in_the_private_run_directory(spec):
    document = tomllib.loads(config_files.containerd(spec))
    assert document["state"] == "/run/containerd"
    assert document["root"] == "/var/lib/llm-d-lab/t9/containerd"
    assert document["grpc"]["address"] == "/run/llm-d-lab/t9/containerd.sock"


def test_pods_are_routed_and_get_addresses_of_the_contract(spec):
    plugins = json.loads(config_files.cni(spec))["plugins"]
    assert [plugin["type"] for plugin in plugins] == ["ptp", "portmap"]
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "10.244.0.0/24"}]]
    assert plugins[0]["ipam"]["dataDir"].startswith("/var/lib/llm-d-lab/t9/")


def test_the_kubelet_configuration_has_every_setting_without_which_it_does_not_run_here(spec):
    document = json.loads(config_files.kubelet(spec, Pki(Path("/pki"))))
    needed = {
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "maxPods": 110,
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
    }
    assert {key: document.get(key) for key in needed} == needed
    assert document["authentication"]["anonymous"] == {"enabled": False}


def test_kube_proxy_leaves_the_machines_connection_tracking_alone():
    document = json.loads(config_files.kube_proxy(Pki(Path("/pki"))))
    assert document["conntrack"]["maxPerCore"] == 0
    assert document["conntrack"]["min"] == 0
    assert document["clusterCIDR"] == network.POD_CIDR


def test_write_puts_each_file_where_the_parts_look_for_it(spec, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path)
    config_files.write(spec, Pki(tmp_path / "pki"))
    written = {str(path.relative_to(tmp_path / "t9")) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        "config/containerd.toml",
        "config/kubelet.json",
        "config/kube-proxy.json",
        "cni/10-lab.conflist",
        "resolv.conf",
    }
