"""Do the outputs survive the engine, and are foreign ones refused with their place?"""

import copy
import json

import pytest

from llmd.outputs import (
    SCHEMA_VERSION,
    EnvironmentOutputs,
    FleetOutputs,
    ModelOutputs,
    OutputsError,
    ScalerOutputs,
)
from llmd.rates import RateMode, Rates
from llmd.roles import Role
from llmd.triggers import Trigger

FIXED = FleetOutputs(
    role=Role.DECODE, deployment="m-decode", accelerator="h100", gpus_per_replica=2, minimum=3, maximum=3
)
SCALED = FleetOutputs(
    role=Role.PREFILL,
    deployment="m-prefill",
    accelerator="h100",
    gpus_per_replica=2,
    minimum=1,
    maximum=4,
    scaler=ScalerOutputs(
        scaled_object="m-prefill",
        hpa="keda-hpa-m-prefill",
        triggers=(Trigger(name="prefill-backlog", query='sum(x{a="b"})', threshold="5.205"),),
    ),
)
MODEL = ModelOutputs(
    key="m",
    namespace="ns",
    served_name="lab/tiny-pd",
    topology="prefill-decode",
    endpoint="http://m-epp.ns",
    pool="m",
    router="m-epp",
    rates=Rates(path=2696.5, prefill=15965, mode=RateMode.PINNED, source="a run", key="k"),
    fleets=(SCALED, FIXED),
)
OUTPUTS = EnvironmentOutputs(
    environment="dev",
    router_version="0.11",
    engine_name="vllm",
    engine_version="0.27",
    prometheus_address="https://thanos:9091",
    models=(MODEL,),
)


def floats(value):
    """As the engine's protocol carries numbers: all of them floats."""
    if isinstance(value, dict):
        return {key: floats(inner) for key, inner in value.items()}
    return float(value) if isinstance(value, int) else value


def changed(path, value):
    """The outputs with one place set to `value`, or removed where that is None."""
    data = copy.deepcopy(OUTPUTS.to_dict())
    *above, last = path.split("/")
    place = data
    for name in above:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


def test_outputs_survive_json_and_the_engine():
    data = OUTPUTS.to_dict()
    assert EnvironmentOutputs.from_dict(json.loads(json.dumps(data))) == OUTPUTS
    assert EnvironmentOutputs.from_dict(floats(data)) == OUTPUTS


def test_the_contract_on_one_page():
    assert OUTPUTS.to_dict() == {
        "schemaVersion": 1,
        "environment": "dev",
        "router": {"version": "0.11"},
        "engine": {"name": "vllm", "version": "0.27"},
        "prometheus": {"address": "https://thanos:9091"},
        "models": {
            "m": {
                "namespace": "ns",
                "servedName": "lab/tiny-pd",
                "topology": "prefill-decode",
                "endpoint": "http://m-epp.ns",
                "pool": "m",
                "router": "m-epp",
                "rates": {
                    "path": "2696.5",
                    "prefill": "15965",
                    "transfer": "3244.498",
                    "mode": "pinned",
                    "source": "a run",
                    "key": "k",
                },
                "fleets": {
                    "prefill": {
                        "deployment": "m-prefill",
                        "accelerator": "h100",
                        "gpusPerReplica": 2,
                        "replicas": {"min": 1, "max": 4},
                        "scaler": {
                            "scaledObject": "m-prefill",
                            "hpa": "keda-hpa-m-prefill",
                            "triggers": {
                                "prefill-backlog": {
                                    "query": 'sum(x{a="b"})',
                                    "threshold": "5.205",
                                    "metricType": "AverageValue",
                                }
                            },
                        },
                    },
                    "decode": {
                        "deployment": "m-decode",
                        "accelerator": "h100",
                        "gpusPerReplica": 2,
                        "replicas": {"min": 3, "max": 3},
                    },
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schemaVersion", SCHEMA_VERSION + 1, "outputs.schemaVersion: 2 was written by another version"),
        ("schemaVersion", None, "outputs.schemaVersion: missing"),
        ("schemaVersion", "1", "outputs.schemaVersion: expected a whole number, not str '1'"),
        ("environment", 5, "outputs.environment: expected a string, not int 5"),
        ("models", [], "outputs.models: expected an object, not list"),
        ("more", "x", "outputs: unknown field more"),
        ("router/more", "x", "outputs.router: unknown field more"),
        ("models/m/pool", None, "outputs.models.m.pool: missing"),
        ("models/m/rates/path", "fast", "outputs.models.m.rates: a record of rates cannot be read"),
        ("models/m/fleets/prefill/replicas/max", 4.5, "replicas.max: expected a whole number, not float 4.5"),
        ("models/m/fleets/prefill/replicas/min", True, "replicas.min: expected a whole number, not bool True"),
        ("models/m/fleets/prefill/scaler/hpa", None, "fleets.prefill.scaler.hpa: missing"),
        ("models/m/fleets/both", {}, "outputs.models.m.fleets.both.replicas: missing"),
        ("models/m/fleets/encode", {}, "outputs.models.m.fleets.encode: unknown role; known: prefill, decode, both"),
    ],
)
def test_foreign_outputs_are_refused_with_their_place(path, value, said):
    with pytest.raises(OutputsError) as refused:
        EnvironmentOutputs.from_dict(changed(path, value))
    assert said in str(refused.value)


def test_something_else_than_an_object_is_refused():
    with pytest.raises(OutputsError, match="outputs: expected an object, not NoneType None"):
        EnvironmentOutputs.from_dict(None)


def test_a_model_and_a_fleet_are_found_or_what_there_is_is_listed():
    assert OUTPUTS.model("m").fleet(Role.DECODE) == FIXED
    with pytest.raises(OutputsError, match="no model 'x' in environment dev; there are: m"):
        OUTPUTS.model("x")
    with pytest.raises(OutputsError, match="model m has no both fleet"):
        MODEL.fleet(Role.BOTH)
