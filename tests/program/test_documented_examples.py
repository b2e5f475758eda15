"""That what docs/first-environment.md shows is what the program does."""

import re
from pathlib import Path

import pytest
import yaml

from llmd.roles import Role
from stacks.config import ConfigError, parse
from tests.program.program import changed, stack_file

PAGE = (Path(__file__).parents[2] / "docs" / "first-environment.md").read_text()

MISTAKES = {
    "models.tiny-pd.cashe": {"size": "1Gi"},
    "models.tiny-pd.topology.decode.replicas": {"min": 3, "max": 2},
    "models.tiny-co.slo.ttftSeconds": 0.2,
}


def plain(config: dict) -> dict:
    return {key.removeprefix("llm-d:"): value for key, value in config.items()}


def test_the_example_environment_is_accepted():
    (example,) = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    shown = yaml.safe_load(example.replace("<commit>", "a" * 40))["config"]
    environment = parse(plain(stack_file("dev")) | plain(shown))
    assert environment.models["qwen3-32b"].topology.fleets[Role.DECODE].maximum == 4


def test_the_page_shows_the_message_that_its_mistakes_get():
    with pytest.raises(ConfigError) as refused:
        parse(plain(changed(stack_file("dev"), MISTAKES)))
    assert str(refused.value) in PAGE
