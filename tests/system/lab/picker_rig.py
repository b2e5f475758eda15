"""The endpoint picker with a real Envoy, model servers that a test drives step by step, and a played Kubernetes API."""

import asyncio
import json
import os
import re
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from lab.stand_ins.signing import issue, new_authority
from llmd import envoy as program_envoy
from tests.unit.lab.picker_configs import PREFILL_DECODE

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "pd-test"
POOL = "pd"
MODEL = "dummy"
SELECTOR = {"llm-d.ai/model": POOL}
AUTHORITY = new_authority("cluster")
PAIR = issue(AUTHORITY, ["localhost"])
_DEADLINE_SECONDS = 20.0
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


async def until(what: str, probe: Callable[[], Awaitable[object]], *, wanted: object = True) -> None:
    """Ask `probe` until it answers `wanted`; say what it answered last when that does not happen in time."""
    end = time.monotonic() + _DEADLINE_SECONDS
    while True:
        seen = await probe()
        if seen == wanted:
            return
        if time.monotonic() > end:
            raise AssertionError(f"waited {_DEADLINE_SECONDS:g} s for {what}; last seen: {seen!r}")
        await asyncio.sleep(0.05)


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


@dataclass
class Kubernetes:
    """Pods, one InferencePool and two kinds of review, with list and watch as the API server has them."""

    port: int
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, bool] = field(default_factory=dict)  # token → may read /metrics
    may_review: bool = True
    reviews: int = 0
    _version: int = 1
    _watchers: list[tuple[dict[str, dict[str, Any]], asyncio.Queue[dict[str, Any]]]] = field(default_factory=list)

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        application = web.Application()
        pools = f"/apis/inference.networking.k8s.io/v1/namespaces/{NAMESPACE}/inferencepools"
        application.router.add_get(pools, self._list_pools)
        application.router.add_get(f"/api/v1/namespaces/{NAMESPACE}/pods", self._list_pods)
        application.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self._token_review)
        application.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._access_review)
        with tempfile.NamedTemporaryFile("w") as pair:
            pair.write(PAIR.key + PAIR.certificate)
            pair.flush()
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(pair.name)
        async with _serving(application, "127.0.0.1", self.port, context):
            try:
                yield
            finally:
                for _, queue in self._watchers:
                    queue.put_nowait({})

    def service_account(self, folder: Path) -> dict[str, str]:
        """The environment of a pod with a service account of this cluster."""
        (folder / "token").write_text("picker")
        (folder / "ca.crt").write_text(AUTHORITY.certificate)
        return {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "LAB_SERVICE_ACCOUNT": str(folder),
        }

    def put_pool(self, target_port: int) -> None:
        spec = {"selector": {"matchLabels": SELECTOR}, "targetPorts": [{"number": target_port}]}
        self._put(self.pools, POOL, {"metadata": {"name": POOL, "namespace": NAMESPACE}, "spec": spec})

    def put_pod(self, name: str, address: str, role: str, **changes: object) -> None:
        """A Ready pod; `ready=False` or `terminating=True` change that."""
        metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": {**SELECTOR, "llm-d.ai/role": role}}
        if changes.get("terminating"):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        ready = "True" if changes.get("ready", True) else "False"
        status = {"podIP": address, "conditions": [{"type": "Ready", "status": ready}]}
        self._put(self.pods, name, {"metadata": metadata, "status": status})

    def _put(self, collection: dict[str, dict[str, Any]], name: str, manifest: dict[str, Any]) -> None:
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        kind = "MODIFIED" if name in collection else "ADDED"
        collection[name] = manifest
        for watched, queue in self._watchers:
            if watched is collection:
                queue.put_nowait({"type": kind, "object": manifest})

    async def _list_pools(self, request: web.Request) -> web.StreamResponse:
        return await self._collection(request, self.pools)

    async def _list_pods(self, request: web.Request) -> web.StreamResponse:
        return await self._collection(request, self.pods)

    async def _collection(self, request: web.Request, collection: dict[str, dict[str, Any]]) -> web.StreamResponse:
        if "watch" not in request.query:
            items = list(collection.values())
            return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        since = int(request.query["resourceVersion"])
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for manifest in collection.values():
            if int(manifest["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "MODIFIED", "object": manifest})
        self._watchers.append((collection, queue))
        response = web.StreamResponse()
        await response.prepare(request)
        while event := await queue.get():
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def _token_review(self, request: web.Request) -> web.Response:
        self.reviews += 1
        if not self.may_review:
            return web.json_response({"message": "forbidden"}, status=403)
        token = (await request.json())["spec"]["token"]
        status = {"authenticated": token in self.users, "user": {"username": token}}
        return web.json_response({"status": status}, status=201)

    async def _access_review(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        asked = spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        return web.json_response({"status": {"allowed": asked and self.users.get(spec["user"], False)}}, status=201)


@dataclass
class Received:
    """One completion at a model server; the test moves it on."""

    headers: Mapping[str, str]
    body: bytes
    chunk: asyncio.Event = field(default_factory=asyncio.Event)
    finish: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class ModelServer:
    """Answers a completion when the test says so: a first chunk if it streams, then the end."""

    address: str
    port: int
    received: list[Received] = field(default_factory=list)
    waiting: float = 0.0

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        application = web.Application(client_max_size=2**26)
        application.router.add_post("/v1/completions", self._complete)
        application.router.add_get("/v1/models", _models)
        application.router.add_get("/metrics", self._metrics)
        async with _serving(application, self.address, self.port):
            yield

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            text=f'vllm:num_requests_waiting{{engine="0",model_name="{MODEL}"}} {self.waiting}\n'
            f'vllm:num_requests_waiting_by_reason{{engine="0",model_name="{MODEL}",reason="capacity"}} 7\n'
            f'vllm:num_requests_running{{engine="0",model_name="{MODEL}"}} 2\n'
            f'vllm:kv_cache_usage_perc{{engine="0",model_name="{MODEL}"}} 0.25\n'
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        got = Received(dict(request.headers), await request.read())
        self.received.append(got)
        if not json.loads(got.body).get("stream"):
            await got.finish.wait()
            return web.json_response({"choices": [{"text": "done"}]})
        await got.chunk.wait()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        await got.finish.wait()
        await response.write(b"data: [DONE]\n\n")
        return response


async def _models(_request: web.Request) -> web.Response:
    return web.Response(text="models")


@asynccontextmanager
async def _serving(
    application: web.Application, address: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncGenerator[None]:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, address, port, ssl_context=context).start()
    try:
        yield
    finally:
        await runner.cleanup()


@dataclass
class Rig:
    """Everything together; see `rig()`."""

    kubernetes: Kubernetes
    servers: dict[str, ModelServer]
    picker: asyncio.subprocess.Process
    client: aiohttp.ClientSession
    envoy_port: int
    health_port: int
    metrics_port: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.envoy_port}{path}"

    def complete(self, prompt: object, *, stream: bool = False) -> asyncio.Task[str]:
        """Send a completion; the task ends with the response's text."""

        async def send() -> str:
            body = {"model": MODEL, "prompt": prompt, "stream": stream}
            async with self.client.post(self.url("/v1/completions"), json=body) as response:
                response.raise_for_status()
                return await response.text()

        return asyncio.create_task(send())

    async def scrape(self, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.get(f"http://127.0.0.1:{self.metrics_port}/metrics", headers=headers) as response:
            return response.status, await response.text()

    async def metric(self, name: str) -> dict[str, float]:
        """Value by label text, as written, for every series of one metric."""
        _, text = await self.scrape()
        return {labels: float(value) for found, labels, value in _SAMPLE.findall(text) if found == name}

    async def received(self, server: str, count: int) -> list[Received]:
        """The first `count` completions that reached `server`, once they have."""
        got = self.servers[server].received

        async def enough() -> bool:
            return len(got) >= count

        await until(f"{count} completions at {server}", enough)
        return got


def envoy_bootstrap(port: int, admin_port: int, picker_port: int, *, tls: bool, as_the_chart: bool) -> dict[str, Any]:
    """What the program gives Envoy, with these ports instead of a pod's own.

    With `as_the_chart` it asks more of the picker, as in the upstream chart: that it takes off a client's routing
    headers, and that it answers health checks beside ext_proc.
    """
    ports = {program_envoy.HTTP_PORT: port, program_envoy.ADMIN_PORT: admin_port, program_envoy.READY_PORT: free_port()}

    def with_ports(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: ports.get(v, v) if k == "port_value" else with_ports(v) for k, v in value.items()}
        return [with_ports(item) for item in value] if isinstance(value, list) else value

    bootstrap = with_ports(program_envoy.bootstrap(ext_proc_port=picker_port, ext_proc_tls=tls))
    if as_the_chart:
        resources = bootstrap["static_resources"]
        (http,) = (each for each in resources["listeners"] if each["name"] == "http")
        del http["filter_chains"][0]["filters"][0]["typed_config"]["early_header_mutation_extensions"]
        (picker,) = (each for each in resources["clusters"] if each["name"] == "ext_proc")
        check = {
            "timeout": "2s",
            "interval": "10s",
            "no_traffic_interval": "1s",
            "unhealthy_threshold": 3,
            "healthy_threshold": 1,
            "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
            "tls_options": {"alpn_protocols": ["h2"]},  # gRPC servers refuse TLS without it
        }
        picker["health_checks"] = [check]
    return bootstrap


@asynccontextmanager
async def process(
    *command: str, log: Path, env: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.subprocess.Process]:
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output, env=env)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def picker_command(packages: Path, *arguments: str, version: str = "0.11") -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment that run the picker with the image's packages and nothing of this environment's."""
    env = {**os.environ, "PYTHONPATH": f"{packages}:{ROOT}", "STAND_IN_ROUTER_VERSION": version}
    return (sys.executable, "-S", "-m", "lab.stand_ins.endpoint_picker", *arguments), env


@asynccontextmanager
async def rig(
    folder: Path,
    packages: Path,
    envoy: Path,
    *arguments: str,
    version: str = "0.11",
    tls: bool = True,
    pool: bool = True,
    as_the_chart: bool = True,
) -> AsyncGenerator[Rig]:
    """One prefill pod, one decode pod, the pool, the picker and Envoy, all ready.

    For `tls` and `as_the_chart` see `envoy_bootstrap`.
    """
    target_port = free_port()
    addresses = {"qwen-prefill-6d5b-aaaaa": "127.0.0.11", "qwen-decode-7c9f-bbbbb": "127.0.0.12"}
    servers = {name: ModelServer(address, target_port) for name, address in addresses.items()}
    kubernetes = Kubernetes(free_port())
    for name, address in addresses.items():
        kubernetes.put_pod(name, address, "prefill" if "prefill" in name else "decode")
    if pool:
        kubernetes.put_pool(target_port)
    grpc_port, health_port, metrics_port, envoy_port, admin_port = (free_port() for _ in range(5))
    config = PREFILL_DECODE | {"apiVersion": "llm-d.ai/v1" if version == "0.11" else "llm-d.ai/v1alpha1"}
    command, env = picker_command(
        packages,
        *("--pool-name", POOL, "--pool-namespace", NAMESPACE, f"--grpc-port={grpc_port}"),
        *(f"--grpc-health-port={health_port}", f"--metrics-port={metrics_port}", "--zap-encoder=json", "-v=4"),
        *(f"--secure-serving={str(tls).lower()}", "--refresh-prometheus-metrics-interval=1s"),
        *("--config-text", json.dumps(config), *arguments),
        version=version,
    )
    env |= kubernetes.service_account(folder)
    bootstrap_file = folder / "envoy.json"
    made = envoy_bootstrap(envoy_port, admin_port, grpc_port, tls=tls, as_the_chart=as_the_chart)
    bootstrap_file.write_text(json.dumps(made))
    async with (
        kubernetes.serve(),
        servers["qwen-prefill-6d5b-aaaaa"].serve(),
        servers["qwen-decode-7c9f-bbbbb"].serve(),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_DEADLINE_SECONDS)) as client,
        process(*command, log=folder / "picker.log", env=env) as picker,
    ):
        running = Rig(kubernetes, servers, picker, client, envoy_port, health_port, metrics_port)

        async def picker_answers() -> bool:
            if picker.returncode is not None:
                raise AssertionError(f"the picker ended: {(folder / 'picker.log').read_text()}")
            try:
                text = (await running.scrape())[1]
            except aiohttp.ClientError:
                return False
            return not pool or "per_endpoint_queue_size" in text or "--metrics-endpoint-auth=true" in arguments

        await until("the picker's metrics", picker_answers)
        envoy_command = (str(envoy), "-c", str(bootstrap_file), "--disable-hot-restart", "--concurrency", "1")
        async with process(*envoy_command, "--log-level", "warn", log=folder / "envoy.log"):

            async def envoy_routes() -> bool:
                try:
                    async with client.get(f"http://127.0.0.1:{admin_port}/clusters") as response:
                        return re.search("(?m)^ext_proc::.*::health_flags::healthy$", await response.text()) is not None
                except aiohttp.ClientError:
                    return False

            if pool:
                await until("Envoy to see the picker healthy", envoy_routes)
            yield running
