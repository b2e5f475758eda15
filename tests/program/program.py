"""The whole program under mocks: everything that a configuration registers, with its options, after all has drained."""

import asyncio
import copy
import json
import logging
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi.runtime import rpc, settings, sync_await
from pulumi.runtime.mocks import MockMonitor, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.stack import run_in_stack

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = "a1b2c3"  # what the random string is under mocks
# What an Output becomes in an f-string. Every recorded input is searched for it.
UNRESOLVED = "Calling __str__ on an Output"


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One resource as the engine would see it."""

    urn: str
    type: str
    name: str
    parent: str
    inputs: dict[str, Any]
    dependencies: frozenset[str]
    ignore_changes: tuple[str, ...]
    retain_on_delete: bool
    timeouts: dict[str, str]

    @property
    def is_kubernetes(self) -> bool:
        return self.type.startswith("kubernetes:")

    @property
    def manifest(self) -> dict[str, Any]:
        """The object as the API server would get it."""
        group_version, kind = self.type.removeprefix("kubernetes:").rsplit(":", 1)
        version = group_version.removeprefix("core/")
        return {"apiVersion": version, "kind": kind, **self.inputs}

    @property
    def object_name(self) -> str:
        return self.inputs["metadata"]["name"]


@dataclass
class Program:
    """All registrations of one run. Lookups say what there was when they find nothing."""

    registered: list[Registered] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)  # components whose outputs were registered

    @property
    def objects(self) -> list[Registered]:
        return [one for one in self.registered if one.is_kubernetes]

    def kind(self, kind: str) -> list[Registered]:
        return [one for one in self.objects if one.type.endswith(f":{kind}")]

    def one(self, kind: str, name: str) -> Registered:
        found = [one for one in self.kind(kind) if one.object_name == name]
        assert len(found) == 1, f"{kind} {name}: {len(found)} of {[one.object_name for one in self.kind(kind)]}"
        return found[0]

    def before(self, later: Registered) -> list[Registered]:
        """All that exists before `later`, step by step through its dependencies."""
        known = {one.urn: one for one in self.registered}
        found: dict[str, Registered] = {}
        waiting = [*later.dependencies]
        while waiting:
            urn = waiting.pop()
            if urn not in found:
                found[urn] = known[urn]
                waiting += known[urn].dependencies
        return [*found.values()]

    @property
    def components(self) -> list[Registered]:
        return [one for one in self.registered if one.type.startswith("llm-d:")]


class _Monitor(MockMonitor):
    """Keeps the options of a registration, and refuses two resources with one URN (the mock would overwrite)."""

    def __init__(self, program: Program, *, unknown: frozenset[str]) -> None:
        super().__init__(_Mocks(unknown))
        self._program = program
        self._seen: set[str] = set()
        self.loops: set[asyncio.AbstractEventLoop] = set()  # the SDK makes one in each worker thread and closes none

    def RegisterResource(self, request):  # noqa: N802 - the SDK's name
        response = super().RegisterResource(request)
        self.loops.add(sync_await._ensure_event_loop())
        if request.type != "pulumi:pulumi:Stack":
            assert response.urn not in self._seen, f"registered twice: {response.urn}"
            self._seen.add(response.urn)
            timeouts = request.customTimeouts
            self._program.registered.append(
                Registered(
                    urn=response.urn,
                    type=request.type,
                    name=request.name,
                    parent=request.parent,
                    inputs=rpc.deserialize_properties(request.object),
                    dependencies=frozenset(request.dependencies),
                    ignore_changes=tuple(request.ignoreChanges),
                    retain_on_delete=request.retainOnDelete,
                    timeouts={key: getattr(timeouts, key) for key in ("create", "update", "delete")},
                )
            )
        return response

    def RegisterResourceOutputs(self, request):  # noqa: N802 - the SDK's name
        if request.urn.split("::")[2] == "pulumi:pulumi:Stack":
            self._program.exports.update(rpc.deserialize_properties(request.outputs))
        else:
            self._program.finished.append(request.urn)
        return super().RegisterResourceOutputs(request)


class _Mocks(Mocks):
    def __init__(self, unknown: frozenset[str]) -> None:
        self._unknown = unknown

    def call(self, args):
        raise AssertionError(f"the program calls {args.token}; it must not read a cluster")

    def new_resource(self, args: MockResourceArgs):
        outputs = dict(args.inputs)
        if args.typ == "random:index/randomString:RandomString" and "suffix" not in self._unknown:
            outputs["result"] = SUFFIX
        return f"{args.name}-id", outputs


def _main() -> None:
    runpy.run_path(str(ROOT / "__main__.py"))


def run(config: Mapping[str, Any], *, stack: str = "test", preview: bool = False) -> Program:
    """Run `__main__.py` with the values of a stack file's `config`; returns when every registration has ended.

    In a preview the random suffix is unknown, as it is before a first `up`.
    """
    program = Program()
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    unknown = frozenset({"suffix"}) if preview else frozenset()

    monitor = _Monitor(program, unknown=unknown)

    async def drained() -> None:
        set_mocks(monitor.mocks, "llm-d", stack, preview, logging.getLogger("pulumi.test"), monitor)
        settings.ROOT.set(None)  # else the stack of the run before would be this one's
        pulumi.runtime.set_all_config(values)
        await run_in_stack(_main)

    asyncio.run(drained())
    for loop in monitor.loops:
        loop.close()
    return program


def stack_file(environment: str) -> dict[str, Any]:
    """`config` of a `Pulumi.<environment>.yaml`."""
    return yaml.safe_load((ROOT / f"Pulumi.{environment}.yaml").read_text())["config"]


ABSENT = object()  # in `changed`: take the key away


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `config` with other values at some key paths, e.g. {"models.tiny-pd.cache": "none"}."""
    copied = copy.deepcopy(dict(config))
    for path, value in changes.items():
        first, *steps = path.split(".")
        keys = [f"llm-d:{first}", *steps]
        section = copied
        for key in keys[:-1]:
            section = section.setdefault(key, {})
        if value is ABSENT:
            section.pop(keys[-1], None)
        else:
            section[keys[-1]] = value
    return copied


def dev(changes: Mapping[str, Any] | None = None) -> Program:
    """The environment `dev`, with other values at some key paths."""
    return run(changed(stack_file("dev"), changes or {}), stack="dev")
