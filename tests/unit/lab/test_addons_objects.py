"""What the addons apply: images that the lab has, pods that need no rights, shipped manifests as the lab wants them."""

import base64
import json
import textwrap

import pytest
import yaml

from lab import addons
from lab.addons import dns, inference_pool, keda, metrics_gate, model_hub, prometheus, service_ca, storage
from lab.addons.addon import Site, Workload
from lab.addons.manifests import parse
from lab.images import table
from lab.stand_ins.metrics_gate import RESOURCE

IMAGES = {
    dns.IMAGE,
    storage.IMAGE,
    storage.HELPER_IMAGE,
    *keda.IMAGES.values(),
    prometheus.OPERATOR_IMAGE,
    prometheus.RELOADER_IMAGE,
    prometheus.PROMETHEUS_IMAGE,
    metrics_gate.IMAGE,
    service_ca.IMAGE,
    model_hub.IMAGE,
}
OURS = [dns.ADDON, metrics_gate.ADDON, model_hub.ADDON, service_ca.ADDON]


@pytest.fixture
def where(tmp_path):
    return Site(tmp_path / "kubectl", tmp_path / "volumes", lambda family, _: tmp_path / family)


def ship(where, family, path, text):
    file = where.module_dir(family, "") / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))


def of_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def test_the_lab_builds_every_image_that_an_addon_asks_for():
    missing = IMAGES - {image.reference for image in table.images()}
    assert missing == set()


@pytest.mark.parametrize("addon", OURS, ids=lambda addon: addon.name)
def test_pods_of_ours_need_no_rights_and_little_room(addon, where):
    for deployment in of_kind(addon.objects(where), "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert container["image"] in IMAGES
        security = container["securityContext"]
        assert security["runAsNonRoot"]
        assert security["readOnlyRootFilesystem"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]["cpu"] == "10m"
        assert "readinessProbe" in container


@pytest.mark.parametrize("addon", OURS, ids=lambda addon: addon.name)
def test_every_deployment_that_is_applied_is_waited_for(addon, where):
    applied = {
        Workload("Deployment", item["metadata"]["namespace"], item["metadata"]["name"])
        for item in of_kind(addon.objects(where), "Deployment")
    }
    assert applied == set(addon.workloads)


def test_names_of_addons_are_unique():
    names = [addon.name for addon in addons.ADDONS]
    assert len(set(names)) == len(names) == 8


def test_dns_is_at_the_kubelets_address_and_asks_nobody_outside(where):
    objects = dns.ADDON.objects(where)
    (service,) = of_kind(objects, "Service")
    assert service["spec"]["clusterIP"] == "10.96.0.10"
    assert {port["port"] for port in service["spec"]["ports"]} == {53}
    (config,) = of_kind(objects, "ConfigMap")
    inside, outside = config["data"]["Corefile"].split("\n}\n")[:2]
    assert inside.startswith("cluster.local:1053 in-addr.arpa:1053 ip6.arpa:1053 {")
    assert "kubernetes cluster.local" in inside
    assert "template" not in inside  # it would answer before `kubernetes` does
    assert outside.startswith(".:1053 {")
    assert "forward" not in inside + outside


def test_the_gate_asks_the_service_ca_for_the_certificate_that_it_mounts(where):
    objects = metrics_gate.ADDON.objects(where)
    (service,) = of_kind(objects, "Service")
    (deployment,) = of_kind(objects, "Deployment")
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == ("thanos-querier", "openshift-monitoring")
    assert service["spec"]["ports"][0]["port"] == 9091
    wanted = service["metadata"]["annotations"]["service.beta.openshift.io/serving-cert-secret-name"]
    pod = deployment["spec"]["template"]["spec"]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"]] == [wanted]


STORAGE = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: local-path-provisioner}
    spec:
      template:
        spec:
          containers:
            - {name: p, image: x, command: [local-path-provisioner, --debug], env: [{name: POD_NAMESPACE, value: n}]}
    ---
    apiVersion: storage.k8s.io/v1
    kind: StorageClass
    metadata: {name: local-path}
    provisioner: rancher.io/local-path
    volumeBindingMode: WaitForFirstConsumer
    ---
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: local-path-config}
    data: {config.json: "{}"}
    ---
    apiVersion: v1
    kind: Namespace
    metadata: {name: local-path-storage}
"""


@pytest.fixture
def stored(where):
    ship(where, "local-path-provisioner", "deploy/local-path-storage.yaml", STORAGE)
    return storage.ADDON.objects(where)


def test_volumes_are_shared_so_that_every_access_mode_works(stored, where):
    (config,) = of_kind(stored, "ConfigMap")
    assert json.loads(config["data"]["config.json"]) == {
        "nodePathMap": [],
        "sharedFileSystemPath": str(where.volumes),
    }


def test_the_storage_class_is_the_default_and_binds_at_once(stored):
    (made,) = of_kind(stored, "StorageClass")
    assert made["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert made["volumeBindingMode"] == "Immediate"


def test_the_helper_makes_directories_as_root_with_an_image_that_the_lab_has(stored):
    (config,) = of_kind(stored, "ConfigMap")
    (container,) = yaml.safe_load(config["data"]["helperPod.yaml"])["spec"]["containers"]
    assert container["image"] == storage.HELPER_IMAGE
    assert container["securityContext"]["runAsUser"] == 0


def test_the_provisioner_runs_the_images_own_program_and_keeps_its_environment(stored):
    (deployment,) = of_kind(stored, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "command" not in container
    assert container["args"] == ["start", "--config", "/etc/config/config.json"]
    assert container["env"][0] == {"name": "POD_NAMESPACE", "value": "n"}


KEDA = """\
    apiVersion: v1
    kind: Namespace
    metadata: {name: keda}
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: keda-operator, namespace: keda}
    spec:
      template:
        spec:
          containers:
            - name: keda-operator
              image: ghcr.io/kedacore/keda:main
              imagePullPolicy: Always
              command: [/keda]
              args: [--leader-elect, --enable-cert-rotation=true]
              env: [{name: WATCH_NAMESPACE, value: ""}]
              livenessProbe: {httpGet: {path: /healthz, port: 8081}, initialDelaySeconds: 25}
              readinessProbe: {httpGet: {path: /readyz, port: 8081}, initialDelaySeconds: 20}
