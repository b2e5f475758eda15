"""The Pulumi engine's layout, environment and command, without an engine."""

import os
from pathlib import Path

import pytest
from google.protobuf import json_format
from pulumi.runtime.proto import language_pb2

from lab import paths
from lab.engine import __main__ as command
from lab.engine import install as installation
from lab.engine import language_host, program
from lab.engine.environment import LAB_PASSPHRASE, pulumi_environment
from lab.engine.install import Engine, EngineError, install
from lab.tools import toolchain


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Path, Path]:
    """A CLI, behind a symbolic link, and a provider."""
    (tmp_path / "tools").mkdir()
    cli, provider = tmp_path / "tools" / "pulumi-3", tmp_path / "tools" / "provider"
    for file in (cli, provider):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    link = tmp_path / "tools" / "pulumi"
    link.symlink_to(cli)
    return link, provider


def test_an_engine_has_its_hosts_beside_the_cli_and_its_providers_by_version(programs, tmp_path):
    engine = install(*programs, tmp_path / "engines")
    files = {str(path.relative_to(engine.directory)) for path in engine.directory.rglob("*") if path.is_file()}
    assert files == {
        "bin/pulumi",
        "bin/pulumi-language-python",
        "bin/pulumi-resource-pulumi-python",
        "plugins/resource-kubernetes-v4.25.0/pulumi-resource-kubernetes",
        f"plugins/resource-random-v{installation.metadata.version('pulumi-random')}/pulumi-resource-random",
    }
    assert all(os.access(engine.directory / file, os.X_OK) for file in files)
    assert not engine.pulumi.is_symlink()


def test_an_engine_is_found_again_and_a_changed_program_makes_another(programs, tmp_path):
    first = install(*programs, tmp_path / "engines")
    before = first.pulumi.stat().st_ino
    assert install(*programs, tmp_path / "engines") == first
    assert first.pulumi.stat().st_ino == before
    programs[1].write_text("#!/bin/sh\nexit 1\n")
    assert install(*programs, tmp_path / "engines") != first
    assert sorted(path.name for path in (tmp_path / "engines").iterdir() if path.name.startswith(".")) == []


def test_an_sdk_that_asks_for_another_provider_is_refused(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "PROVIDER_VERSION", "4.20.0")
    with pytest.raises(EngineError, match=r"pulumi-kubernetes 4\.25\.0 is installed.*lab builds 4\.20\.0"):
        install(*programs, tmp_path / "engines")


def test_a_home_follows_its_engine_and_keeps_what_else_it_holds(tmp_path):
    home = tmp_path / "home"
    for name in ("one", "two", "two"):
        Engine(tmp_path / name).make_home(home)
        (home / "credentials.json").touch()
        assert (home / "plugins").readlink() == tmp_path / name / "plugins"
    assert sorted(path.name for path in home.iterdir()) == ["credentials.json", "plugins"]


def test_the_lab_asks_no_network_and_no_user(tmp_path):
    settings = pulumi_environment(tmp_path / "home", "file:///state")
    assert settings["PULUMI_HOME"] == str(tmp_path / "home")
    assert settings["PULUMI_BACKEND_URL"] == "file:///state"
    assert settings["PULUMI_CONFIG_PASSPHRASE"] == LAB_PASSPHRASE
    off = (
        "DISABLE_AUTOMATIC_PLUGIN_ACQUISITION",
        "DISABLE_REGISTRY_RESOLVE",
        "SKIP_UPDATE_CHECK",
        "IGNORE_AMBIENT_PLUGINS",
    )
    assert {settings[f"PULUMI_{name}"] for name in off} == {"true"}
    assert settings["PULUMI_CREDENTIAL_STORE"] == "plaintext"


