"""The addons of a running lab do what a program needs of them: names, shared volumes, guarded metrics that scale."""

import base64
import json
import time

import pytest

from lab.addons import ADDONS
from lab.paths import Instance
from tests.system.lab.lab_under_test import LabUnderTest

BUSYBOX = "docker.io/library/busybox:latest"
NAMESPACE = "addons-at-work"
# Prometheus sees a new monitor when the kubelet next looks at the Secret with its configuration: up to 90 s.
SCRAPED_SECONDS = 180


def wait_for(what, condition, seconds):
    """Poll until `condition()` is true; its value. Fails with what was seen last."""
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s, last seen {seen!r}"
        time.sleep(1)
    return seen


@pytest.fixture(scope="module")
def lab():
    made = LabUnderTest(Instance("tadd"))
    made.run("down")
    try:
        made.run("up")
        yield made
    finally:
        made.run("down")


def pod(name, script, **spec):
    container = {"name": "c", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]} | spec,
    }


def on_volume(name, user, script):
    made = pod(
        name,
        script,
        securityContext={"runAsUser": user, "runAsNonRoot": True},
        volumes=[{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}],
    )
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
    return made


@pytest.fixture(scope="module")
def namespace(lab):
    lab.kubectl("create", "namespace", NAMESPACE)
    yield NAMESPACE
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def create(lab, *objects):
    lab.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


def get(lab, kind, name, namespace=NAMESPACE):
    return json.loads(lab.kubectl("get", kind, name, f"--namespace={namespace}", "-o", "json"))


def output_of(lab, name):
    wait_for(
        f"the end of pod {name}", lambda: get(lab, "pod", name)["status"].get("phase") in {"Succeeded", "Failed"}, 60
    )
    return lab.kubectl("logs", name, f"--namespace={NAMESPACE}")


def test_every_addon_is_up_when_the_lab_is(lab):
    seen = lab.status()["addons"]
    assert {part["name"]: part["ready"] for part in seen} == {addon.name: True for addon in ADDONS}


@pytest.mark.usefixtures("namespace")
def test_names_inside_are_found_and_names_outside_do_not_exist(lab):
    gate = "thanos-querier.openshift-monitoring.svc.cluster.local"
    create(lab, pod("names", f"nslookup -type=a {gate}; nslookup -type=a example.com"))
    answer = output_of(lab, "names")
    assert get(lab, "service", "thanos-querier", "openshift-monitoring")["spec"]["clusterIP"] in answer
    assert "can't find example.com: NXDOMAIN" in answer


def test_a_volume_is_shared_by_pods_of_different_users(lab, namespace):
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    create(lab, claim)
    wait_for("the claim to be bound", lambda: get(lab, "pvc", "shared")["status"].get("phase") == "Bound", 60)
    create(lab, on_volume("writer", 65532, "echo from the writer > /shared/x"))
    output_of(lab, "writer")
    create(lab, on_volume("reader", 65531, "cat /shared/x"))
    assert output_of(lab, "reader") == "from the writer\n"


def monitored():
    """A Deployment that says `load 25`, scraped, and scaled on it through the gate with an account that has no role."""
    labels = {"app": "loaded"}
    script = "mkdir -p /tmp/www; echo load 25 > /tmp/www/metrics.txt; exec httpd -f -p 8080 -h /tmp/www"
    template = pod("loaded", script)
    template["spec"] |= {"restartPolicy": "Always"}
    template["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": 8080}]
    of_ours = {"name": "loaded", "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": of_ours,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            },
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "metadata": of_ours,
            "spec": {
                "selector": {"matchLabels": labels},
                "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics.txt", "interval": "5s"}],
            },
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "keda", "namespace": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "keda-token",
                "namespace": NAMESPACE,
                "annotations": {"kubernetes.io/service-account.name": "keda"},
            },
        },
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "TriggerAuthentication",
            "metadata": of_ours,
            "spec": {
                "secretTargetRef": [
                    {"parameter": "bearerToken", "name": "keda-token", "key": "token"},
                    {"parameter": "ca", "name": "keda-token", "key": "service-ca.crt"},
                ]
            },
        },
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": of_ours,
            "spec": {
                "scaleTargetRef": {"name": "loaded"},
                "pollingInterval": 5,
                "minReplicaCount": 1,
                "maxReplicaCount": 3,
                "triggers": [
                    {
                        "type": "prometheus",
                        "metadata": {
                            "serverAddress": "https://thanos-querier.openshift-monitoring.svc:9091",
                            "query": f'max(load{{namespace="{NAMESPACE}"}})',
                            "threshold": "10",
                            "authModes": "bearer",
                            "ignoreNullValues": "false",
                        },
                        "authenticationRef": {"name": "loaded"},
                    }
                ],
            },
        },
    ]


