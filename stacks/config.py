"""The one reader of the stack's configuration: a sound environment, or one error that lists every fault."""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence

import pulumi
from pulumi.runtime.config import CONFIG
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from stacks.checks import Fault, faults
from stacks.schema import Environment

PROJECT = "llm-d"

Location = tuple[int | str, ...]  # as pydantic says it: keys, indices and the tags of unions
Alternatives = dict[object, str | None]  # type → its tag in a union


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
    # Config answers only to names that it is asked for, and a misspelt one would be left out without a word
    given = [key.removeprefix(f"{PROJECT}:") for key in CONFIG.get() if key.startswith(f"{PROJECT}:")]
    return parse({name: _decoded(config.require(name)) for name in given})


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
    wrong = {str(detail["loc"][1]) for detail in details}
    sound = {key: model for key, model in models.items() if str(key) not in wrong}
    return faults(Environment.model_validate({**values, "models": sound})) if sound else []


_PLAIN = {  # pydantic's words → what one writes in YAML
    "a valid tuple": "a list",
    "a valid number": "a number",
    "a valid integer": "a whole number",
    "a valid string": "text (in quotes where YAML reads something else)",
    "a valid boolean": "true or false",
    " after validation, not 0": "",
}


def _fault(detail: ErrorDetails, values: object) -> Fault:
    location, given = detail["loc"], detail["input"]
    steps = _steps(location, values, missing=detail["type"] == "missing")
    path = ".".join(str(step) for step in steps)
    match detail["type"]:
        case "missing":
            return Fault(path=path, problem="missing; required")
        case "extra_forbidden":
            return Fault(path=path, value=given, problem=_unknown_key(str(steps[-1]), _keys(location[:-1])))
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_kind(path, location, given)
        case "model_type" | "model_attributes_type" | "dict_type":
            return Fault(path=path, value=given, problem=f"allowed: {_mapping(location)}")
    message = re.sub(r"^(Input|String|Dictionary|Tuple) should (be |have )?", "allowed: ", detail["msg"])
    for theirs, ours in _PLAIN.items():
        message = message.replace(theirs, ours)
    if location[-1] == "fixed":  # the tag of a plain count where a mapping is possible
        message += f", or {_mapping((*location[:-1], 'scaled'))}"
    return Fault(path=path, value=given, problem=message)


def _unknown_key(key: str, allowed: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(key, allowed, n=1)
    meant = f"did you mean {nearest[0]}? " if nearest else ""
    return f"unknown key; {meant}allowed: {', '.join(allowed)}"


def _unknown_kind(path: str, location: Location, given: object) -> Fault:
    """A section whose `kind` (of a calibration: `mode`) is missing or none of ours."""
    sections = _sections(location)
    key = "mode" if "mode" in sections[0].model_fields else "kind"
    kinds = [typing.get_args(section.model_fields[key].annotation)[0] for section in sections]
    problem = f"allowed: {', '.join(kinds)}"
    if isinstance(given, Mapping) and key in given:
        return Fault(path=f"{path}.{key}", value=given[key], problem=problem)
    if given is None or isinstance(given, Mapping):
        return Fault(path=f"{path}.{key}", problem=f"missing; {problem}")
    return Fault(path=path, value=given, problem=f"allowed: {_mapping(location)}")


def _mapping(location: Location) -> str:
    keys = _keys(location)
    return f"a mapping with the keys {', '.join(keys)}" if keys else "a mapping of names to values"


def _steps(location: Location, values: object, *, missing: bool) -> list[int | str]:
    """The location without the tags of unions, which are no keys of the file."""
    steps: list[int | str] = []
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if isinstance(values, Mapping) and (step in values or (last and missing)):
            values = values.get(step)
        elif isinstance(values, list) and isinstance(step, int):
            values = values[step] if step < len(values) else None
        else:
            continue
        steps.append(step)
    return steps


def _keys(location: Location) -> list[str]:
    """Keys that the section at `location` knows; none where the user chooses them."""
    fields = (item for section in _sections(location) for item in section.model_fields.items())
    return list(dict.fromkeys(field.alias or key for key, field in fields))


def _sections(location: Location) -> list[type[BaseModel]]:
    """What may stand at `location`: several where nothing says which member of a union is meant."""
    found: Alternatives = {Environment: None}
    for step in location:
        tagged: Alternatives = {one: None for one, tag in found.items() if tag is not None and tag == step}
        found = tagged or {inner: tag for outer in found for inner, tag in _inside(outer, step).items()}
    return [one for one in found if isinstance(one, type) and issubclass(one, BaseModel)]


def _inside(outer: object, step: int | str) -> Alternatives:
    """Types below the key (of a section or a mapping) or index `step` of `outer`."""
    if isinstance(outer, type) and issubclass(outer, BaseModel):
        fields = outer.model_fields.items()
        return next((_alternatives(field.annotation) for key, field in fields if step == (field.alias or key)), {})
    value = {dict: 1, tuple: 0}.get(typing.get_origin(outer))
    return {} if value is None else _alternatives(typing.get_args(outer)[value])


def _alternatives(annotation: object, tag: str | None = None) -> Alternatives:
    """The types that an annotation allows, each with its tag if it is a member of a tagged union."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *notes = typing.get_args(annotation)
        return _alternatives(inner, next((note.tag for note in notes if isinstance(note, Tag)), tag))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return {one: of for each in typing.get_args(annotation) for one, of in _alternatives(each).items()}
    if tag is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        kind = annotation.model_fields.get("kind")
        tag = typing.get_args(kind.annotation)[0] if kind is not None else None
    return {annotation: tag}
