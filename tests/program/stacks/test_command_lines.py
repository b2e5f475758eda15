"""What each program starts with: the stand-ins have the real programs' flags and refusals, so they are the judges."""

import pytest

from lab.stand_ins.endpoint_picker import config as picker_config
from lab.stand_ins.endpoint_picker import dialect, flags
from lab.stand_ins.model_server import arguments
from lab.stand_ins.routing_sidecar import flags as sidecar_flags
from tests.program import program

VERSIONS = ["0.10", "0.11"]


@pytest.fixture(scope="module", params=VERSIONS)
def version(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def environment(version) -> program.Program:
    # without a cache the model is an id, which needs no directory on this machine
    return program.dev({"router.version": version, "models.tiny-pd.cache": "none", "models.tiny-co.cache": "none"})


def containers(run: program.Program, deployment: str):
    spec = run.one("Deployment", deployment).inputs["spec"]["template"]["spec"]
    return {each["name"]: each for each in [*spec["containers"], *spec.get("initContainers", [])]}


@pytest.mark.parametrize(
    ("fleet", "port", "connector"),
    [
        ("tiny-pd-prefill", 8000, "NixlConnector"),
        ("tiny-pd-decode", 8200, "NixlConnector"),
        ("tiny-co-server", 8000, None),
    ],
)
def test_vllm_accepts_its_command_line(environment, fleet, port, connector):
    container = containers(environment, fleet)["modelserver"]
    command, *rest = container["command"]
    assert command == "vllm"
    served = arguments.parse([*rest, *container["args"]])
    assert (served.port, served.kv_connector, served.max_num_batched_tokens) == (port, connector, 8192)
    assert served.served_model_names == ("lab/tiny" if fleet == "tiny-co-server" else "lab/tiny-pd",)
    assert served.shutdown_timeout == 8


def test_the_sidecar_accepts_its_command_line(environment, version):
    options = sidecar_flags.parse(containers(environment, "tiny-pd-decode")["routing-proxy"]["args"], f"{version}.0")
    assert (options.port, options.model_server_port) == (8000, 8200)
    assert options.secure_serving is False
    assert options.warnings == ()


@pytest.mark.parametrize("model", ["tiny-pd", "tiny-co"])
def test_the_picker_accepts_its_command_line_and_configuration(environment, version, model):
    picker = containers(environment, f"{model}-epp")["endpoint-picker"]
    given = flags.parse(picker["args"], {})
    assert (given.pool_name, given.pool_namespace) == (model, f"llm-d-{model}")
    (text,) = [
        one.inputs["data"]["config.yaml"]
        for one in environment.kind("ConfigMap")
        if "config.yaml" in one.inputs["data"] and one.inputs["metadata"]["namespace"] == f"llm-d-{model}"
    ]
    loaded = picker_config.load(text, dialect.dialect(version))
    assert set(loaded.profiles) == ({"prefill", "decode"} if model == "tiny-pd" else {"default"})