@pytest.fixture
def executed(monkeypatch, tmp_path, programs) -> list[tuple]:
    """What the command would have become, on a machine whose lab `dev` has a kubeconfig."""
    calls: list[tuple] = []
    monkeypatch.setattr(paths, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(command.os, "execvpe", lambda *call: calls.append(call))
    monkeypatch.setattr(command.locks, "is_alive", lambda instance: instance.id in {"dev", "other"})
    monkeypatch.setattr(toolchain, "build_all", lambda only: dict(zip(only, programs, strict=True)))
    monkeypatch.setattr(command, "cache_root", lambda: tmp_path / "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("PULUMI_") or name == "KUBECONFIG"]:
        monkeypatch.delenv(name)
    (tmp_path / "state" / "dev").mkdir(parents=True)
    (tmp_path / "state" / "dev" / "kubeconfig").touch()
    return calls


def test_the_command_becomes_pulumi_with_the_labs_engine(executed, monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "official_pulumi", lambda: None)
    command.main(["--", "up", "-s", "dev", "--", "x"])
    ((path, arguments, environment),) = executed
    assert arguments[1:] == ["up", "-s", "dev", "--", "x"]
    assert Path(path).parent.joinpath("pulumi-language-python").exists()
    state = tmp_path / "state" / "dev"
    assert environment["PULUMI_BACKEND_URL"] == (state / "pulumi" / "backend").as_uri()
    assert environment["KUBECONFIG"] == str(state / "kubeconfig")
    assert (state / "pulumi" / "home" / "plugins").is_dir()
    assert (state / "pulumi" / "backend").is_dir()


def test_no_setting_of_the_user_leads_out_of_the_lab(executed, monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "official_pulumi", lambda: Path("/opt/pulumi/pulumi"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://theirs")
    monkeypatch.setenv("KUBECONFIG", "/their/config")
    command.main(["--instance", "other", "preview"])
    ((path, arguments, environment),) = executed
    assert path == "/opt/pulumi/pulumi"
    assert arguments == ["/opt/pulumi/pulumi", "preview"]
    state = tmp_path / "state" / "other"
    assert environment["PULUMI_BACKEND_URL"] == (state / "pulumi" / "backend").as_uri()
    assert environment["PULUMI_CONFIG_PASSPHRASE"] == LAB_PASSPHRASE
    assert environment["KUBECONFIG"] == str(state / "kubeconfig")
    assert "PULUMI_HOME" not in environment  # an official engine has its own plugins


def test_another_command_finds_the_engine_on_its_path(executed, monkeypatch):
    monkeypatch.setattr(toolchain, "official_pulumi", lambda: None)
    command.main(["--run", "--", "python", "-m", "ops", "verify"])
    ((path, arguments, environment),) = executed
    assert (path, arguments) == ("python", ["python", "-m", "ops", "verify"])
    first = Path(environment["PATH"].split(os.pathsep)[0])
    assert (first / "pulumi").exists()
    assert environment["PULUMI_BACKEND_URL"].startswith("file://")


def test_what_is_missing_is_said_without_a_traceback(executed, monkeypatch):
    def failing(only: tuple[str, ...]) -> dict[str, Path]:
        raise toolchain.ToolError(f"{' and '.join(only)} do not compile")

    monkeypatch.setattr(toolchain, "official_pulumi", lambda: None)
    monkeypatch.setattr(toolchain, "build_all", failing)
    with pytest.raises(SystemExit, match=r"lab\.engine: pulumi and pulumi-resource-kubernetes do not compile"):
        command.main(["--", "preview"])
    with pytest.raises(SystemExit, match=r"lab\.engine: instance 'NO'"):
        command.main(["--instance", "NO", "--", "preview"])
    with pytest.raises(SystemExit, match=r"lab 'down' is not running; `make lab-up LAB=down` starts it"):
        command.main(["--instance", "down", "--", "preview"])
    assert executed == []


def info(root: Path, **options: str) -> language_pb2.ProgramInfo:
    return json_format.ParseDict({"rootDirectory": str(root), "options": options}, language_pb2.ProgramInfo())


def test_a_projects_interpreter_is_that_of_the_environment_it_names(tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert language_host.interpreter(info(tmp_path, virtualenv="env")) == str(python)
    assert language_host.interpreter(info(tmp_path / "elsewhere", virtualenv=str(tmp_path / "env"))) == str(python)
    assert language_host.interpreter(info(tmp_path)) == language_host.sys.executable
    with pytest.raises(language_host.InterpreterError, match=r"\.venv has no bin/python"):
        language_host.interpreter(info(tmp_path, toolchain="uv"))
    with pytest.raises(language_host.InterpreterError, match="'poetry'; this host knows pip and uv"):
        language_host.interpreter(info(tmp_path, toolchain="poetry"))


def test_the_host_understands_how_a_program_bails():
    assert program.BAIL == language_host._BAILED
