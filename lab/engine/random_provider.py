"""How the engine asks for random values, and keeps each in the state until its inputs change.

It stands for `pulumi-resource-random`, which is not to be had as a package, for the types in `random_kinds`.
"""

from __future__ import annotations

import json
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf import json_format
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from typing_extensions import override

from lab.engine.random_kinds import KINDS, UNKNOWN, Kind
from lab.engine.serving import NOTHING, refuse, serve

if TYPE_CHECKING:
    from google.protobuf.message import Message


class RandomProvider(provider_pb2_grpc.ResourceProviderServicer):
    """Draws on create, never updates: any change of an input is a replacement."""

    @override
    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        return provider_pb2.ProviderHandshakeResponse()

    @override
    def GetPluginInfo(self, request: Message, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=_version())

    @override
    def GetSchema(
        self, request: provider_pb2.GetSchemaRequest, context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema()))

    @override
    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    @override
    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    @override
    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    @override
    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        failures = _kind(request.urn, context).check(_values(request.news))
        return provider_pb2.CheckResponse(
            inputs=request.news,
            failures=[provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in failures],
        )

    @override
    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        kind = _kind(request.urn, context)
        # A state that another version wrote may lack the inputs; the outputs hold them all.
        old = kind.normal(_values(request.old_inputs if request.HasField("old_inputs") else request.olds))
        new = kind.normal(_values(request.news))
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        outcome = provider_pb2.DiffResponse
        return outcome(changes=outcome.DIFF_SOME if changed else outcome.DIFF_NONE, diffs=changed, replaces=changed)

    @override
    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        kind = _kind(request.urn, context)
        given = kind.normal(_values(request.properties))
        if request.preview:
            return provider_pb2.CreateResponse(properties=given | dict.fromkeys(kind.outputs, UNKNOWN))
        identity, drawn = kind.draw(given)
        return provider_pb2.CreateResponse(id=identity, properties=given | drawn)

    @override
    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        _kind(request.urn, context)
        if not request.properties.fields:
            refuse(
                context,
                grpc.StatusCode.UNIMPLEMENTED,
                "the lab's random provider cannot import a value; the `random` package's own provider can",
            )
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    @override
    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> NoReturn:
        refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "a random value is replaced, never updated")

    @override
    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> Message:
        _kind(request.urn, context)
        return NOTHING

    @override
    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> NoReturn:
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"the lab's random provider has no function {request.tok}")

    @override
    def Cancel(self, request: Message, context: grpc.ServicerContext) -> Message:
        return NOTHING


def schema() -> dict[str, Any]:
    """The package schema of the types that this provider makes."""
    return {
        "name": "random",
        "version": _version(),
        "resources": {
            token: {
                "inputProperties": {name: _schema_type(prop.type) for name, prop in kind.inputs.items()},
                "requiredInputs": [name for name, prop in kind.inputs.items() if prop.required],
                "properties": {name: _schema_type(prop.type) for name, prop in kind.inputs.items()}
                | {name: {"type": "string"} for name in kind.outputs},
                "required": list(kind.outputs),
            }
            for token, kind in KINDS.items()
        },
    }


def _schema_type(name: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": "string"}} if name == "map" else {"type": name}


def _version() -> str:
    """That of the installed SDK, because the engine looks for exactly the version that the SDK asks for."""
    return metadata.version("pulumi-random")


def _kind(urn: str, context: grpc.ServicerContext) -> Kind:
    token = urn.split("::")[2].rsplit("$", maxsplit=1)[-1]
    kind = KINDS.get(token)
    if kind is None:
        message = f"the lab's random provider does not make {token}; it makes {', '.join(sorted(KINDS))}"
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, message)
    return kind


def _values(struct: Message) -> dict[str, Any]:
    return json_format.MessageToDict(struct)


def main(_arguments: list[str]) -> None:
    """Serve until the engine is done."""
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(RandomProvider(), server))
