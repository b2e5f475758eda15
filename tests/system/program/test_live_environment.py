"""A whole environment on a lab of its own: proven, scaled by the right signal, stable, and gone without a trace."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from cluster import Cluster, Kind, NotYet, wait_for
from lab.engine.environment import pulumi_environment
from lab.engine.install import install
from lab.paths import Instance
from lab.tools import toolchain
from payload.load import Load, Outcome, run
from tests.engine.stack import PASSPHRASE, Stack, environment, repository_project
from tests.system.lab.lab_under_test import LabUnderTest
from tests.system.program import environment as live
from tests.system.program.hpa_record import Record, recording

LAB = LabUnderTest(Instance("system"))
NAMESPACES = ["llm-d-tiny-pd", "llm-d-slow-link", "llm-d-tiny-co"]
LOAD_SECONDS = 90.0  # the signals average over a minute, and the HPA looks every 15 s
RETURN_SECONDS = 300.0  # for a backlog to clear, then two windows

# What each model gets: below its other bottleneck, above the one it is named for.
RATES = {
    "tiny-pd": ("lab/tiny-pd", 30080, 4.8),
    "slow-link": ("lab/tiny-pd", 30082, 1.9),
    "tiny-co": ("lab/tiny", 30081, 4.8),
}


@pytest.fixture(scope="module")
def lab() -> Iterator[LabUnderTest]:
    LAB.run("down")
    try:
        LAB.run("up")
        yield LAB
    finally:
        LAB.run("down")


@pytest.fixture(scope="module")
def stack(lab: LabUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    home = tmp_path_factory.mktemp("pulumi")
    engine = install(toolchain.tool("pulumi"), toolchain.tool("pulumi-resource-kubernetes"), home / "engine")
    engine.make_home(home / "home")
    project = repository_project(home / "project", "system")
    (project / "Pulumi.system.yaml").write_text(yaml.safe_dump(live.config()))
    backend = home / "state"
    backend.mkdir()
    settings = pulumi_environment(home / "home", backend.as_uri(), PASSPHRASE)
    settings["KUBECONFIG"] = str(lab.instance.kubeconfig)
    stack = Stack(engine.pulumi, project, "system", environment(home, backend.as_uri(), settings))
    stack.run("stack", "init", "system")
    stack.up()
    return stack


def verify(stack: Stack) -> subprocess.CompletedProcess[str]:
    """`python -m ops verify` of the stack."""
    path = f"{stack.pulumi.parent}:{stack.environment['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "ops", "verify", "--stack", stack.name, "--output", "json"],
        cwd=live.ROOT,
        env={**stack.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass
class Observed:
    """What happened under load on all models at once."""

    loads: dict[str, Outcome]
    hpas: dict[str, Record]
    changes_while_scaled: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def observed(stack: Stack, lab: LabUnderTest) -> Observed:
    """Load on every model at once, an `up` while fleets are scaled, and the way back."""
    cluster = Cluster.connect(lab.instance.kubeconfig)

    def sizes() -> dict[str, int]:
        deployments = (one for space in NAMESPACES for one in cluster.list(Kind("apps/v1", "Deployment"), space))
        return {one["metadata"]["name"]: one["spec"].get("replicas", 1) for one in deployments}

    def load(model: str) -> Outcome:
        served, port, rate = RATES[model]
        url = f"http://127.0.0.1:{lab.instance.forwards[port]}"
        return run(
            Load(
                url=url,
                model=served,
                rate=rate,
                duration_seconds=LOAD_SECONDS,
                input_tokens=2048,
                output_tokens=16,
                arrivals="poisson",  # at an even 1.8/s every scrape would meet the same moment of a request
            )
        )

    def scaled() -> None:
        if not {"tiny-pd-prefill", "slow-link-decode", "tiny-co-server"} <= {
            name for name, n in sizes().items() if n > 1
        }:
            raise NotYet(str(sizes()))

    with recording(lab.instance.kubeconfig, NAMESPACES) as hpas, ThreadPoolExecutor(len(RATES)) as pool:

        def back() -> None:
            wanted = {name: record.syncs[-1].desired for name, record in hpas.items()}  # as the HPAs themselves say it
            if {*sizes().values(), *wanted.values()} != {1}:
                raise NotYet(f"replicas {sizes()}, wanted {wanted}")

        loads = {model: pool.submit(load, model) for model in RATES}
        wait_for("the loaded fleets to grow", scaled, timeout_seconds=2 * LOAD_SECONDS)
        changes = stack.up().changes
        outcomes = {model: future.result() for model, future in loads.items()}
        wait_for("all fleets to return to one replica", back, timeout_seconds=RETURN_SECONDS)
    return Observed(outcomes, hpas, changes)


def test_a_fresh_environment_is_proven_to_do_what_it_declares(stack: Stack):
    proof = verify(stack)
    checks = {(check["model"], check["name"]): check for check in json.loads(proof.stdout)}
    assert [check for check in checks.values() if not check["holds"]] == []
    assert proof.returncode == 0
    assert {name for model, name in checks if model == "tiny-pd"} == {
        "completion",
        "picker decided prefill-decode",
        "prefill pods answered",
        "scaler tiny-pd-prefill",
        "scaler tiny-pd-decode",
    }
    assert {name for model, name in checks if model == "tiny-co"} == {"completion", "scaler tiny-co-server"}


def test_no_request_is_lost_while_fleets_grow(observed: Observed):
    for model, (_, _, rate) in RATES.items():
        outcome = observed.loads[model]
        assert outcome.failures == {}
        assert len(outcome.total_seconds) == outcome.sent >= 0.7 * rate * LOAD_SECONDS


def test_load_bound_by_prefill_scales_prefill_and_leaves_decode_alone(observed: Observed):
    assert max(observed.hpas["tiny-pd-prefill"].sizes) >= 2
    assert observed.hpas["tiny-pd-prefill"].sizes[-1] == 1
    assert observed.hpas["tiny-pd-decode"].sizes == [1]


def test_load_bound_by_the_transfer_scales_decode_and_leaves_prefill_alone(observed: Observed):
    assert max(observed.hpas["slow-link-decode"].sizes) >= 2
    assert observed.hpas["slow-link-decode"].sizes[-1] == 1
    assert observed.hpas["slow-link-prefill"].sizes == [1]


def test_a_co_located_fleet_scales_and_returns(observed: Observed):
    assert max(observed.hpas["tiny-co-server"].sizes) >= 2
    assert observed.hpas["tiny-co-server"].sizes[-1] == 1


def test_an_up_while_fleets_are_scaled_changes_nothing(observed: Observed):
    assert observed.changes_while_scaled == {}


@pytest.mark.parametrize(
    "fleet", ["tiny-pd-prefill", "tiny-pd-decode", "slow-link-prefill", "slow-link-decode", "tiny-co-server"]
)
def test_the_numbers_of_an_hpa_equal_our_arithmetic(observed: Observed, fleet: str):
    record = observed.hpas[fleet]
    assert len(record.syncs) > 3
    assert record.replayed() == [sync.desired for sync in record.syncs]


@pytest.mark.usefixtures("observed")
def test_destroy_leaves_nothing(stack: Stack, lab: LabUnderTest):
    stack.destroy()
    cluster = Cluster.connect(lab.instance.kubeconfig)

    def left() -> list[str]:
        kinds = [
            Kind("v1", "Namespace"),
            Kind("v1", "PersistentVolume"),
            Kind("rbac.authorization.k8s.io/v1", "ClusterRole"),
            Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ]
        return [
            f"{kind.kind}/{one['metadata']['name']}"
            for kind in kinds
            for one in cluster.list(kind)
            if one["metadata"]["name"].startswith("llm-d") or kind.kind == "PersistentVolume"
        ]

    def nothing() -> None:
        if found := left():
            raise NotYet(str(found))

    wait_for("nothing of the environment is left", nothing, timeout_seconds=60)
    assert [one["type"] for one in stack.resources() if one["type"] != "pulumi:pulumi:Stack"] == []
    assert not Path(stack.project, ".pulumi", "locks").exists()
