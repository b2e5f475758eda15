"""One run of each environment, shared by the tests that only look at it."""

import pytest

from tests.program import program


@pytest.fixture(scope="session")
def dev() -> program.Program:
    return program.dev()
