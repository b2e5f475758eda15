"""What the API server would refuse: the published schemas of every kind the program creates, unknown fields refused.

Built-in kinds come from the OpenAPI document of the Kubernetes release that the lab builds, custom kinds from the CRDs
of the releases that it builds. The Go module cache holds both: nothing is vendored or drifts from the lab's.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from lab.tools.toolchain import module_dir

_SWAGGER = "urn:kubernetes"
_CRDS = {
    "ScaledObject": ("keda", "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "TriggerAuthentication": ("keda", "config/crd/bases/keda.sh_triggerauthentications.yaml"),
    "PodMonitor": ("prometheus-operator", "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"),
    "ServiceMonitor": (
        "prometheus-operator",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "InferencePool": ("inference-extension", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"),
}
_MODULES = {
    "keda": "github.com/kedacore/keda/v2",
    "prometheus-operator": "github.com/prometheus-operator/prometheus-operator",
    "inference-extension": "sigs.k8s.io/gateway-api-inference-extension",
    "kubernetes": "k8s.io/kubernetes",
}


@functools.cache
def module_directory(family: str) -> Path:
    """Where the Go module of a lab tool family lies, fetched on first use."""
    return module_dir(family, _MODULES[family])


def faults(document: Mapping[str, Any]) -> list[str]:
    """Everything that the schema of the object's kind refuses; a kind without a schema is a fault as well."""
    kind, version = document.get("kind", ""), document.get("apiVersion", "")
    validator = _validator(version, kind)
    if validator is None:
        return [f"no schema for {version} {kind}"]
    found = []
    for error in validator.iter_errors(document):
        worst = best_match([error]) or error
        found.append(f"{'.'.join(str(step) for step in worst.absolute_path)}: {worst.message}")
    return found


@functools.cache
def _validator(version: str, kind: str) -> Validator | None:
    if kind in _CRDS:
        return _custom(version, kind)
    group, _, short = version.rpartition("/")
    reference = _builtin_kinds().get((group, short, kind))
    if reference is None:
        return None
    return Draft202012Validator({"$ref": f"{_SWAGGER}#/definitions/{reference}"}, registry=_registry())


def _custom(version: str, kind: str) -> Validator | None:
    family, path = _CRDS[kind]
    crd = yaml.load((module_directory(family) / path).read_text(), Loader=yaml.CSafeLoader)
    group, _, short = version.rpartition("/")
    assert crd["spec"]["group"] == group, f"{kind} belongs to {crd['spec']['group']}, not {group}"
    for served in crd["spec"]["versions"]:
        if served["name"] == short and served["served"]:
            schema = served["schema"]["openAPIV3Schema"]
            _refuse_unknown_fields(schema)
            schema["properties"]["metadata"] = {
                "$ref": f"{_SWAGGER}#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
            }
            return Draft202012Validator(schema, registry=_registry())
    return None


@functools.cache
def _swagger() -> dict[str, Any]:
    document = json.loads((module_directory("kubernetes") / "api" / "openapi-spec" / "swagger.json").read_text())
    definitions = document["definitions"]
    _refuse_unknown_fields(definitions)
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    return {"definitions": definitions}


@functools.cache
def _registry() -> Registry:
    resource = Resource.from_contents(_swagger(), default_specification=DRAFT202012)
    return Registry().with_resource(_SWAGGER, resource)


@functools.cache
def _builtin_kinds() -> dict[tuple[str, str, str], str]:
    return {
        (entry["group"], entry["version"], entry["kind"]): name
        for name, definition in _swagger()["definitions"].items()
        for entry in definition.get("x-kubernetes-group-version-kind", [])
    }


def _refuse_unknown_fields(schema: Any) -> None:
    """Close every object that lists its properties, as `--validate=strict` does."""
    for node in _nodes(schema):
        if node.get("x-kubernetes-int-or-string"):
            node.pop("anyOf", None)
            node["type"] = ["string", "integer"]
        closed = isinstance(node.get("properties"), dict) and "additionalProperties" not in node
        if closed and not node.get("x-kubernetes-preserve-unknown-fields"):
            node["additionalProperties"] = False


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in list(value.values()):
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)
