"""Policy packs: run by the language host, stopping what they must."""

from tests.engine.conftest import StackMaker

# On the protocol's stubs, because the policy SDK has an environment of its own.
PACK = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2 as pb
from pulumi.runtime.proto import analyzer_pb2_grpc, plugin_pb2

POLICY = {"name": "short-words", "description": "A word has at most 6 characters.", "enforcementLevel": pb.MANDATORY}


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    def Handshake(self, request, context):
        return pb.AnalyzerHandshakeResponse()

    def GetAnalyzerInfo(self, request, context):
        return pb.AnalyzerInfo(name="probe", version="1.0.0", policies=[pb.PolicyInfo(**POLICY)])

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="1.0.0")

    def Configure(self, request, context):
        return empty_pb2.Empty()

    def ConfigureStack(self, request, context):
        return pb.AnalyzerStackConfigureResponse()

    def Analyze(self, request, context):
        length = request.properties["length"] if "length" in request.properties else 0
        if length <= 6:
            return pb.AnalyzeResponse()
        diagnostic = pb.AnalyzeDiagnostic(
            policyName=POLICY["name"],
            policyPackName="probe",
            policyPackVersion="1.0.0",
            description=POLICY["description"],
            message=f"{length:.0f} characters > 6",
            enforcementLevel=pb.MANDATORY,
            urn=request.urn,
        )
        return pb.AnalyzeResponse(diagnostics=[diagnostic])

    def AnalyzeStack(self, request, context):
        return pb.AnalyzeResponse()

    def Remediate(self, request, context):
        return pb.RemediateResponse()

    def Cancel(self, request, context):
        return empty_pb2.Empty()


server = grpc.server(ThreadPoolExecutor())
analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
threading.Event().wait()
"""
PROGRAM = """
import pulumi
import pulumi_random as random
random.RandomString("word", length=pulumi.Config().require_int("length"))
"""


def test_a_mandatory_violation_fails_the_preview_and_nothing_is_made(make_stack: StackMaker):
    stack = make_stack(
        {
            "__main__.py": PROGRAM,
            "pack/PulumiPolicy.yaml": "runtime: python\nversion: 1.0.0\n",
            "pack/__main__.py": PACK,
        }
    )
    stack.configure("length", "7")
    for outcome in (
        stack.preview("--policy-pack", "pack", status=1),
        stack.up("--policy-pack", "pack", status=1),
    ):
        (violation,) = outcome.violations
        assert violation["policyName"] == "short-words"
        assert "7 characters > 6" in violation["message"]
        assert violation["enforcementLevel"] == "mandatory"
        assert violation["resourceUrn"].endswith("::word")
    assert [one["type"] for one in stack.resources() if one["type"].startswith("random:")] == []

    stack.configure("length", "6")
    allowed = stack.preview("--policy-pack", "pack")
    assert allowed.violations == []
    assert allowed.changes == {"create": 1}  # the refused `up` has made the stack itself
    assert allowed.diagnostics == []
