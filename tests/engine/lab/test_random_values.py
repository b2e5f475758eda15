"""The random provider under the engine: values that last, and the changes that end them."""

from tests.engine.conftest import StackMaker

PROGRAM = """
import pulumi
import pulumi_random as random

keeper = pulumi.Config().require("keeper")
word = random.RandomString("word", length=6, special=False, upper=False, keepers={"keeper": keeper})
pet = random.RandomPet("pet")
pulumi.export("word", word.result)
pulumi.export("pet", pet.id)
"""


def test_a_value_lasts_until_an_input_changes(make_stack: StackMaker):
    stack = make_stack({"__main__.py": PROGRAM})
    stack.configure("keeper", "a")
    stack.up()
    first = stack.outputs()

    stack.configure("keeper", "b")
    (step,) = stack.preview().steps("create-replacement", "replace", "update")[:1]
    assert step["urn"].endswith("::word")
    up = stack.up()
    assert up.changes == {"replace": 1}
    second = stack.outputs()
    assert second["word"] != first["word"]
    assert second["pet"] == first["pet"]


def test_a_type_that_the_provider_does_not_make_is_refused_by_name(make_stack: StackMaker):
    program = "import pulumi_random as random\nrandom.RandomUuid('one')\n"
    outcome = make_stack({"__main__.py": program}).preview(status=1)
    (error,) = [message for severity, message in outcome.diagnostics if severity == "error"]
    assert "does not make random:index/randomUuid:RandomUuid; it makes random:index/randomId:RandomId" in error
