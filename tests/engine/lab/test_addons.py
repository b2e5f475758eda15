"""Addons against a real API server: every object is accepted, and metrics access is as on OpenShift.

No pod runs; the gate and the service CA run as plain processes with the accounts that their manifests give them.
"""

import base64
import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from lab import addons
from lab.addons import applying, dns, inference_pool, keda, metrics_gate, model_hub, prometheus, service_ca, storage
from lab.addons.kubectl import Kubectl
from lab.addons.readiness import Observation
from lab.api import ApiError
from lab.paths import CHECKOUT
from lab.progress import Progress
from lab.tools import toolchain
from tests.engine import api_server as kubernetes
from tests.engine import node
from tests.engine.api_server import wait_for

HELD_UP_BY_PODS = [keda.ADDON, prometheus.ADDON]  # what makes them ready is a program of theirs
READY_AT_ONCE = [addon for addon in addons.ADDONS if addon not in HELD_UP_BY_PODS]
SECRETS = "/api/v1/namespaces/{}/secrets"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """A server of this module's own: KEDA's webhooks would slow the others down."""
    toolchain.build_all(only=("etcd", "kube-apiserver", "kube-controller-manager"))
    with kubernetes.running(tmp_path_factory.mktemp("addons")) as server, node.playing(server):
        yield server


@pytest.fixture(scope="module")
def where(api):
    def get(path):
        answer = api.get(path)
        if answer is None:
            raise ApiError(f"{path}: 404")
        return answer

    return replace(addons.site(api.kubeconfig), read=lambda _: get)


@pytest.fixture(scope="module")
def applied(api, where):
    """Everything applied, those that can be ready twice; says what an addon lacks at that moment."""
    for _ in range(2):
        addons.apply(api.kubeconfig, Progress(), addons=READY_AT_ONCE, where=where, timeout_seconds=120)
    kubectl, get = Kubectl(where.kubectl, api.kubeconfig), where.read(api.kubeconfig)
    for addon in HELD_UP_BY_PODS:
        applying.apply_one(addon, where, kubectl, get, time.monotonic() + 60)
    return lambda addon: Observation(get).missing(addon)


@pytest.mark.parametrize(
    "addon", [dns, inference_pool, metrics_gate, model_hub, service_ca, storage], ids=lambda it: it.__name__
)
def test_addons_that_need_no_program_of_theirs_become_ready(applied, addon):
    assert applied(addon.ADDON) == []


def test_all_of_kedas_objects_are_accepted_and_its_unanswered_api_is_named(applied):
    (missing,) = wait_for(lambda: len(lines := applied(keda.ADDON)) == 1 and lines, "KEDA's pods, which are played", 30)
    assert missing.startswith("APIService v1beta1.external.metrics.k8s.io: ")


def test_all_of_prometheus_objects_are_accepted_and_the_server_that_no_operator_made_is_named(applied, api):
    (missing,) = wait_for(lambda: len(lines := applied(prometheus.ADDON)) == 1 and lines, "the operator's pod", 30)
    assert missing == "StatefulSet openshift-monitoring/prometheus-k8s: does not exist"
    assert api.get("/apis/monitoring.coreos.com/v1/namespaces/openshift-monitoring/prometheuses/k8s")


def test_every_deployment_of_every_addon_is_waited_for(applied, api):
    assert applied
    made = api.request("GET", "/apis/apps/v1/deployments")["items"]
    waited = {(it.namespace, it.name) for addon in addons.ADDONS for it in addon.workloads if it.kind == "Deployment"}
    assert {(it["metadata"]["namespace"], it["metadata"]["name"]) for it in made} == waited


def test_every_definition_that_is_applied_is_one_that_status_looks_for(applied, api):
    assert applied
    made = api.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    looked_for = {
        f"{plural}.{version.partition('/')[0]}"
        for addon in addons.ADDONS
        for version, plurals in addon.served.items()
        for plural in plurals
    }
    assert {it["metadata"]["name"] for it in made} == looked_for


def test_kedas_certificate_is_made_once(applied, api, where):
    assert applied
    before = api.get(f"{SECRETS.format('keda')}/kedaorg-certs")["data"]
    Kubectl(where.kubectl, api.kubeconfig).create_missing(keda.ADDON.seeds(where))
    assert api.get(f"{SECRETS.format('keda')}/kedaorg-certs")["data"] == before


class Prometheus(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"status":"success","data":{"result":[]}}')

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_request(self, code="-", size="-"):
        pass