"""


@pytest.fixture
def scaled(where):
    rendered = where.kubectl.with_name("rendered.yaml")
    rendered.write_text(textwrap.dedent(KEDA))
    where.kubectl.write_text(f'#!/bin/sh\n[ "$1" = kustomize ] && cat {rendered}\n')
    where.kubectl.chmod(0o755)
    return keda.ADDON.objects(where)


def test_keda_runs_the_labs_images_without_waiting_for_a_lease_or_a_late_probe(scaled):
    (deployment,) = of_kind(scaled, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ghcr.io/kedacore/keda:2.21.0"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert "command" not in container
    assert container["args"] == ["--enable-cert-rotation=true"]
    assert "initialDelaySeconds" not in container["readinessProbe"]
    assert {entry["name"] for entry in container["env"]} == {"WATCH_NAMESPACE", "GOMEMLIMIT", "GOGC"}


def test_kedas_first_certificate_has_the_files_that_its_rotation_keeps(where):
    (secret,) = keda.ADDON.seeds(where)
    assert secret["metadata"] == {"name": "kedaorg-certs", "namespace": "keda"}
    assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert base64.b64decode(secret["data"]["ca.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
    # The rotation reads PKCS #1 only; with another form it would leave webhooks and API without an authority.
    assert base64.b64decode(secret["data"]["ca.key"]).startswith(b"-----BEGIN RSA PRIVATE KEY-----")


def test_kedas_certificate_names_each_part_in_every_form():
    assert len(keda.certificate_names()) == 12
    assert "keda-admission-webhooks.keda.svc" in keda.certificate_names()
    assert "keda-operator.keda.svc.cluster.local" in keda.certificate_names()


def test_manifests_that_do_not_render_are_an_error_with_kubectls_words(where):
    where.kubectl.write_text("#!/bin/sh\necho no such directory >&2; exit 1\n")
    where.kubectl.chmod(0o755)
    with pytest.raises(RuntimeError, match="no such directory"):
        keda.ADDON.objects(where)


BUNDLE = """\
    ---
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata:
      name: prometheuses.monitoring.coreos.com
    spec: {enum: [=, "!="]}
    ---
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata:
      name: prometheusagents.monitoring.coreos.com
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRoleBinding
    metadata:
      name: prometheus-operator
    subjects: [{kind: ServiceAccount, name: prometheus-operator, namespace: default}]
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: prometheus-operator, namespace: default}
    spec:
      template:
        spec:
          containers: [{name: prometheus-operator, image: x, args: [--kubelet-service=kube-system/kubelet]}]
"""


@pytest.fixture
def monitored(where):
    ship(where, "prometheus-operator", "bundle.yaml", BUNDLE)
    return prometheus.ADDON.objects(where)


def test_only_definitions_that_a_server_needs_are_taken(monitored):
    (definition,) = of_kind(monitored, "CustomResourceDefinition")
    assert definition["metadata"]["name"] == "prometheuses.monitoring.coreos.com"
    assert definition["spec"]["enum"] == ["=", "!="]


def test_the_operator_moves_to_openshifts_namespace_with_its_binding(monitored):
    (deployment,) = of_kind(monitored, "Deployment")
    assert deployment["metadata"]["namespace"] == "openshift-monitoring"
    subjects = [it["subjects"][0] for it in of_kind(monitored, "ClusterRoleBinding")]
    assert {"prometheus-operator", "prometheus-k8s"} == {subject["name"] for subject in subjects}
    assert {subject["namespace"] for subject in subjects} == {"openshift-monitoring"}


def test_the_server_takes_every_monitor_and_rule_of_every_namespace(monitored):
    (server,) = of_kind(monitored, "Prometheus")
    for kind in ("serviceMonitor", "podMonitor", "probe", "rule"):
        assert server["spec"][f"{kind}Selector"] == {}
        assert server["spec"][f"{kind}NamespaceSelector"] == {}


def test_the_view_role_grants_what_the_gate_asks_for(monitored):
    (role,) = [it for it in of_kind(monitored, "ClusterRole") if it["metadata"]["name"] == "cluster-monitoring-view"]
    (rule,) = [it for it in role["rules"] if RESOURCE["group"] in it["apiGroups"]]
    assert f"{RESOURCE['resource']}/{RESOURCE['subresource']}" in rule["resources"]
    assert RESOURCE["verb"] in rule["verbs"]
    assert rule["resourceNames"] == [RESOURCE["name"]]


def test_a_definition_is_chosen_by_its_whole_name():
    text = "kind: CustomResourceDefinition\nmetadata:\n  name: {}\n---\n"
    stream = "".join(text.format(name) for name in ("a.io", "aa.io", "a.io2"))
    assert [item["metadata"]["name"] for item in parse(stream, ["a.io"])] == ["a.io"]


def test_every_inference_definition_of_the_module_is_applied(where):
    for name in ("b", "a"):
        ship(
            where,
            "inference-extension",
            f"config/crd/bases/{name}.yaml",
            f"kind: CustomResourceDefinition\nname: {name}\n",
        )
    assert [item["name"] for item in inference_pool.ADDON.objects(where)] == ["a", "b"]
