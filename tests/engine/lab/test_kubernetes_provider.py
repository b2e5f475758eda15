"""The Kubernetes provider against an API server: what it makes, waits for, sees drift in and deletes."""

import pytest

from tests.engine.api_server import ApiServer
from tests.engine.conftest import StackMaker
from tests.engine.stack import Stack

PROGRAM = """
import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes import apiextensions, apps, core

config = pulumi.Config()
labels = {"app": "web"}
namespace = core.v1.Namespace("space", metadata={"name": config.require("namespace")})
child = pulumi.ResourceOptions(parent=namespace)
name = namespace.metadata.name

settings = core.v1.ConfigMap("settings", metadata={"name": "settings", "namespace": name}, data={"k": "v"}, opts=child)
claim = core.v1.PersistentVolumeClaim(
    "claim",
    metadata={"name": "claim", "namespace": name},
    spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    opts=child,
)
deployment = apps.v1.Deployment(
    "web",
    metadata={"name": "web", "namespace": name},
    spec={
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": config.require("image"),
                        "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    }
                ]
            },
        },
    },
    opts=child,
)
job = kubernetes.batch.v1.Job(
    "once",
    metadata={"name": "once", "namespace": name},
    spec={"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "once", "image": "x"}]}}},
    opts=child,
)
scaler = apiextensions.CustomResource(
    "scaler",
    api_version="keda.sh/v1alpha1",
    kind="ScaledObject",
    metadata={"name": "web", "namespace": name},
    spec={
        "scaleTargetRef": {"name": "web"},
        "minReplicaCount": 1,
        "maxReplicaCount": 4,
        "triggers": [{"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "1"}}],
    },
    opts=pulumi.ResourceOptions(parent=namespace, depends_on=[deployment]),
)
pulumi.export("uid", deployment.metadata.uid)
"""


@pytest.fixture
def stack(make_stack: StackMaker, api_server: ApiServer) -> Stack:
    """A stack of a namespace's worth of objects."""
    result = make_stack({"__main__.py": PROGRAM}, kubeconfig=api_server.kubeconfig)
    result.configure("namespace", result.project.name)
    result.configure("image", "registry.example/web:1")
    return result


def test_objects_are_made_settle_drift_and_go(stack: Stack, api_server: ApiServer):
    space = f"/api/v1/namespaces/{stack.project.name}"
    scaler = f"/apis/keda.sh/v1alpha1/namespaces/{stack.project.name}/scaledobjects/web"
    web = f"/apis/apps/v1/namespaces/{stack.project.name}/deployments/web"

    preview = stack.preview()
    assert preview.changes == {"create": 7}
    assert preview.diagnostics == []
    assert api_server.get(space) is None

    assert stack.up().diagnostics == []
    assert api_server.get(web)["status"]["availableReplicas"] == 2
    assert api_server.get(web)["metadata"]["uid"] == stack.outputs()["uid"]
    assert api_server.get(scaler)["spec"]["maxReplicaCount"] == 4
    assert stack.preview("--refresh").changes == {}

    # What another writer owns now is seen, and not taken back in silence.
    api_server.patch(scaler, {"spec": {"maxReplicaCount": 9}})
    drifted = stack.preview("--refresh", status=1)
    assert any("conflict" in message and ".spec.maxReplicaCount" in message for _, message in drifted.diagnostics)
    api_server.patch(scaler, {"spec": {"maxReplicaCount": 4}})
    # What is gone is made again.
    api_server.request("DELETE", f"{space}/configmaps/settings")
    assert stack.up("--refresh").changes == {"create": 1}
    assert api_server.get(f"{space}/configmaps/settings")["data"] == {"k": "v"}

    stack.configure("image", "registry.example/web:2")
    up = stack.up()
    assert [step["urn"].rpartition("::")[2] for step in up.steps("update")] == ["web"]
    assert api_server.get(web)["metadata"]["uid"] == stack.outputs()["uid"]

    assert stack.destroy().changes == {"delete": 7}
    assert api_server.get(space) is None
    assert stack.resources() == []


def test_an_object_that_the_schema_refuses_fails_the_preview(
    make_stack: StackMaker, api_server: ApiServer, namespace: str
):
    program = f"""
from pulumi_kubernetes import apiextensions
apiextensions.CustomResource(
    "scaler",
    api_version="keda.sh/v1alpha1",
    kind="ScaledObject",
    metadata={{"name": "web", "namespace": "{namespace}"}},
    spec={{"scaleTargetRef": {{}}, "triggers": []}},
)
"""
    outcome = make_stack({"__main__.py": program}, kubeconfig=api_server.kubeconfig).preview(status=1)
    assert any("spec.scaleTargetRef.name" in message for _, message in outcome.diagnostics), outcome
