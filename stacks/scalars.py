"""What a single value of the configuration may be: numbers with bounds, texts with a form."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


def _matching(pattern: str, allowed: str) -> AfterValidator:
    """Text that matches `pattern` in full, else an error that says what is allowed."""
    expression = re.compile(pattern)

    def check(value: str) -> str:
        if not expression.fullmatch(value):
            raise PydanticCustomError("text", "allowed: {what}", {"what": allowed})
        return value

    return AfterValidator(check)


Str = Annotated[str, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Whole = Annotated[int, Field(strict=True, ge=0)]


def _read_number(value: object) -> object:
    """`pulumi config set --path` writes 8 as a number and 0.5 as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


Number = Annotated[float, BeforeValidator(_read_number)]
Positive = Annotated[Number, Field(strict=True, gt=0, allow_inf_nan=False)]
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Share = Annotated[Number, Field(strict=True, gt=0, le=1)]
Text = Annotated[Str, _matching(r"\S(.*\S)?", "text without surrounding blanks")]
_WholeNumberAsText = BeforeValidator(lambda value: str(value) if type(value) is int else value)  # `cpu: 8` means "8"
Value = Annotated[Str, _WholeNumberAsText]  # of an environment variable
Quantity = Annotated[
    Str,
    _WholeNumberAsText,
    _matching(r"[0-9]+(\.[0-9]+)?(m|k|[MGTPE]|[KMGTPE]i)?", "a Kubernetes quantity such as 500m, 8 or 64Gi"),
]
Address = Annotated[Str, _matching(r"https?://[^\s/]+(/\S*)?", "an http:// or https:// address")]
Commit = Annotated[Str, _matching(r"[0-9a-f]{40}", "a commit of 40 hex digits (a branch moves under running replicas)")]
Variable = Annotated[Str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]


class Section(BaseModel):
    """A mapping of the configuration: camelCase keys, none unknown, never changed after reading."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=False, protected_namespaces=()
    )
