"""That docs/names.md and the program say the same names."""

import re
from pathlib import Path

from llmd import labels, outputs
from tests.program import program

PAGE = (Path(__file__).parents[2] / "docs" / "names.md").read_text()


def test_the_page_lists_exactly_the_type_tokens_that_the_program_registers():
    registered = {component.type for component in program.dev().components}
    assert set(re.findall(r"`(llm-d:components:\w+)`", PAGE)) == registered


def test_the_page_lists_every_label_key_and_the_schema_version():
    for key in (labels.MODEL, labels.ROLE, labels.NAME):
        assert f"`{key}`" in PAGE
    assert f"`schemaVersion` {outputs.SCHEMA_VERSION}," in PAGE


def test_every_object_of_the_program_has_a_name_of_the_page():
    patterns = [
        re.sub(r"<[^>]+>", "[a-z0-9-]+", name).replace("M", "tiny-(pd|co)", 1)
        for name in re.findall(r"`((?:llm-d-<|keda-hpa-)?(?:namespace>-)?M(?:-[a-z<> -]+)?)`", PAGE)
    ]
    named = [one for one in program.dev().objects if not one.type.endswith(":Namespace")]
    unnamed = {one.object_name for one in named if not any(re.fullmatch(name, one.object_name) for name in patterns)}
    assert unnamed == set()
