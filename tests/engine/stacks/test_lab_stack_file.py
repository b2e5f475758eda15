"""That a fresh checkout can make the lab's stack, and that doing so leaves its file as it was committed."""

import shutil
from pathlib import Path

from lab.engine.environment import LAB_PASSPHRASE, pulumi_environment
from lab.engine.install import Engine
from tests.engine.stack import ROOT, Stack, environment, repository_project


def test_making_the_labs_stack_leaves_its_file_alone(engine: Engine, pulumi_home: Path, tmp_path: Path):
    project, backend = repository_project(tmp_path / "project", "dev"), tmp_path / "state"
    backend.mkdir()
    committed = Path(shutil.copy(ROOT / "Pulumi.dev.yaml", project))
    settings = pulumi_environment(pulumi_home, backend.as_uri(), LAB_PASSPHRASE)
    stack = Stack(engine.pulumi, project, "dev", environment(tmp_path, backend.as_uri(), settings))
    stack.run("stack", "init", "dev")
    assert committed.read_text() == (ROOT / "Pulumi.dev.yaml").read_text()
