"""That every test is found: a file that pytest does not collect cannot fail."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[2]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def test_every_file_with_a_test_function_has_a_name_that_is_collected():
    lost = []
    for module in TESTS.rglob("*.py"):
        if module.name.startswith("test_"):
            continue
        functions = (n for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, FUNCTIONS))
        if any(function.name.startswith("test_") for function in functions):
            lost.append(str(module.relative_to(TESTS)))
    assert lost == []