@pytest.fixture(scope="module")
def upstream():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def token_of(api, namespace, account):
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return api.request("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]


@contextlib.contextmanager
def running(api, directory, module, namespace, account, *arguments):
    """A stand-in as a process of this machine, with the service account of its pod."""
    credentials = directory / "credentials"
    credentials.mkdir(parents=True, exist_ok=True)
    (credentials / "token").write_text(token_of(api, namespace, account))
    (credentials / "ca.crt").write_text(api.certificate)
    address = urlsplit(api.url)
    environment = os.environ | {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"lab.stand_ins.{module}", f"--credentials={credentials}", *arguments],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process, log
    finally:
        process.terminate()
        process.wait(10)


def free_port():
    return kubernetes._free_ports(1)[0]


@pytest.fixture(scope="module")
def signer(applied, api, tmp_path_factory):
    assert applied
    arguments = (f"--health-port={free_port()}",)
    directory = tmp_path_factory.mktemp("service-ca")
    with running(api, directory, "service_ca", "openshift-service-ca", "service-ca", *arguments) as started:
        yield started


@pytest.fixture(scope="module")
def gate(signer, api, upstream, tmp_path_factory):
    """Port of a running gate."""
    process, log = signer

    def certificate():
        assert process.poll() is None, log.read_text()
        return api.get(f"{SECRETS.format('openshift-monitoring')}/thanos-querier-tls")

    secret = wait_for(certificate, "the gate's certificate", 30)
    directory = tmp_path_factory.mktemp("gate")
    for name in ("tls.crt", "tls.key"):
        (directory / name).write_bytes(base64.b64decode(secret["data"][name]))
    port = free_port()
    arguments = (f"--listen=127.0.0.1:{port}", f"--upstream={upstream}", f"--certificate={directory}")
    with running(api, directory, "metrics_gate", "openshift-monitoring", "thanos-querier", *arguments) as (gated, said):

        def listening():
            assert gated.poll() is None, said.read_text()
            return ask(port, authority_of(api), None, path="/healthz")[0] == 200

        wait_for(listening, f"the gate ({said})", 30)
        yield port


def authority_of(api):
    stored = api.get(f"{SECRETS.format('openshift-service-ca')}/signing-key")
    return base64.b64decode(stored["data"]["tls.crt"]).decode()


def ask(port, authority, token, body=None, path="/api/v1/query?query=up"):
    """Status and content; a POST with a body. Whoever answers must have a certificate for the gate's Service."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = ssl.create_default_context(cadata=authority).wrap_socket(
        socket.create_connection(("127.0.0.1", port), timeout=10),
        server_hostname="thanos-querier.openshift-monitoring.svc.cluster.local",
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("POST" if body else "GET", path, body=body, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


@pytest.fixture(scope="module")
def reader(applied, api):
    """A namespace with an account, made as a user of OpenShift makes it; without the role."""
    assert applied
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    api.request("POST", "/api/v1/namespaces/team/serviceaccounts", {"metadata": {"name": "reader"}})
    annotations = {"kubernetes.io/service-account.name": "reader"}
    secret = {
        "metadata": {"name": "reader-token", "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
    }
    api.request("POST", SECRETS.format("team"), secret)
    return "team"


def with_keys(api, *names):
    secret = api.get(f"{SECRETS.format('team')}/reader-token")
    data = secret.get("data") or {}
    return {name: base64.b64decode(data[name]).decode() for name in names} if set(names) <= data.keys() else None


def test_a_token_secret_gets_the_service_ca_beside_its_token(signer, reader, api):
    assert signer
    assert reader
    data = wait_for(lambda: with_keys(api, "token", "service-ca.crt"), "token and service-ca.crt", 30)
    assert data["service-ca.crt"] == authority_of(api)


def test_a_removed_service_ca_comes_back(signer, reader, api):
    assert signer
    assert reader
    wait_for(lambda: with_keys(api, "service-ca.crt"), "service-ca.crt", 30)
    api.patch(f"{SECRETS.format('team')}/reader-token", {"data": {"service-ca.crt": None}})
    assert wait_for(lambda: with_keys(api, "service-ca.crt"), "service-ca.crt again", 30)


def test_a_deleted_serving_certificate_comes_back(signer, api):
    assert signer
    path = f"{SECRETS.format('openshift-monitoring')}/thanos-querier-tls"
    wait_for(lambda: api.get(path), "the certificate", 30)
    api.request("DELETE", path)
    assert wait_for(lambda: api.get(path), "the certificate again", 30)


def test_metrics_want_a_token_then_a_role(gate, reader, api):
    authority = authority_of(api)
    data = wait_for(lambda: with_keys(api, "token", "service-ca.crt"), "token and service-ca.crt", 30)
    assert data["service-ca.crt"] == authority
    assert ask(gate, authority, None)[0] == 401
    assert ask(gate, authority, "invented")[0] == 401
    assert ask(gate, authority, data["token"])[0] == 403
    binding = {
        "metadata": {"name": "reader-view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-monitoring-view"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": reader}],
    }
    api.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    wait_for(lambda: ask(gate, authority, data["token"])[0] == 200, "the role to count", 15)
    assert ask(gate, authority, data["token"]) == (200, b'{"status":"success","data":{"result":[]}}')
    assert ask(gate, authority, data["token"], "query=up", "/api/v1/query")[0] == 200


def test_a_fresh_bound_token_is_as_good_as_a_stored_one(gate, reader, api):
    assert reader
    assert ask(gate, authority_of(api), token_of(api, "team", "reader"))[0] in {200, 403}
