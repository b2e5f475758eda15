"""How a value of the configuration is read: only if it has exactly the expected form.

Everything else is a `ConfigError` whose message begins with the value's place.
"""

from collections.abc import Sequence
from math import isfinite

import yaml

from lab.stand_ins.endpoint_picker.plugin_types import Kind, Parameter


class ConfigError(ValueError):
    """An EndpointPickerConfig that the endpoint picker refuses; the message begins with the field's path."""


def document(text: str) -> object:
    """The YAML (or JSON) document `text`.

    Raises:
        ConfigError: It does not parse, or a key stands twice.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader that also refuses a repeated key
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from None


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, as in the real strict decoder."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"key {key!r} stands twice")
        return super().construct_mapping(node, deep=deep)


def an_object(value: object, path: str, allowed: Sequence[str] | None) -> dict[str, object]:
    """`value` as an object with no key but `allowed` (None: any)."""
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must be an object, not {value!r}")
    for key in value:
        if not isinstance(key, str) or (allowed is not None and key not in allowed):
            raise ConfigError(
                f"{path}: unknown field {key!r}" + (f" (allowed: {', '.join(allowed)})" if allowed else "")
            )
    return value


def a_list(value: object, path: str) -> list[object]:
    """`value` as a list; an omitted one is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{path}: must be a list, not {value!r}")
    return value


def a_string(value: object, path: str) -> str:
    """`value` as a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: must be a non-empty string, not {value!r}")
    return value


_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.BOOLEAN: (bool,),
    Kind.STRING: (str,),
    Kind.STRINGS: (list,),
    Kind.STRING_MAP: (dict,),
    Kind.OBJECTS: (list,),
}


def parameter_value(value: object, parameter: Parameter, path: str) -> object:
    """`value` if it fits `parameter`."""
    boolean_as_number = isinstance(value, bool) and parameter.kind is not Kind.BOOLEAN
    if not isinstance(value, _TYPES[parameter.kind]) or boolean_as_number:
        raise ConfigError(f"{path}: must be {parameter.kind.value}, not {value!r}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not isfinite(value) or not parameter.least <= value <= parameter.most:
            raise ConfigError(f"{path}: {value!r} is out of range ({parameter.least:g} to {parameter.most:g})")
    elif isinstance(value, str) and parameter.allowed and value not in parameter.allowed:
        raise ConfigError(f"{path}: {value!r} is not one of {', '.join(parameter.allowed)}")
    elif isinstance(value, dict):
        for key, item in an_object(value, path, parameter.keys).items():
            a_string(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            (a_string if parameter.kind is Kind.STRINGS else _any_object)(item, f"{path}[{index}]")
    if parameter.only is not None and value != parameter.only:
        raise ConfigError(f"{path}: this stand-in has {parameter.only!r} only, not {value!r}")
    return value


def _any_object(value: object, path: str) -> dict[str, object]:
    return an_object(value, path, None)
