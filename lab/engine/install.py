"""How an engine is laid out on disk: the CLI beside its hosts, and its providers where it looks for plugins.

A host that the CLI finds on PATH, and not beside itself, draws a warning; a provider is looked up by its exact version.
All lies in one directory named by the hash of what went into it: a changed tool, SDK or checkout makes another, and one
that is in use never changes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lab.errors import LabError
from lab.locks import locked
from lab.paths import CHECKOUT
from lab.tools.cache import appearing_directory, content_hash
from lab.tools.families import PROVIDER_VERSION


class EngineError(LabError):
    """An engine cannot be put together from what is installed here."""


@dataclass(frozen=True)
class Engine:
    """One engine on disk."""

    directory: Path

    @property
    def pulumi(self) -> Path:
        """The CLI."""
        return self.directory / "bin" / "pulumi"

    def make_home(self, home: Path) -> None:
        """Make `home` a PULUMI_HOME that has this engine's providers; what else it holds stays."""
        home.mkdir(parents=True, exist_ok=True)
        link = home / "plugins"
        target = self.directory / "plugins"
        if link.is_symlink() and link.readlink() == target:
            return
        fresh = home / f".plugins-{os.getpid()}"
        fresh.symlink_to(target)
        fresh.replace(link)


def install(pulumi: Path, provider: Path, root: Path) -> Engine:
    """Lay out an engine under `root`, or find the one that is there.

    Args:
        pulumi: the CLI, built or official.
        provider: `pulumi-resource-kubernetes` of `PROVIDER_VERSION`.
        root: where engines are kept; on the file system of the two programs they are linked, not copied.

    Raises:
        EngineError: the installed SDK asks for another version of the Kubernetes provider than the lab builds.
    """
    wanted = metadata.version("pulumi-kubernetes")
    if wanted != PROVIDER_VERSION:
        raise EngineError(
            f"pulumi-kubernetes {wanted} is installed, and asks for a provider of that version; the lab builds "
            f"{PROVIDER_VERSION}. Install `pulumi-kubernetes=={PROVIDER_VERSION}`."
        )
    scripts = _scripts()
    directory = root / f"engine-{_hash(pulumi, provider, scripts)}"
    with locked(root.with_suffix(".lock")):
        if not directory.is_dir():
            with appearing_directory(directory) as work:
                _place(pulumi, work / "bin" / "pulumi")
                _place(provider, work / "plugins" / f"resource-kubernetes-v{wanted}" / "pulumi-resource-kubernetes")
                for name, text in scripts.items():
                    script = work / name
                    script.parent.mkdir(parents=True, exist_ok=True)
                    script.write_text(text, encoding="utf-8")
                    script.chmod(0o755)
    return Engine(directory)


def _scripts() -> dict[str, str]:
    """Path in the engine's directory to text of each launcher."""
    random = f"plugins/resource-random-v{metadata.version('pulumi-random')}/pulumi-resource-random"
    return {
        "bin/pulumi-language-python": _launcher("lab.engine.language_host"),
        random: _launcher("lab.engine.random_provider"),
        # A dynamic provider runs where its program does: the engine hands on the project's runtime options.
        "bin/pulumi-resource-pulumi-python": (
            "#!/bin/sh\n"
            f"python={shlex.quote(sys.executable)}\n"
            '[ -z "$PULUMI_RUNTIME_VIRTUALENV" ] || python="$PULUMI_RUNTIME_VIRTUALENV/bin/python"\n'
            'exec "$python" -u -m pulumi.dynamic "$@"\n'
        ),
    }


def _launcher(module: str) -> str:
    """A script that becomes `module` of this checkout, whatever the working directory, and hands on no PYTHONPATH."""
    code = f"import sys; sys.path[0] = {str(CHECKOUT)!r}; from lab.engine.serving import run_host; run_host({module!r})"
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -u -c {shlex.quote(code)} "$@"\n'


def _hash(pulumi: Path, provider: Path, scripts: dict[str, str]) -> str:
    """Hash of the programs, by path, size and time of change, and of the launchers."""
    programs = ((path.resolve(), path.stat()) for path in (pulumi, provider))
    contents = [f"{path}\n{status.st_size}\n{status.st_mtime_ns}" for path, status in programs]
    return content_hash([*contents, *(text for script in sorted(scripts.items()) for text in script)])


def _place(source: Path, target: Path) -> None:
    """Put `source` at `target`, not as a symbolic link: the CLI looks for its hosts beside what one points to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system
        shutil.copy2(source, target)
