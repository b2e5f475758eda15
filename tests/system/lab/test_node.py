"""A running node: pods behind Services, and parts that die one after the other."""

import json
import time
import urllib.error
import urllib.request

import pytest

from lab.paths import Instance
from tests.system.lab.lab_under_test import LabUnderTest

PARTS = (
    "etcd",
    "containerd",
    "forwarder",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "fake-gpus",
)

PAGE = "hostname > /dev/shm/name"
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
                "initContainers": [
                    {
                        "name": "sidecar",
                        "image": "docker.io/library/busybox:latest",
                        "imagePullPolicy": "IfNotPresent",
                        "restartPolicy": "Always",
                        "command": ["sleep", "86400"],
                        "startupProbe": {"exec": {"command": ["true"]}},
                    }
                ],
                "containers": [
                    {
                        "name": "web",
                        "image": "docker.io/library/busybox:latest",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "sh",
                            "-c",
                            "echo serving; hostname > /dev/shm/name; exec httpd -f -p 8080 -h /dev/shm",
                        ],
                        "readinessProbe": {"httpGet": {"path": "/name", "port": 8080}, "periodSeconds": 1},
                        "resources": {"limits": {"nvidia.com/gpu": 4, "memory": "64Mi"}, "requests": {"cpu": "10m"}},
                        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                    }
                ],
                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}],
            },
        },
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "type": "NodePort",
        "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}],
    },
}


def fetch(lab: LabUnderTest, seconds: float = 30) -> str:
    """The web server's answer through Service, NodePort and forwarder."""
    url = f"http://127.0.0.1:{lab.instance.forwards[30080]}/name"
    deadline = time.monotonic() + seconds
    seen: object = "nothing"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode().strip()
        except (urllib.error.URLError, OSError) as error:
            seen = error
            time.sleep(0.2)
    pytest.fail(f"{url}: {seen}")


@pytest.fixture(scope="module")
def lab():
    under_test = LabUnderTest(Instance("tnode"))
    under_test.run("down")
    under_test.up("--hpa-sync-period-seconds", "5")
    try:
        for document in (WEB, SERVICE):
            under_test.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        under_test.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
        yield under_test
    finally:
        under_test.run("down", status=None)


def test_the_node_is_ready_with_sixteen_gpus_and_status_has_nothing_to_complain_about(lab):
    seen = lab.status()
    assert seen["problems"] == []
    assert [part["name"] for part in seen["parts"]] == list(PARTS)
    assert seen["memory_bytes"] > 100 * 2**20
    gpus = lab.kubectl("get", "node", "lab-tnode", "-o", "jsonpath={.status.allocatable.nvidia\\.com/gpu}")
    assert gpus == "16"


def test_pods_with_sidecar_probe_shared_memory_and_gpus_answer_through_a_service(lab):
    names = lab.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}").split()
    assert len(names) == 2
    assert fetch(lab) in names


def test_one_pod_reaches_another_through_a_service(lab):
    pod = lab.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
    address = lab.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    request = f"printf 'GET /name HTTP/1.0\\r\\n\\r\\n' | nc {address} 80 | tail -1"
    answers = {
        lab.kubectl("exec", pod, "-c", "web", "--", "sh", "-c", request).strip() for _ in range(12)
    }  # the other one answers too: the chance that twelve connections all stay home is 1 in 4096
    assert len(answers) == 2, answers


def test_a_pods_log_is_read_through_the_api_server(lab):
    pod = lab.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
    assert lab.kubectl("logs", pod, "-c", "web") == "serving\n"


def test_more_gpus_than_the_node_has_are_not_given(lab):
    greedy = json.loads(json.dumps(WEB))
    greedy["metadata"]["name"] = greedy["spec"]["template"]["metadata"]["labels"]["app"] = "greedy"
    greedy["spec"] |= {"replicas": 1, "selector": {"matchLabels": {"app": "greedy"}}}
    greedy["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 9
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(greedy))
    try:
        lab.kubectl(
            "wait",
            "pod",
            "-l",
            "app=greedy",
            "--for=jsonpath={.status.conditions[0].reason}=Unschedulable",
            "--timeout=30s",
        )
        message = lab.kubectl(
            "get", "pods", "-l", "app=greedy", "-o", "jsonpath={.items[0].status.conditions[0].message}"
        )
        assert "Insufficient nvidia.com/gpu" in message
    finally:
        lab.kubectl("delete", "deployment", "greedy", "--wait=false")


def test_a_second_up_is_harmless_and_says_so(lab):
    before = {part["name"]: (part["pid"], part["starts"]) for part in lab.status()["parts"]}
    assert "was running already; nothing to start" in lab.up().stdout
    assert {part["name"]: (part["pid"], part["starts"]) for part in lab.status()["parts"]} == before


def test_a_second_up_with_other_options_is_refused_by_their_names(lab):
    refused = lab.run("up", "--node-only", "--gpus", "8", status=1)
    assert "--gpus is 16, asked for 8" in refused.stderr


def test_options_reach_the_controller_manager(lab):
    command = lab.inside("cat", f"/proc/{lab.part('kube-controller-manager')['pid']}/cmdline")
    assert "--horizontal-pod-autoscaler-sync-period=5s" in command.split("\0")


def test_the_shell_sees_the_lab_and_its_cluster(lab):
    assert lab.inside("hostname").strip() == "lab-tnode"
    assert "lab-tnode" in lab.inside("kubectl", "get", "nodes")


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_killed_is_named_and_up_brings_it_back(lab, name):
    starts = lab.part(name)["starts"]
    lab.inside("kill", "-9", str(lab.part(name)["pid"]))
    told = lab.run("status", status=1)
    assert f"! {name} is dead: killed by SIGKILL" in told.stdout
    assert f"started again: {name}" in lab.up().stdout
    assert lab.status()["problems"] == []
    assert lab.part(name)["starts"] == starts + 1
    assert fetch(lab)


def test_a_part_that_hangs_is_named(lab):
    pid = str(lab.part("kube-scheduler")["pid"])
    lab.inside("kill", "-STOP", pid)
    try:
        told = lab.run("status", status=1)
        assert f"! kube-scheduler runs (process {pid} in the lab) and does not answer" in told.stdout
    finally:
        lab.inside("kill", "-CONT", pid)
    assert lab.run("status").returncode == 0
