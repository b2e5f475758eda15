"""State in files and in an S3: the same stack, settled and locked."""

import pytest

from tests.engine.conftest import StackMaker

PROGRAM = """
import pulumi
import pulumi_random as random
pulumi.export("word", random.RandomString("word", length=6).result)
"""


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_stack_settles_on_the_backend(kind: str, make_stack: StackMaker, request: pytest.FixtureRequest):
    backend, environ = (None, {}) if kind == "file" else request.getfixturevalue("s3_backend")
    stack = make_stack({"__main__.py": PROGRAM}, backend=backend, environ=environ)
    stack.up()
    word = stack.outputs()["word"]
    assert len(word) == 6
    assert stack.preview().changes == {}
    assert [one["outputs"]["result"] for one in stack.resources() if one["type"].startswith("random:")] == [word]
    stack.destroy()
    stack.run("stack", "rm", "--yes", "test")
    assert "test" not in stack.run("stack", "ls").output
