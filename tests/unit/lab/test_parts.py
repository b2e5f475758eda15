"""The table of the node's programs."""

import ipaddress
import sys
from pathlib import Path

import pytest

from lab import lifecycle
from lab.node import network, parts
from lab.node.certificates import Pki
from lab.node.parts import HttpProbe
from lab.node.spec import LabSpec, NodeOptions
from lab.paths import Instance


def table(options: NodeOptions | None = None) -> dict[str, parts.Part]:
    spec = LabSpec(
        instance=Instance("t9"),
        options=options or NodeOptions(),
        tools={name: Path("/tools") / name for name in lifecycle.NODE_TOOLS},
        cni_plugins=Path("/usr/lib/cni"),
        sandbox_image="lab.example/pause:1",
    )
    return {part.name: part for part in parts.table(spec, Pki(spec.instance.state / "pki"))}


def flags(part: parts.Part) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in part.command[1:] if "=" in word)
    return {name: value for name, _, value in pairs}


def test_the_node_consists_of_these_parts():
    assert list(table()) == [
        "etcd",
        "containerd",
        "forwarder",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "fake-gpus",
    ]


def test_each_part_is_listed_after_the_parts_it_needs():
    seen: set[str] = set()
    for name, part in table().items():
        assert part.after <= seen, f"{name} needs {sorted(part.after - seen)}, listed later or not at all"
        seen.add(name)


def test_every_program_is_absolute_so_that_no_path_decides_what_runs():
    programs = {part.command[0] for part in table().values()}
    assert all(Path(program).is_absolute() for program in programs)
    assert {program for program in programs if not program.startswith("/tools/")} == {sys.executable}


def test_every_file_that_a_part_is_given_belongs_to_the_instance():
    paths = [(part.name, value) for part in table().values() for value in flags(part).values() if value.startswith("/")]
    assert len(paths) > 20
    assert [(name, path) for name, path in paths if "/t9/" not in path] == []


def test_ports_of_the_probes_are_all_different():
    ports = [part.probe.port for part in table().values() if isinstance(part.probe, HttpProbe)]
    assert len(ports) == len(set(ports)) == 6


def test_the_api_server_serves_the_contracts_networks_and_aggregation():
    given = flags(table()["kube-apiserver"])
    assert given["service-cluster-ip-range"] == "10.96.0.0/16"
    assert given["service-node-port-range"] == "30080-30095"
    assert given["authorization-mode"] == "Node,RBAC"
    assert given["enable-admission-plugins"] == "NodeRestriction"
    assert given["requestheader-allowed-names"] == "front-proxy-client"
    assert given["proxy-client-cert-file"].endswith("front-proxy-client.crt")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (NodeOptions(), ("15s", "300s", "30s", "300s", "0.1")),
        (
            NodeOptions(
                hpa_sync_period_seconds=2.5,
                hpa_downscale_stabilization_seconds=10,
                hpa_initial_readiness_delay_seconds=0,
                hpa_cpu_initialization_period_seconds=5,
                hpa_tolerance=0.05,
            ),
            ("2.5s", "10s", "0s", "5s", "0.05"),
        ),
    ],
)
def test_hpa_clocks_are_kubernetes_own_unless_the_user_sets_them(options, expected):
    given = flags(table(options)["kube-controller-manager"])
    names = (
        "sync-period",
        "downscale-stabilization",
        "initial-readiness-delay",
        "cpu-initialization-period",
        "tolerance",
    )
    assert tuple(given[f"horizontal-pod-autoscaler-{name}"] for name in names) == expected


def test_the_gpu_keeper_keeps_as_many_as_the_user_asked_for():
    command = table(NodeOptions(gpus=3))["fake-gpus"].command
    assert command[-2:] == ("--count", "3")
    assert "lab-t9" in command


def test_only_the_forwarder_gets_the_machines_listening_sockets():
    assert [part.name for part in table().values() if part.listeners] == ["forwarder"]


def test_all_networks_of_the_lab_are_disjoint():
    nets = [ipaddress.ip_network(cidr) for cidr in (network.POD_CIDR, network.SERVICE_CIDR)]
    nets.append(ipaddress.ip_interface(network.NODE_NETWORK).network)
    assert not any(a.overlaps(b) for i, a in enumerate(nets) for b in nets[i + 1 :])
    assert ipaddress.ip_address(network.CLUSTER_DNS) in nets[1]
    assert next(nets[1].hosts()) == ipaddress.ip_address(network.API_SERVICE_IP)
