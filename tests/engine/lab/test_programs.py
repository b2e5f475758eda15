"""The language host: how programs run, fail and keep their secrets."""

import json
from pathlib import Path

import yaml

from tests.engine.conftest import StackMaker

COMPONENT = """
import pulumi
import pulumi_random as random

class Pair(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("probe:index:Pair", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.word = random.RandomString(name, length=6, special=False, upper=False, opts=child)
        self.id_ = random.RandomId(name, byte_length=3, opts=child)
        self.register_outputs({"word": self.word.result})

config = pulumi.Config()
pair = Pair("one")
pulumi.export("word", pair.word.result)
pulumi.export("hex", pair.id_.hex)
pulumi.export("count", config.require_int("count") + 1)
pulumi.export("token", config.require_secret("token"))
pulumi.export("where", [pulumi.get_project(), pulumi.get_stack(), pulumi.get_organization()])
"""


def test_a_component_program_previews_deploys_settles_and_leaves_nothing(make_stack: StackMaker):
    stack = make_stack({"__main__.py": COMPONENT})
    stack.configure("count", "41")
    stack.configure("token", "hunter2-in-clear", secret=True)

    preview = stack.preview()
    assert preview.changes == {"create": 4}
    assert preview.diagnostics == []
    assert "warning" not in preview.output

    up = stack.up()
    assert up.changes == {"create": 4}
    assert up.diagnostics == []
    outputs = stack.outputs()
    assert outputs["count"] == 42
    assert outputs["where"][1:] == ["test", "organization"]
    assert outputs["word"].isalnum()
    assert len(outputs["word"]) == 6

    assert stack.preview().changes == {}
    assert stack.refresh().changes == {}
    assert stack.up("--expect-no-changes").changes == {}
    assert stack.outputs() == outputs

    assert stack.destroy().changes == {"delete": 4}
    assert stack.resources() == []


def test_a_secret_of_the_config_is_never_shown_and_never_stored_in_clear(make_stack: StackMaker):
    stack = make_stack({"__main__.py": COMPONENT})
    stack.configure("count", "1")
    stack.configure("token", "hunter2-in-clear", secret=True)
    said = [stack.preview(), stack.up(), stack.preview("--diff")]

    for outcome in said:
        assert "hunter2-in-clear" not in outcome.output
        assert "hunter2-in-clear" not in json.dumps(outcome.events)
    assert "hunter2-in-clear" not in json.dumps(stack.state())
    assert stack.outputs()["token"] == "[secret]"
    assert stack.outputs(show_secrets=True)["token"] == "hunter2-in-clear"
    written = [path for path in stack.project.parent.rglob("*") if path.is_file()]
    assert any(path.name == "test.json" for path in written), written
    assert [path for path in written if b"hunter2-in-clear" in path.read_bytes()] == []


def test_a_program_is_told_which_of_its_config_is_secret(make_stack: StackMaker):
    program = """
import pulumi
from pulumi.runtime.config import is_config_secret
pulumi.export("secret", [key for key in ("open", "token") if is_config_secret(f"{pulumi.get_project()}:{key}")])
"""
    stack = make_stack({"__main__.py": program})
    stack.configure("open", "-1")
    stack.configure("token", "hunter2-in-clear", secret=True)
    stack.up()
    assert stack.outputs() == {"secret": ["token"]}


def test_an_exception_is_shown_from_the_programs_first_frame_on(make_stack: StackMaker):
    stack = make_stack({"__main__.py": "def inner():\n    return {}['missing']\n\ninner()\n"})
    outcome = stack.preview(status=1)
    (error,) = [message for severity, message in outcome.diagnostics if severity == "error"]
    assert error.splitlines()[:3] == [
        "Program failed with an unhandled exception:",
        "Traceback (most recent call last):",
        f'  File "{stack.project}/__main__.py", line 4, in <module>',
    ]
    assert "KeyError: 'missing'" in error
    assert "program.py" not in error


def test_a_run_error_is_its_message_alone(make_stack: StackMaker):
    stack = make_stack({"__main__.py": "import pulumi\nraise pulumi.RunError('slo.ttftSeconds: 2.0 s is too low')\n"})
    outcome = stack.preview(status=1)
    assert outcome.diagnostics == [("error", "slo.ttftSeconds: 2.0 s is too low")]


def test_a_refused_resource_is_the_only_error(make_stack: StackMaker):
    program = "import pulumi_random as random\nrandom.RandomString('short', length=4, min_lower=9)\n"
    outcome = make_stack({"__main__.py": program}).preview(status=1)
    (error,) = outcome.diagnostics
    assert error[0] == "error"
    assert "4 is less than the 9 characters that the minima ask for" in error[1]


def test_what_a_program_prints_is_shown_and_its_exit_status_named(make_stack: StackMaker):
    program = "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\nsys.exit(3)\n"
    outcome = make_stack({"__main__.py": program}).preview(status=1)
    messages = [message for _, message in outcome.diagnostics]
    assert "to stdout" in messages
    assert "to stderr" in messages
    assert any("exited with status 3" in message for message in messages), messages


def test_modules_beside_the_program_are_found_also_when_imported_late(make_stack: StackMaker):
    program = (
        "import pulumi\n"
        "def late(_):\n    import beside\n    return beside.VALUE\n"
        "pulumi.export('value', pulumi.Output.from_input(1).apply(late))\n"
    )
    stack = make_stack({"__main__.py": program, "beside.py": "VALUE = 'found'\n"})
    stack.up()
    assert stack.outputs() == {"value": "found"}


def test_install_makes_the_environment_that_a_project_names(make_stack: StackMaker):
    program = "import sys\nprint(sys.prefix)\n"
    stack = make_stack({"__main__.py": program, "requirements.txt": ""})
    project = stack.project / "Pulumi.yaml"
    settings = yaml.safe_load(project.read_text())
    settings["runtime"]["options"]["virtualenv"] = "made"
    project.write_text(yaml.safe_dump(settings))

    refused = stack.preview(status=1)
    assert "`pulumi install` makes the environment" in refused.output
    stack.run("install")
    assert Path(stack.project, "made", "bin", "python").exists()


def test_about_lists_the_packages_of_the_program(make_stack: StackMaker):
    stack = make_stack({"__main__.py": ""})
    about = json.loads(stack.run("about", "--json").stdout)
    versions = {one["name"].lower().replace("_", "-"): one["version"] for one in about["dependencies"]}
    assert versions["pulumi-kubernetes"] == "4.25.0"
    assert about["runtime"]["language"] == "python"
