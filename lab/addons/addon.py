"""What an addon of the lab is: objects to apply, and what must then be true in the cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.api import Api
from lab.errors import LabError

Manifest = dict[str, Any]
Object = Mapping[str, Any]
Get = Callable[[str], Object]  # from a path of the API to what is there; raises ApiError


def reader(kubeconfig: Path) -> Get:
    """Reads the cluster of a kubeconfig."""
    return Api.from_kubeconfig(kubeconfig).get


class AddonsNotReadyError(LabError):
    """Addons were not applied or not ready in time; the message names what is missing and what the cluster says."""


@dataclass(frozen=True)
class Site:
    """What an addon must know of the machine to write its objects.

    Attributes:
        kubectl: The program.
        volumes: Directory on the node below which volumes are made; it outlives a run of the lab.
        module_dir: From (family of tools, Go module) to the module's unpacked source.
        read: From a kubeconfig to what reads its cluster.
        await_images: Returns when the node has every image that objects name; without it they are taken to be there.
    """

    kubectl: Path
    volumes: Path
    module_dir: Callable[[str, str], Path]
    read: Callable[[Path], Get] = reader
    await_images: Callable[[Sequence[Manifest]], None] = lambda _: None


@dataclass(frozen=True, order=True)
class Workload:
    """A Deployment or StatefulSet that must be up."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As a person would name it."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Question:
    """A path of the API that only a working addon answers as it should.

    Attributes:
        what: What an answer shows, for a person.
        path: Where to ask.
        answer: Text that the answer contains; an error's text counts too.
    """

    what: str
    path: str
    answer: str


def nothing(_: Site) -> list[Manifest]:
    """No objects."""
    return []


@dataclass(frozen=True, kw_only=True)
class Addon:
    """One thing that the lab applies through the Kubernetes API.

    Attributes:
        name: As status shows it.
        objects: Everything to apply; the objects win over whatever changed them since.
        seeds: Objects to create where they do not exist, and to leave alone where they do.
        workloads: What must be up for the addon to be ready.
        served: Group and version → plural names of resources that the API server must serve; they come with `objects`.
        api_services: Aggregated APIs that must be Available.
        questions: Asked when nothing else is missing, because where a program hangs they take long.
    """

    name: str
    objects: Callable[[Site], list[Manifest]]
    seeds: Callable[[Site], list[Manifest]] = nothing
    workloads: tuple[Workload, ...] = ()
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    api_services: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