@pytest.fixture(scope="module")
def account(lab, namespace):
    """Who KEDA is to the gate."""
    create(lab, *monitored())
    return f"system:serviceaccount:{namespace}:keda"


def gate_log(lab):
    return lab.kubectl("logs", "deployment/thanos-querier", "--namespace=openshift-monitoring")


@pytest.mark.usefixtures("account")
def test_whoever_trusts_the_injected_certificate_alone_can_ask_the_gate_and_is_refused_without_a_role(lab):
    def complete():
        data = get(lab, "secret", "keda-token").get("data") or {}
        return {"token", "service-ca.crt"} <= data.keys() and data

    data = wait_for("token and certificate", complete, 30)
    gate = "https://thanos-querier.openshift-monitoring.svc:9091/api/v1/query?query=up"
    client = (
        "import os, ssl, urllib.request, urllib.error\n"
        "context = ssl.create_default_context(cadata=os.environ['CA'])\n"
        "for token in ('', 'invented', os.environ['TOKEN']):\n"
        f"    request = urllib.request.Request({gate!r}, headers={{'Authorization': 'Bearer ' + token}})\n"
        "    try:\n"
        "        print(urllib.request.urlopen(request, context=context).status)\n"
        "    except urllib.error.HTTPError as error:\n"
        "        print(error.code)\n"
    )
    made = pod("client", "")
    container = made["spec"]["containers"][0]
    container |= {"image": "lab.llm-d.ai/tools:1", "command": ["python3", "-c", client]}
    container["env"] = [
        {"name": "CA", "value": base64.b64decode(data["service-ca.crt"]).decode()},
        {"name": "TOKEN", "value": base64.b64decode(data["token"]).decode()},
    ]
    create(lab, made)
    assert output_of(lab, "client").split() == ["401", "401", "403"]


def test_keda_scales_through_the_gate_once_its_account_has_the_role(lab, namespace, account):
    wait_for("a refusal at the gate", lambda: f"403: {account} may not get" in gate_log(lab), 60)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-monitoring-view"},
        "subjects": [{"kind": "ServiceAccount", "name": "keda", "namespace": namespace}],
    }
    create(lab, binding)
    try:
        # 25 of load at 10 per pod
        wait_for("three pods", lambda: get(lab, "deployment", "loaded")["status"].get("replicas") == 3, SCRAPED_SECONDS)
    finally:
        lab.kubectl("delete", "clusterrolebinding", NAMESPACE)


def test_a_stopped_addon_is_named_and_up_brings_it_back(lab):
    lab.kubectl("scale", "deployment/model-hub", "--namespace=model-hub", "--replicas=0")
    gone = wait_for(
        "status to name the hub",
        lambda: [part for part in lab.status()["addons"] if not part["ready"]],
        60,
    )
    assert [part["name"] for part in gone] == ["model-hub"]
    assert "Deployment model-hub/model-hub: 0 of 1 pods" in gone[0]["detail"]
    lab.run("up")
    assert all(part["ready"] for part in lab.status()["addons"])
