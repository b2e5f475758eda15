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


PLACEHOLDERS = {
    "content hash": "[0-9a-f]{10}",
    "hash of model and revision": "[0-9a-f]{8}",
    "namespace": "llm-d-tiny-(?:pd|co)",
    "suffix": "[a-z0-9]{6}",
}


def patterns() -> dict[str, str]:
    """Each name of the page's table of Kubernetes names → what it matches for the models of `dev`."""
    table = PAGE.split("## Kubernetes names")[1].split("## Labels")[0]
    names = re.findall(r"`((?:llm-d-<namespace>-)?M(?:-[a-z-]+)?(?:<[a-z ]+>)?)`", table)
    return {
        name: re.sub(r"<([^>]+)>", lambda found: PLACEHOLDERS[found[1]], name).replace("M", "tiny-(?:pd|co)")
        for name in names
    }


def test_the_program_and_the_page_name_the_same_objects():
    named = {one.object_name for one in program.dev().objects if not one.type.endswith(":Namespace")}
    pages = patterns()
    assert {name for name in named if not any(re.fullmatch(pattern, name) for pattern in pages.values())} == set()
    assert {page for page, pattern in pages.items() if not any(re.fullmatch(pattern, one) for one in named)} == set()
