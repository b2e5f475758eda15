"""How the engine runs Python: programs, policy packs and plugins, each in the interpreter of its own project.

It stands for `pulumi-language-python`, which is published with the official CLI only. What it refuses, by name, is to
generate code from a schema (`pulumi convert`, `pulumi package add`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import grpc
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2
from typing_extensions import override

from lab.engine.children import Children
from lab.engine.serving import NOTHING, refuse, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

_PROGRAM = Path(__file__).with_name("program.py")
_BAILED = 32  # exit status of `program.py` when it has told the engine itself what went wrong
_VERSION = "0.1.0"


class InterpreterError(Exception):
    """A project asks for an interpreter that is not there, or for a tool that this host does not drive."""


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Answers the engine for every Python project of one command."""

    def __init__(self, engine: str, children: Children) -> None:
        self._engine = engine
        self._children = children

    @override
    def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        self._engine = request.engine_address
        return language_pb2.LanguageHandshakeResponse()

    @override
    def GetPluginInfo(self, request: Message, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=_VERSION)

    @override
    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        return language_pb2.GetRequiredPackagesResponse(
            packages=[
                plugin_pb2.PackageDependency(name=name, kind="resource", version=version)
                for name, version in _required_plugins(request.info)
            ]
        )

    @override
    def About(self, request: language_pb2.AboutRequest, context: grpc.ServicerContext) -> language_pb2.AboutResponse:
        version = ".".join(str(part) for part in sys.version_info[:3])
        return language_pb2.AboutResponse(executable=sys.executable, version=version)

    @override
    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        packages = metadata.distributions(path=[str(path) for path in _site_packages(request.info)])
        found = {package.name: package.version for package in packages}
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=name, version=found[name]) for name in sorted(found, key=str.lower)
            ]
        )

    @override
    def RuntimeOptionsPrompts(
        self, request: language_pb2.RuntimeOptionsRequest, context: grpc.ServicerContext
    ) -> language_pb2.RuntimeOptionsResponse:
        return language_pb2.RuntimeOptionsResponse()

    @override
    def Template(
        self, request: language_pb2.TemplateRequest, context: grpc.ServicerContext
    ) -> language_pb2.TemplateResponse:
        return language_pb2.TemplateResponse()

    @override
    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Make the project's virtual environment where it is missing, and install its `requirements.txt` into it."""
        directory = Path(request.info.program_directory or request.directory)
        for command in _installation(request.info, directory):
            process = self._children.start(
                command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
            )
            context.add_callback(lambda process=process: self._children.end(process))
            for name, chunk in self._children.stream(process):
                output = language_pb2.InstallDependenciesResponse
                yield output(stdout=chunk) if name == "stdout" else output(stderr=chunk)
            if status := self._children.wait(process):
                refuse(context, grpc.StatusCode.UNKNOWN, f"`{' '.join(command)}` ended with {status}")

    @override
    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> language_pb2.RunResponse:
        try:
            python = interpreter(request.info)
        except InterpreterError as error:
            return language_pb2.RunResponse(error=str(error))
        command = [python, "-u", str(_PROGRAM)]
        options = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "root-directory": request.info.root_directory,
            "stack": request.stack,
            "organization": request.organization or "organization",
            "dry-run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
        }
        command += [f"--{name}={value}" for name, value in options.items()]
        command += [str(Path(request.info.program_directory, request.info.entry_point)), *request.args]
        environment = _environment(os.environ, request.info) | {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        process = self._children.start(command, cwd=request.pwd or request.info.program_directory, env=environment)
        context.add_callback(lambda: self._children.end(process))
        status = self._children.wait(process)
        if status == 0:
            return language_pb2.RunResponse()
        if status == _BAILED:
            return language_pb2.RunResponse(bail=True)
        reason = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
        return language_pb2.RunResponse(error=f"the program {reason}")

    @override
    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        try:
            python = interpreter(request.info)
        except InterpreterError as error:
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        directory = request.info.program_directory
        if request.kind == "analyzer":
            # The policy SDK takes the engine's address and then the pack; the engine sends flags before the address.
            command = [python, "-u", "-m", "pulumi.policy", self._engine, directory]
        else:
            command = [python, "-u", str(Path(directory, request.info.entry_point)), *request.args]
        given = dict(pair.split("=", 1) for pair in request.env if "=" in pair)
        process = self._children.start(
            command,
            cwd=request.pwd,
            env=_environment(given or os.environ, request.info),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        context.add_callback(lambda: self._children.end(process))
        for name, chunk in self._children.stream(process):
            output = language_pb2.RunPluginResponse
            yield output(stdout=chunk) if name == "stdout" else output(stderr=chunk)
        yield language_pb2.RunPluginResponse(exitcode=self._children.wait(process))

    @override
    def Cancel(self, request: Message, context: grpc.ServicerContext) -> Message:
        self._children.end_all()
        return NOTHING

    @override
    def GenerateProgram(self, request: language_pb2.GenerateProgramRequest, context: grpc.ServicerContext) -> NoReturn:
        _not_here(context, "turn another language into a Python program")

    @override
    def GenerateProject(self, request: language_pb2.GenerateProjectRequest, context: grpc.ServicerContext) -> NoReturn:
        _not_here(context, "generate a Python project")

    @override
    def GeneratePackage(self, request: language_pb2.GeneratePackageRequest, context: grpc.ServicerContext) -> NoReturn:
        _not_here(context, "generate a Python SDK from a schema")

    @override
    def Pack(self, request: language_pb2.PackRequest, context: grpc.ServicerContext) -> NoReturn:
        _not_here(context, "pack a Python SDK")

    @override
    def Link(self, request: language_pb2.LinkRequest, context: grpc.ServicerContext) -> NoReturn:
        _not_here(context, "link a local SDK into a project")


def virtualenv(info: language_pb2.ProgramInfo) -> Path | None:
    """The virtual environment that a project's `runtime.options` name, or None if they name none.

    Raises:
        InterpreterError: the project's toolchain is one that this host does not drive.
    """
    options = dict(info.options)
    toolchain = options.get("toolchain", "pip")
    if toolchain not in {"pip", "uv"}:
        raise InterpreterError(f"runtime.options.toolchain: {toolchain!r}; this host knows pip and uv")
    name = options.get("virtualenv") or (".venv" if toolchain == "uv" else None)
    return Path(info.root_directory, str(name)) if name else None


def interpreter(info: language_pb2.ProgramInfo) -> str:
    """The Python that runs a project: that of its virtual environment, or this host's own where it names none.

    Raises:
        InterpreterError: the virtual environment does not exist.
    """
    environment = virtualenv(info)
    if environment is None:
        return sys.executable
    python = environment / "bin" / "python"
    if not python.exists():
        raise InterpreterError(
            f"runtime.options.virtualenv: {environment} has no bin/python; `pulumi install` makes the environment"
        )
    return str(python)


def _environment(base: os._Environ[str] | dict[str, str], info: language_pb2.ProgramInfo) -> dict[str, str]:
    """`base` as an activated virtual environment would have it."""
    result = dict(base)
    environment = virtualenv(info)
    if environment is not None:
        result["VIRTUAL_ENV"] = str(environment)
        result["PATH"] = os.pathsep.join(filter(None, (str(environment / "bin"), result.get("PATH"))))
        result.pop("PYTHONHOME", None)
    return result


def _site_packages(info: language_pb2.ProgramInfo) -> list[Path]:
    """Where the project's packages are, found without starting its interpreter."""
    environment = virtualenv(info)
    root = Path(sys.prefix) if environment is None else environment
    return sorted(root.glob("lib/python3*/site-packages"))


def _required_plugins(info: language_pb2.ProgramInfo) -> list[tuple[str, str]]:
    """Name and version of each provider whose SDK is installed for the project."""
    required = []
    for packages in _site_packages(info):
        for file in sorted(packages.glob("*/pulumi-plugin.json")):
            plugin = json.loads(file.read_text(encoding="utf-8"))
            if plugin.get("resource"):
                required.append((plugin["name"], plugin["version"]))
    return required


def _installation(info: language_pb2.ProgramInfo, directory: Path) -> list[list[str]]:
    """The commands that make a project's environment hold what its `requirements.txt` asks for."""
    environment = virtualenv(info)
    python = sys.executable if environment is None else str(environment / "bin" / "python")
    commands = []
    if environment is not None and not Path(python).exists():
        commands.append([sys.executable, "-m", "venv", str(environment)])
    if (directory / "requirements.txt").exists():
        commands.append([python, "-m", "pip", "install", "--quiet", "-r", "requirements.txt"])
    return commands


def _not_here(context: grpc.ServicerContext, what: str) -> NoReturn:
    message = f"the lab's language host does not {what}; the official Pulumi CLI does"
    refuse(context, grpc.StatusCode.UNIMPLEMENTED, message)


def main(arguments: list[str]) -> None:
    """Serve until the engine, whose address is the last of `arguments`, is done."""
    children = Children()
    host = LanguageHost(arguments[-1], children)
    serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server), children.end_all)
