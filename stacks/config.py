"""The one reader of the stack's configuration: a sound environment, or one error that lists every fault."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Mapping, Sequence

import pulumi
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stacks.checks import Fault, faults
from stacks.schema import Environment

PROJECT = "llm-d"


class ConfigError(pulumi.RunError):
    """The configuration has faults; nothing was registered. A RunError: the CLI shows the list, not a traceback."""

    def __init__(self, found: Sequence[Fault]) -> None:
        count = "1 fault" if len(found) == 1 else f"{len(found)} faults"
        lines = "\n".join(f"  {PROJECT}:{fault}" for fault in found)
        super().__init__(f"the configuration has {count}; nothing was changed\n{lines}")
        self.faults = tuple(found)


def load() -> Environment:
    """Read the stack's configuration.

    Raises:
        ConfigError: listing every fault by key path, value and what is allowed.
    """
    config = pulumi.Config(PROJECT)
    values: dict[str, object] = {}
    for name in (field.alias or key for key, field in Environment.model_fields.items()):
        text = config.get(name)
        if text is not None:
            values[name] = _decoded(text)
    return parse(values)


def parse(values: Mapping[str, object]) -> Environment:
    """The environment that `values` (as in the file, without the project's prefix) describes.

    Faults of form and contradictions are listed together: a model whose form is wrong is left out of the second check.

    Raises:
        ConfigError: listing every fault by key path, value and what is allowed.
    """
    try:
        environment = Environment.model_validate(values)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        found = [_fault(detail, values) for detail in details]
        raise ConfigError([*found, *_contradictions_of_the_rest(values, details)]) from None
    contradictions = faults(environment)
    if contradictions:
        raise ConfigError(contradictions)
    return environment


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text  # a plain string where an object belongs: the schema says so


def _contradictions_of_the_rest(values: Mapping[str, object], details: Sequence[ErrorDetails]) -> list[Fault]:
    if any(detail["loc"][0] != "models" or len(detail["loc"]) == 1 for detail in details):
        return []
    models = values["models"]
    assert isinstance(models, Mapping)  # noqa: S101 - else `models` itself had a fault
    wrong = {detail["loc"][1] for detail in details}
    sound = {key: model for key, model in models.items() if key not in wrong}
    return faults(Environment.model_validate({**values, "models": sound})) if sound else []


def _fault(detail: ErrorDetails, values: object) -> Fault:
    steps = _steps(detail["loc"], values, missing=detail["type"] == "missing")
    path = ".".join(str(step) for step in steps)
    match detail["type"]:
        case "missing":
            return Fault(path=path, problem="missing; required")
        case "extra_forbidden":
            return Fault(path=path, value=detail["input"], problem=f"unknown key; allowed: {_allowed(steps[:-1])}")
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_kind(path, str(steps[-1]), detail)
        case "model_type" | "model_attributes_type" | "dict_type":
            keys = _allowed(steps)
            return Fault(path=path, value=detail["input"], problem=f"allowed: a mapping with the keys {keys}")
    message = re.sub(r"^(Input|String|Dictionary|Tuple) should (be |have )?", "allowed: ", detail["msg"])
    return Fault(path=path, value=detail["input"], problem=message)


def _unknown_kind(path: str, section: str, detail: ErrorDetails) -> Fault:
    """A section whose `kind` (of a calibration: `mode`) is missing or none of ours."""
    key = "mode" if section == "calibration" else "kind"
    tags = re.search(r"expected tags: (.*)", detail["msg"])
    problem = f"allowed: {tags[1]}" if tags else "missing; it says which other keys are allowed"
    given = detail["input"]
    if isinstance(given, Mapping) and key in given:
        return Fault(path=f"{path}.{key}", value=given[key], problem=problem)
    return Fault(path=f"{path}.{key}", problem=problem)


def _steps(location: Sequence[int | str], values: object, *, missing: bool) -> list[int | str]:
    """The location without the tags of unions, which are no keys of the file."""
    steps: list[int | str] = []
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if isinstance(values, Mapping) and (step in values or (last and missing)):
            values = values.get(step)
        elif isinstance(values, list) and isinstance(step, int):
            values = values[step] if step < len(values) else None
        elif step == "[key]":
            continue
        else:
            continue
        steps.append(step)
    return steps


def _allowed(steps: Sequence[int | str]) -> str:
    """Keys that the section at `steps` knows."""
    sections = [Environment]
    for step in steps:
        sections = [inner for section in sections for inner in _inner(section, step)]
    return ", ".join(
        dict.fromkeys(field.alias or key for section in sections for key, field in section.model_fields.items())
    )


def _inner(section: type[BaseModel], step: int | str) -> list[type[BaseModel]]:
    for key, field in section.model_fields.items():
        if step == (field.alias or key):
            return _sections(field.annotation)
    return [section]  # the key of a mapping of sections, or the index of a list


def _sections(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType, dict, tuple):
        return [section for inner in typing.get_args(annotation) for section in _sections(inner)]
    return []
