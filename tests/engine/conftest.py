"""Fixtures of the engine tier: an engine, stacks on it, states in files and in S3, an API server with a played node."""

import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lab.engine.environment import pulumi_environment
from lab.engine.install import Engine, install
from lab.tools import toolchain
from tests.engine import api_server as kubernetes
from tests.engine import node
from tests.engine.api_server import ApiServer, wait_for
from tests.engine.stack import PASSPHRASE, Stack, environment, repository_project, write_project

StackMaker = Callable[..., Stack]

_NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "pulumi", "pulumi-resource-kubernetes")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The lab's own engine, laid out for this run; on a machine with an official CLI it holds that one's binary."""
    programs = toolchain.build_all(only=_NEEDED)
    return install(
        programs["pulumi"], programs["pulumi-resource-kubernetes"], tmp_path_factory.getbasetemp() / "engines"
    )


@pytest.fixture(scope="session")
def pulumi_home(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PULUMI_HOME with the engine's providers, for all stacks of this run."""
    home = tmp_path_factory.mktemp("pulumi-home")
    engine.make_home(home)
    return home


@pytest.fixture
def make_stack(engine: Engine, pulumi_home: Path, tmp_path: Path) -> StackMaker:
    """A maker of stacks: `make_stack(files, name=…, backend=…, kubeconfig=…, environ=…, config_of=…)`.

    `files` is a project, path → text; without it the stack runs this repository's own program, with the config of the
    environment `config_of`. The state lies in files of the test unless `backend` says otherwise.
    """

    def make(
        files: Mapping[str, str] | None = None,
        *,
        name: str = "test",
        backend: str | None = None,
        kubeconfig: Path | None = None,
        environ: Mapping[str, str] | None = None,
        config_of: str | None = None,
    ) -> Stack:
        directory = tmp_path / f"project-{uuid.uuid4().hex[:8]}"
        project = (
            repository_project(directory, name, config_of)
            if files is None
            else write_project(directory, files, name=f"probe-{uuid.uuid4().hex[:8]}")
        )
        if backend is None:
            state = tmp_path / "state"
            state.mkdir(exist_ok=True)
            backend = state.as_uri()
        settings = pulumi_environment(pulumi_home, backend, PASSPHRASE) | dict(environ or {})
        settings["KUBECONFIG"] = str(kubeconfig or "/nonexistent")  # never the cluster of whoever runs the tests
        stack = Stack(engine.pulumi, project, name, environment(tmp_path, backend, settings))
        stack.run("stack", "init", name)
        return stack

    return make


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A Kubernetes API with the custom kinds of KEDA, prometheus-operator and InferencePool, and a played node."""
    toolchain.build_all(only=_NEEDED)
    with kubernetes.running(tmp_path_factory.mktemp("api-server")) as api, node.playing(api):
        api.apply_crds()
        yield api


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api_server.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an S3 on loopback that takes any credentials."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("s3") / "moto.log"
    code = "import sys; from moto.server import main; main(sys.argv[1:])"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", code, "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    def listening() -> bool:
        assert server.poll() is None, log.read_text()
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True

    try:
        wait_for(listening, f"the S3 stand-in ({log})")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def s3_backend(s3_endpoint: str) -> tuple[str, dict[str, str]]:
    """Backend URL of a fresh bucket, and the environment with which it is reached."""
    bucket = f"state-{uuid.uuid4().hex[:12]}"
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")).close()
    credentials = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
    host = s3_endpoint.removeprefix("http://")
    url = f"s3://{bucket}?endpoint={host}&disableSSL=true&s3ForcePathStyle=true&region=us-east-1"
    return url, credentials
