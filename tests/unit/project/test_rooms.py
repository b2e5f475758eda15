"""Which room may import which: the arrows of docs/design.md."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ARROWS = {
    "__main__": {"stacks"},
    "stacks": {"components", "llmd"},
    "components": {"llmd", "payload"},
    "ops": {"llmd", "cluster", "payload", "policy.facts"},
    "lab": {"simulation", "payload"},
    "llmd": set(),
    "cluster": set(),
    "payload": set(),
    "simulation": set(),
    "policy": set(),
}
PROVIDERS_MAY_ALSO = {"cluster"}  # components/*/provider*.py: the dynamic providers' way to the cluster

# The vocabulary is values to values: what reads a clock, a disk, a network, an environment or the engine stays out.
IMPURE = {
    "asyncio", "http", "io", "logging", "os", "pathlib", "pulumi", "pulumi_kubernetes", "random", "requests", "shutil",
    "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip


def modules(room: str) -> list[Path]:
    return [ROOT / "__main__.py"] if room == "__main__" else sorted((ROOT / room).rglob("*.py"))


def imports(module: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: rooms are named in full, no relative imports"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def crossed(room: str, module: Path, allowed: set[str]) -> set[str]:
    """The imports of `module` that lead into another room of ours by no arrow."""
    ours = {name for name in imports(module) if name.split(".")[0] in ARROWS.keys() - {room}}
    return {name for name in ours if not any(name == to or name.startswith(f"{to}.") for to in allowed)}


@pytest.mark.parametrize("room", [room for room in ARROWS if modules(room)])
def test_a_room_imports_only_along_its_arrows(room):
    wrong = {}
    for module in modules(room):
        provider = room == "components" and module.stem.startswith("provider")
        beyond = crossed(room, module, ARROWS[room] | (PROVIDERS_MAY_ALSO if provider else set()))
        if beyond:
            wrong[str(module.relative_to(ROOT))] = sorted(beyond)
    assert wrong == {}


@pytest.mark.parametrize("module", modules("llmd"), ids=lambda module: module.stem)
def test_the_vocabulary_is_pure(module):
    assert {name.split(".")[0] for name in imports(module)} & IMPURE == set()


@pytest.mark.parametrize("module", modules("payload"), ids=lambda module: module.stem)
def test_payload_scripts_need_the_standard_library_alone(module):
    assert {name.split(".")[0] for name in imports(module)} <= set(sys.stdlib_module_names)


def test_every_folder_of_code_is_a_room_with_arrows():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders - {"tests"} <= ARROWS.keys()


def test_the_check_sees_an_import_that_no_arrow_allows(tmp_path):
    module = tmp_path / "lost.py"
    module.write_text("from components.router import Router\nimport llmd.names\n")
    assert crossed("cluster", module, set()) == {"components.router", "components.router.Router", "llmd.names"}
    assert crossed("stacks", module, ARROWS["stacks"]) == set()
