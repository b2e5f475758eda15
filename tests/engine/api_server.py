"""A Kubernetes API without a node: etcd, API server and controllers as plain processes on loopback.

Deployments get ReplicaSets and pods, namespaces and owned objects are collected, tokens are minted; what a node would
do, and who plays it, is in `tests/engine/node.py`.
"""

import base64
import contextlib
import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lab.addons.manifests import read
from lab.tools import toolchain

START_SECONDS = 90.0  # both are up within 6 s on an idle machine with two cores
_CRDS = (  # family, module, directory, files: the kinds that the program makes
    (
        "keda",
        "github.com/kedacore/keda/v2",
        "config/crd/bases",
        ("keda.sh_scaledobjects.yaml", "keda.sh_triggerauthentications.yaml"),
    ),
    (
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator",
        "example/prometheus-operator-crd",
        (
            "monitoring.coreos.com_podmonitors.yaml",
            "monitoring.coreos.com_servicemonitors.yaml",
            "monitoring.coreos.com_prometheusrules.yaml",
        ),
    ),
    (
        "inference-extension",
        "sigs.k8s.io/gateway-api-inference-extension",
        "config/crd/bases",
        ("inference.networking.k8s.io_inferencepools.yaml",),
    ),
)
# Left out: what needs a node (its lifecycle, volumes) and what needs a cluster-signing key.
_WITHOUT = (
    "node-lifecycle-controller",
    "node-ipam-controller",
    "persistentvolume-binder-controller",
    "certificatesigningrequest-signing-controller",
)


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and an administrator's way in."""

    url: str
    token: str
    certificate: str
    kubeconfig: Path

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", timeout: float = 30.0
    ) -> Any:
        """One request as administrator; the decoded answer. Raises `urllib.error.HTTPError` for a refusal."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        with urllib.request.build_opener(urllib.request.HTTPSHandler(context=self._tls())).open(
            request, timeout=timeout
        ) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        """What is at `path`, None if nothing is."""
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def patch(self, path: str, body: Any) -> Any:
        """Merge `body` into the object at `path`."""
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def apply_crds(self) -> list[str]:
        """Register the custom kinds of the lab's operators, from their published modules; the CRDs' names."""
        names = []
        for family, module, directory, files in _CRDS:
            for file in files:
                (document,) = read(toolchain.module_dir(family, module) / directory / file)
                names.append(document["metadata"]["name"])
                self._create_crd(document)
        for name in names:
            wait_for(lambda name=name: self._established(name), f"CRD {name} to be served")
        return names

    def _create_crd(self, document: Mapping[str, Any]) -> None:
        try:
            self.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def _established(self, name: str) -> bool:
        status = self.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").get(
            "status", {}
        )
        return any(one["type"] == "Established" and one["status"] == "True" for one in status.get("conditions", []))

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.certificate)


def wait_for(condition: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> Any:
    """Poll `condition` until it holds; its value. Fails with what was seen last."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            seen = condition()
        except (OSError, ssl.SSLError) as error:
            seen = None
            last: object = error
        else:
            last = seen
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}; last seen: {last!r}")
        time.sleep(0.05)


@contextlib.contextmanager
def running(directory: Path) -> Generator[ApiServer]:
    """Run an API server that keeps everything in `directory`, until the block ends."""
    directory.mkdir(parents=True, exist_ok=True)
    etcd_client, etcd_peer, port, manager = _free_ports(4)
    token = secrets.token_hex(16)
    (directory / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n', encoding="utf-8")
    _write_service_account_keys(directory)
    etcd = f"http://127.0.0.1:{etcd_client}"
    url = f"https://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        _start(
            stack,
            directory,
            "etcd",
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{etcd_peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{etcd_peer}",
            f"--initial-cluster=default=http://127.0.0.1:{etcd_peer}",
            "--unsafe-no-fsync",  # it is thrown away
        )
        server = _start(
            stack,
            directory,
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={directory / 'certificates'}",
            f"--token-auth-file={directory / 'tokens.csv'}",
            "--anonymous-auth=false",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={directory / 'sa.pub'}",
            f"--service-account-signing-key-file={directory / 'sa.key'}",
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
        )
        certificate_file = directory / "certificates" / "apiserver.crt"
        certificate = wait_for(
            lambda: certificate_file.exists() and certificate_file.read_text(), "the API server's certificate"
        )
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(url, token, certificate)), encoding="utf-8")
        api = ApiServer(url, token, certificate, kubeconfig)
        wait_for(lambda: _alive(server) and _ready(api), f"{url}/readyz ({directory / 'kube-apiserver.log'})")
        _start(
            stack,
            directory,
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--controllers=*,{','.join(f'-{name}' for name in _WITHOUT)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={manager}",
            f"--cert-dir={directory / 'manager'}",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={directory / 'sa.key'}",
            f"--root-ca-file={certificate_file}",
        )
        wait_for(lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default"), "the controllers to work")
        yield api


def _start(stack: contextlib.ExitStack, directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    log = stack.enter_context((directory / f"{name}.log").open("ab"))
    process = subprocess.Popen(
        [str(toolchain.tool(name)), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(3.0)
    except subprocess.TimeoutExpired:  # an API server waits a minute for its watchers
        process.kill()
        process.wait()


def _alive(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"{process.args} ended with {process.returncode}"
    return True


def _ready(api: ApiServer) -> bool:
    try:
        return bool(api.request("GET", "/version")) and bool(api.get("/api/v1/namespaces/default"))
    except urllib.error.HTTPError:  # not yet authorised to answer anything
        return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _write_service_account_keys(directory: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "sa.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (directory / "sa.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _kubeconfig(url: str, token: str, certificate: str) -> dict[str, Any]:
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(certificate.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
    }
