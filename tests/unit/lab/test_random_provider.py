"""The random provider over gRPC: what it draws, keeps, replaces and refuses."""

import base64
import json
import re
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

from lab.engine import random_kinds
from lab.engine.random_kinds import KINDS
from lab.engine.random_provider import RandomProvider

STRING = "random:index/randomString:RandomString"
ID = "random:index/randomId:RandomId"
PET = "random:index/randomPet:RandomPet"


@pytest.fixture(scope="module")
def provider() -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    """A client of a provider that is served as the engine would have it."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(RandomProvider(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield provider_pb2_grpc.ResourceProviderStub(channel)
    server.stop(None).wait()


def urn(token: str) -> str:
    return f"urn:pulumi:dev::llm-d::llm-d:components:Router${token}::suffix"


def create(provider: Any, token: str, *, preview: bool = False, **inputs: Any) -> tuple[str, dict[str, Any]]:
    request = provider_pb2.CreateRequest(urn=urn(token), properties=inputs, preview=preview)
    answer = provider.Create(request)
    return answer.id, json_format.MessageToDict(answer.properties)


def failures(provider: Any, token: str, **inputs: Any) -> list[tuple[str, str]]:
    answer = provider.Check(provider_pb2.CheckRequest(urn=urn(token), news=inputs))
    assert json_format.MessageToDict(answer.inputs) == inputs
    return [(one.property, one.reason) for one in answer.failures]


def test_a_string_is_drawn_from_the_classes_asked_for(provider):
    identity, outputs = create(provider, STRING, length=6, special=False, upper=False)
    assert re.fullmatch(r"[a-z0-9]{6}", outputs["result"])
    assert identity == outputs["result"]
    assert outputs["lower"] is True
    assert outputs["special"] is False


def test_two_draws_differ(provider):
    assert create(provider, STRING, length=20)[0] != create(provider, STRING, length=20)[0]


def test_the_forms_of_an_id_are_one_number(provider):
    identity, outputs = create(provider, ID, byteLength=5, prefix="p-")
    number = int(outputs["hex"].removeprefix("p-"), 16)
    assert len(outputs["hex"]) == len("p-") + 10
    assert outputs["dec"] == f"p-{number}"
    assert base64.b64decode(outputs["b64Std"].removeprefix("p-")) == number.to_bytes(5, "big")
    assert outputs["b64Url"] == f"p-{identity}"


def test_a_pet_has_as_many_words_as_asked_for(provider):
    assert len(create(provider, PET)[0].split("-")) == 2
    assert len(create(provider, PET, length=4, separator=".", prefix="p")[0].split(".")) == 5


def test_a_preview_draws_nothing_and_says_that_outputs_are_unknown(provider):
    identity, outputs = create(provider, STRING, preview=True, length=6)
    assert identity == ""
    assert outputs["result"] == UNKNOWN == random_kinds.UNKNOWN
    assert outputs["length"] == 6


def diff(provider: Any, token: str, old: dict[str, Any], new: dict[str, Any]) -> Any:
    return provider.Diff(
        provider_pb2.DiffRequest(urn=urn(token), id="x", olds=old | {"result": "x"}, old_inputs=old, news=new)
    )


def test_equal_inputs_are_no_change_also_when_a_default_is_spelled_out(provider):
    answer = diff(provider, STRING, {"length": 6}, {"length": 6, "upper": True, "minLower": 0})
    assert answer.changes == provider_pb2.DiffResponse.DIFF_NONE
    assert list(answer.replaces) == []


@pytest.mark.parametrize(
    ("new", "changed"),
    [
        ({"length": 7}, ["length"]),
        ({"length": 6, "upper": False}, ["upper"]),
        ({"length": 6, "keepers": {"cluster": "b"}}, ["keepers"]),
        ({"length": 6, "keepers": {"cluster": UNKNOWN}}, ["keepers"]),
    ],
)
def test_any_changed_input_replaces(provider, new, changed):
    answer = diff(provider, STRING, {"length": 6}, new)
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert list(answer.replaces) == changed


def test_a_state_without_inputs_is_compared_by_its_outputs(provider):
    request = provider_pb2.DiffRequest(urn=urn(STRING), id="x", olds={"length": 6, "result": "x"}, news={"length": 6})
    assert provider.Diff(request).changes == provider_pb2.DiffResponse.DIFF_NONE


def test_read_returns_the_state_as_it_is(provider):
    request = provider_pb2.ReadRequest(
        id="abc", urn=urn(STRING), properties={"length": 3, "result": "abc"}, inputs={"length": 3}
    )
    answer = provider.Read(request)
    assert (answer.id, answer.properties, answer.inputs) == ("abc", request.properties, request.inputs)


@pytest.mark.parametrize(
    ("token", "inputs", "expected"),
    [
        (STRING, {"length": 6}, []),
        (STRING, {"length": 6, "keepers": {"a": "b"}, "overrideSpecial": "-"}, []),
        (STRING, {"length": UNKNOWN, "keepers": UNKNOWN}, []),
        (STRING, {"length": 4, "minLower": UNKNOWN}, []),
        (STRING, {}, [("length", "is required")]),
        (STRING, {"length": "6"}, [("length", "'6' is not an integer")]),
        (STRING, {"length": 6.5}, [("length", "6.5 is not an integer")]),
        (STRING, {"length": True}, [("length", "True is not an integer")]),
        (STRING, {"length": 6, "upper": "no"}, [("upper", "'no' is not a boolean")]),
        (STRING, {"length": 6, "keepers": {"a": 1}}, [("keepers", "{'a': 1.0} is not a map of strings")]),
        (STRING, {"length": 0}, [("length", "0 is below 1")]),
        (
            STRING,
            {"length": 4, "minLower": 3, "minUpper": 2},
            [("length", "4 is less than the 5 characters that the minima ask for")],
        ),
        (
            STRING,
            {"length": 4, "lower": False, "upper": False, "numeric": False, "special": False},
            [("length", "every class of characters is switched off")],
        ),
        (ID, {"byteLength": 0}, [("byteLength", "0 is below 1")]),
        (ID, {"byteLength": 3, "bits": 9}, [("bits", "no such property; there are byteLength, keepers, prefix")]),
        (PET, {"length": 0}, [("length", "0 is below 1")]),
    ],
)
def test_check_names_what_is_wrong(provider, token, inputs, expected):
    assert failures(provider, token, **inputs) == expected


def test_an_unknown_type_is_refused_by_name_wherever_it_appears(provider):
    token = "random:index/randomUuid:RandomUuid"
    calls = (
        lambda: failures(provider, token),
        lambda: create(provider, token),
        lambda: diff(provider, token, {}, {}),
        lambda: provider.Delete(provider_pb2.DeleteRequest(urn=urn(token), id="x")),
        lambda: provider.Read(provider_pb2.ReadRequest(urn=urn(token), id="x", properties={"a": 1})),
    )
    for call in calls:
        with pytest.raises(grpc.RpcError) as refusal:
            call()
        assert isinstance(refusal.value, grpc.Call)
        assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert f"does not make {token}; it makes {ID}, {PET}, {STRING}" in str(refusal.value.details())


def test_imports_updates_and_functions_are_refused(provider):
    with pytest.raises(grpc.RpcError, match="cannot import a value"):
        provider.Read(provider_pb2.ReadRequest(urn=urn(STRING), id="abc"))
    with pytest.raises(grpc.RpcError, match="replaced, never updated"):
        provider.Update(provider_pb2.UpdateRequest(urn=urn(STRING), id="abc"))
    with pytest.raises(grpc.RpcError, match="no function random:index:any"):
        provider.Invoke(provider_pb2.InvokeRequest(tok="random:index:any"))


def test_the_schema_names_every_property_of_every_type(provider):
    schema = json.loads(provider.GetSchema(provider_pb2.GetSchemaRequest()).schema)
    assert schema["name"] == "random"
    assert schema["resources"].keys() == KINDS.keys()
    string = schema["resources"][STRING]
    assert string["requiredInputs"] == ["length"]
    assert string["inputProperties"]["keepers"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert string["properties"]["result"] == {"type": "string"}


@given(
    lower=st.integers(0, 5),
    upper=st.integers(0, 5),
    numeric=st.integers(0, 5),
    special=st.integers(0, 5),
    more=st.integers(1, 9),
)
def test_a_string_has_its_length_and_its_minima(lower, upper, numeric, special, more):
    kind = KINDS[STRING]
    inputs = {
        "length": lower + upper + numeric + special + more,
        "minLower": lower,
        "minUpper": upper,
        "minNumeric": numeric,
        "minSpecial": special,
    }
    assert kind.check(inputs) == []
    result = kind.draw(kind.normal(inputs))[1]["result"]
    assert len(result) == inputs["length"]
    assert sum(c.islower() for c in result) >= lower
    assert sum(c.isupper() for c in result) >= upper
    assert sum(c.isdigit() for c in result) >= numeric
    assert sum(not c.isalnum() for c in result) >= special
