"""A Pulumi stack with a state of its own, driven through the real CLI, and what the engine said while it ran."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PASSPHRASE = "correct horse"
DEADLINE_SECONDS = 240.0  # for one command; the slowest, an `up` of a whole environment, takes a fifth of it

_QUIET = ("--non-interactive", "--color=never")

# Nothing listens on this port, so a command that leaves loopback fails instead of reaching somewhere.
_NO_NETWORK = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}


@dataclass(frozen=True)
class Outcome:
    """What one command did.

    Attributes:
        status: exit status.
        stdout: standard output.
        stderr: standard error.
        events: engine events in order, as the CLI logs them; empty for commands that run no engine.
        seconds: how long it took.
    """

    command: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    events: tuple[Mapping[str, Any], ...]
    seconds: float

    @property
    def output(self) -> str:
        """Standard output, then standard error."""
        return self.stdout + self.stderr

    @property
    def changes(self) -> dict[str, int]:
        """Operation → number of resources, `same` left out: empty means that nothing changes."""
        for event in reversed(self.events):
            if "summaryEvent" in event:
                return {op: n for op, n in event["summaryEvent"]["resourceChanges"].items() if op != "same" and n}
        raise AssertionError(f"{self} logged no summary")

    @property
    def diagnostics(self) -> list[tuple[str, str]]:
        """(severity, message) of what the engine, a provider or the program said: no debug text, no passing status."""
        said = (event["diagnosticEvent"] for event in self.events if "diagnosticEvent" in event)
        return [
            (one["severity"], one["message"].strip())
            for one in said
            if one["severity"] != "debug" and not one.get("ephemeral")
        ]

    @property
    def violations(self) -> list[Mapping[str, Any]]:
        """Policy violations: `policyName`, `message`, `enforcementLevel`, `resourceUrn`."""
        return [event["policyEvent"] for event in self.events if "policyEvent" in event]

    def steps(self, *operations: str) -> list[Mapping[str, Any]]:
        """Metadata (`op`, `urn`, `type`, `old`, `new`, `diffs`, …) of each step, of the given operations if any."""
        planned = [event["resourcePreEvent"]["metadata"] for event in self.events if "resourcePreEvent" in event]
        return [step for step in planned if not operations or step["op"] in operations]

    def __str__(self) -> str:
        return f"`{' '.join(self.command)}` ended with {self.status} after {self.seconds:.1f} s:\n{self.output}"


@dataclass(frozen=True)
class Stack:
    """One stack of one project.

    Attributes:
        pulumi: the CLI.
        project: directory of `Pulumi.yaml` and of the stack's config file.
        name: the stack's.
        environment: what the CLI runs with, whole.
    """

    pulumi: Path
    project: Path
    name: str
    environment: Mapping[str, str] = field(repr=False)

    def run(self, *arguments: str, status: int | None = 0, log_events: bool = False) -> Outcome:
        """Run `pulumi ARGUMENTS`; `status` is the exit status to insist on, None takes any."""
        log = self.project / f".events-{time.monotonic_ns()}.json"
        command = [str(self.pulumi), *_QUIET, *arguments]
        command += [f"--event-log={log}"] if log_events else []
        started = time.monotonic()
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        events = tuple(_events(log))
        log.unlink(missing_ok=True)
        seconds = time.monotonic() - started
        outcome = Outcome(arguments, done.returncode, done.stdout, done.stderr, events, seconds)
        assert status is None or outcome.status == status, f"{outcome}\nexpected status {status}"
        return outcome

    def preview(self, *arguments: str, status: int | None = 0) -> Outcome:
        """What an `up` would do."""
        return self._engine("preview", *arguments, status=status)

    def up(self, *arguments: str, status: int | None = 0) -> Outcome:
        """Make it so, without a preview first."""
        return self._engine("up", "--yes", "--skip-preview", *arguments, status=status)

    def refresh(self, *arguments: str, status: int | None = 0) -> Outcome:
        """Write what is really there into the state."""
        return self._engine("refresh", "--yes", "--skip-preview", *arguments, status=status)

    def destroy(self, *arguments: str, status: int | None = 0) -> Outcome:
        """Delete everything in the state."""
        return self._engine("destroy", "--yes", "--skip-preview", *arguments, status=status)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `pulumi ARGUMENTS` in a process group of its own, for tests that interrupt or kill it."""
        return subprocess.Popen(
            [str(self.pulumi), *_QUIET, *arguments, "--stack", self.name],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def outputs(self, *, show_secrets: bool = False) -> dict[str, Any]:
        """The stack's outputs; a secret one is `"[secret]"` unless asked for."""
        arguments = ["stack", "output", "--json", "--stack", self.name]
        return json.loads(self.run(*arguments, *(["--show-secrets"] if show_secrets else [])).stdout)

    def state(self) -> dict[str, Any]:
        """The deployment as the backend holds it: secrets encrypted."""
        return json.loads(self.run("stack", "export", "--stack", self.name).stdout)["deployment"]

    def resources(self) -> list[dict[str, Any]]:
        """The resources in the state."""
        return self.state().get("resources", [])

    def configure(self, key: str, value: str, *, secret: bool = False, path: bool = False) -> None:
        """Set one value of the stack's config."""
        flags = [flag for flag, wanted in (("--secret", secret), ("--path", path)) if wanted]
        self.run("config", "set", *flags, "--stack", self.name, "--", key, value)

    def cancel(self) -> None:
        """Take away the lock that a killed command left."""
        self.run("cancel", "--yes", "--stack", self.name)

    def _engine(self, command: str, *arguments: str, status: int | None) -> Outcome:
        return self.run(command, "--stack", self.name, *arguments, status=status, log_events=True)


def environment(home: Path, backend: str, settings: Mapping[str, str]) -> dict[str, str]:
    """All that a stack's commands run with: `settings`, what a process needs, no network, nothing of the user's."""
    base = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TMPDIR") if key in os.environ}
    ours = {"HOME": str(home), "PULUMI_DEBUG_COMMANDS": "true"}  # debug commands: the event log is one
    return base | _NO_NETWORK | ours | dict(settings) | {"PULUMI_BACKEND_URL": backend}


def write_project(directory: Path, files: Mapping[str, str], name: str = "probe") -> Path:
    """A Python project of `files` (path → text) that runs in the interpreter of the tests."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {"name": name, "runtime": {"name": "python", "options": {"virtualenv": sys.prefix}}}
    for path, text in {"Pulumi.yaml": yaml.safe_dump(settings), **files}.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return directory


def repository_project(directory: Path, stack: str, config_of: str | None = None) -> Path:
    """A project directory for this repository's own program, so that no test writes a config file into the checkout.

    Args:
        directory: where to make it.
        stack: name of the stack that will run.
        config_of: the environment whose `Pulumi.<env>.yaml` the stack starts from, if any.
    """
    settings = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    settings["main"] = str(ROOT)
    runtime = settings["runtime"] if isinstance(settings["runtime"], dict) else {"name": settings["runtime"]}
    runtime["options"] = {**runtime.get("options", {}), "virtualenv": sys.prefix}
    settings["runtime"] = runtime
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "Pulumi.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    if config_of is not None:
        config = yaml.safe_load((ROOT / f"Pulumi.{config_of}.yaml").read_text(encoding="utf-8"))
        for key in ("encryptionsalt", "secretsprovider"):  # of the environment's own state
            config.pop(key, None)
        (directory / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return directory


def descendants(pid: int) -> dict[int, str]:
    """Process id → command line of every living process below `pid`."""
    processes = _processes()
    found: dict[int, str] = {}
    frontier = {pid}
    while frontier:
        frontier = {child for child, (parent, _) in processes.items() if parent in frontier and child not in found}
        found |= {child: processes[child][1] for child in frontier}
    return found


def alive(pids: Iterable[int]) -> dict[int, str]:
    """Those of `pids` that have not ended, with their command lines."""
    processes = _processes()
    return {pid: processes[pid][1] for pid in pids if pid in processes}


def _processes() -> dict[int, tuple[int, str]]:
    """Process id → (parent, command line) of all that run on this machine and are not just waiting to be reaped."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has just ended
            continue
        if state != "Z":
            found[int(entry.name)] = (int(parent), command)
    return found


def end(process: subprocess.Popen[str]) -> None:
    """Kill what a test started and did not end, with its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _events(log: Path) -> Iterator[dict[str, Any]]:
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
