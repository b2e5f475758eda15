"""The project file: what the Pulumi CLI checks before the program runs is what the program reads."""

from pathlib import Path

import yaml

from stacks.schema import Environment

ROOT = Path(__file__).parents[3]
PROJECT = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())


def test_every_key_of_an_environment_is_declared_with_its_type():
    fields = {field.alias: field for field in Environment.model_fields.values()}
    assert PROJECT["config"].keys() == fields.keys()
    for name, declared in PROJECT["config"].items():
        assert declared["type"] == "object", name
        assert declared["description"], name
        assert ("default" in declared) == (not fields[name].is_required()), name


def test_declared_defaults_are_those_of_the_program():
    for name, declared in PROJECT["config"].items():
        if "default" in declared:
            field = Environment.model_fields[name]
            assert type(field.default).model_validate(declared["default"]) == field.default, name


def test_the_projects_name_is_the_one_that_states_and_configurations_hold():
    assert PROJECT["name"] == "llm-d"
    for path in ROOT.glob("Pulumi.*.yaml"):
        keys = yaml.safe_load(path.read_text())["config"]
        assert all(key.startswith("llm-d:") for key in keys if not key.startswith("kubernetes:")), path.name


def test_a_new_project_can_be_made_from_the_repository():
    assert PROJECT["template"]["quickstart"]
    assert PROJECT["runtime"] == {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}}
    assert (ROOT / "requirements.txt").exists()  # what `pulumi install` installs
