"""Dynamic providers: kept in the state by reference, read on refresh, updated and deleted by the code of today."""

import base64
import json

from tests.engine.conftest import StackMaker

PROVIDER = """
from pathlib import Path

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult


class TextProvider(ResourceProvider):
    def create(self, props):
        Path("text").write_text(props["text"])
        return CreateResult("text-1", {**props, "length": len(props["text"])})

    def diff(self, id_, olds, news):
        return DiffResult(changes=olds["text"] != news["text"])

    def read(self, id_, props):
        text = Path("text").read_text()
        return ReadResult(id_, {**props, "text": text, "length": len(text)})

    def update(self, id_, olds, news):
        Path("text").write_text(news["text"])
        return UpdateResult({**news, "length": len(news["text"])})

    def delete(self, id_, props):
        Path("text").unlink()


class Text(Resource, module="probe", name="Text"):
    length: pulumi.Output[int]

    def __init__(self, name, text, opts=None):
        super().__init__(TextProvider(), name, {"text": text, "length": None}, opts)
"""
PROGRAM = """
import pulumi
from components.text import Text

text = Text("one", pulumi.Config().require("text"))
pulumi.export("length", text.length)
"""


def test_a_dynamic_resource_lives_by_reference_and_through_refresh(make_stack: StackMaker):
    stack = make_stack({"__main__.py": PROGRAM, "components/__init__.py": "", "components/text.py": PROVIDER})
    stack.configure("text", "four")
    assert stack.up().changes == {"create": 2}
    assert (stack.project / "text").read_text() == "four"
    assert stack.outputs() == {"length": 4}

    (resource,) = [one for one in stack.resources() if one["type"] == "pulumi-python:dynamic/probe:Text"]
    assert "ciphertext" in resource["outputs"]["__provider"]  # a secret, as a whole
    exported = json.loads(stack.run("stack", "export", "--show-secrets").stdout)["deployment"]["resources"]
    (clear,) = [one["inputs"]["__provider"] for one in exported if one["type"] == resource["type"]]
    pickled = base64.b64decode(json.loads(clear["plaintext"]))
    assert b"components.text" in pickled
    assert b"write_text" not in pickled

    (stack.project / "text").write_text("drifted")
    assert stack.refresh().changes == {"update": 1}
    (refreshed,) = [one for one in stack.resources() if one["type"] == resource["type"]]
    assert refreshed["outputs"]["length"] == 7
    assert stack.up().changes == {"update": 1}
    assert (stack.project / "text").read_text() == "four"

    stack.destroy()
    assert not (stack.project / "text").exists()
