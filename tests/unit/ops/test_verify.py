"""What `verify` says when nothing answers."""

import dataclasses

import pytest
from rich.console import Console

from cluster import Cluster, ClusterError
from llmd.outputs import EnvironmentOutputs, FleetOutputs, ModelOutputs, ScalerOutputs
from llmd.rates import RateMode, Rates
from llmd.roles import Role
from ops.__main__ import as_table
from ops.verify import Check, verify

MODEL = ModelOutputs(
    key="tiny",
    namespace="llm-d-tiny",
    served_name="lab/tiny",
    topology="co-located",
    endpoint="http://tiny-epp.llm-d-tiny",
    pool="tiny",
    router="tiny-epp",
    rates=Rates(path=8000, mode=RateMode.PINNED, source="test"),
    fleets=(),
)
ENVIRONMENT = EnvironmentOutputs(
    environment="test",
    router_version="0.11",
    engine_name="vllm",
    engine_version="0.27",
    prometheus_address="http://prometheus",
    models=(MODEL, dataclasses.replace(MODEL, key="other", namespace="llm-d-other")),
)


class Silent(Cluster):
    """A cluster that fails in one way."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def list(self, *_args, **_kwargs):
        if self._error is not None:
            raise self._error
        return []


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (None, "none of 0 pods"),
        (ClusterError("the API server answers 403 Forbidden"), "403 Forbidden"),
        (ConnectionResetError("gone"), "gone"),
    ],
)
def test_a_model_that_cannot_be_asked_fails_its_check_and_the_next_one_is_asked(error, seen):
    checks = list(verify(Silent(error), ENVIRONMENT, timeout_seconds=0))
    assert [(check.model, check.holds) for check in checks] == [("tiny", False), ("other", False)]
    assert all(seen in check.seen for check in checks)
    assert checks[1].remedy == "kubectl -n llm-d-other get pods,events"


def test_brackets_in_what_was_seen_are_text_and_no_markup():
    check = Check(
        model="tiny", name="completion", expected="text", seen="'[/INST] hi [Errno 1]'", holds=True, remedy=""
    )
    console = Console(width=200)
    with console.capture() as shown:
        console.print(as_table([check, dataclasses.replace(check, holds=False)]))
    assert shown.get().count("'[/INST] hi [Errno 1]'") == 2


class Refusing(Silent):
    """A cluster that has pods to list and refuses every other question."""

    def get(self, *_args, **_kwargs):
        raise ClusterError("the API server answers 403 Forbidden")


def test_a_scaler_that_may_not_be_read_is_a_failed_check():
    scaler = ScalerOutputs(scaled_object="tiny-server", hpa="keda-hpa-tiny-server", triggers=())
    fleet = FleetOutputs(
        role=Role.BOTH,
        deployment="tiny-server",
        accelerator="sim",
        gpus_per_replica=1,
        minimum=1,
        maximum=2,
        scaler=scaler,
    )
    environment = dataclasses.replace(ENVIRONMENT, models=(dataclasses.replace(MODEL, fleets=(fleet,)),))
    *_, check = verify(Refusing(None), environment, timeout_seconds=0)
    assert (check.name, check.seen, check.holds) == (
        "scaler tiny-server",
        "the API server answers 403 Forbidden",
        False,
    )
