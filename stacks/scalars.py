"""What a single value of the configuration may be: numbers with bounds, texts with a form."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


def _matching(pattern: str, allowed: str, flags: re.RegexFlag = re.NOFLAG) -> AfterValidator:
    """Text that matches `pattern` in full, else an error that says what is allowed."""
    expression = re.compile(pattern, flags)

    def check(value: str) -> str:
        if not expression.fullmatch(value):
            raise PydanticCustomError("text", "allowed: {what}", {"what": allowed})
        return value

    return AfterValidator(check)


MOST = 2**31 - 1  # Kubernetes counts replicas, ports and most seconds in 32 bits
DAY = 24 * 60 * 60


def _read_number(value: object) -> object:
    """`pulumi config set --path` writes 8 as a number and 0.5 as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _number_as_text(value: object) -> object:
    """YAML reads `cpu: 8` as a number where Kubernetes has text."""
    return str(value) if type(value) in (int, float) else value


Str = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]  # neither 1 nor "yes"
Count = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Duration = Annotated[int, Field(strict=True, ge=1, le=DAY)]  # whole seconds that a deployment may wait for something
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Number = Annotated[float, BeforeValidator(_read_number)]
Positive = Annotated[Number, Field(strict=True, gt=0, allow_inf_nan=False)]
Seconds = Annotated[Number, Field(strict=True, gt=0, le=DAY)]
Target = Annotated[Number, Field(strict=True, ge=0.001, le=1e6)]  # per replica; KEDA keeps three decimals
Share = Annotated[Number, Field(strict=True, gt=0, le=1)]
Text = Annotated[Str, _matching(r"\S(.*\S)?", "text that is not empty and has no blanks around it")]
# Of an environment variable. A fraction must be quoted: YAML reads 1.10 as 1.1.
Value = Annotated[Str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
Cpu = Annotated[
    Str, BeforeValidator(_number_as_text), _matching(r"(?=.*[1-9])[0-9]+(\.[0-9]+)?m?", "CPUs such as 8, 0.5 or 500m")
]
Bytes = Annotated[
    Str,
    BeforeValidator(_number_as_text),
    _matching(r"(?=.*[1-9])[0-9]+(\.[0-9]+)?(k|[MGTPE]|[KMGTPE]i)?", "a quantity of bytes such as 512Mi or 64Gi"),
]
Address = Annotated[Str, _matching(r"https?://[^\s/]+(/\S*)?", "an http:// or https:// address")]
Commit = Annotated[Str, _matching(r"[0-9a-f]{40}", "a commit of 40 hex digits (a branch moves under running replicas)")]
Variable = Annotated[Str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]
# It is a path on the cache's volume and an argument of vLLM.
ModelId = Annotated[Str, _matching(r"(\w[\w.-]*/)?\w[\w.-]*", "a model of a hub, such as Qwen/Qwen3-32B", re.ASCII)]
Image = Annotated[Str, _matching(r"\S+", "an image, such as registry.example/vllm@sha256:…")]
ExtendedResource = Annotated[Str, _matching(r"[a-z0-9.-]+/[A-Za-z0-9._-]+", "a resource such as nvidia.com/gpu")]


class Section(BaseModel):
    """A mapping of the configuration: camelCase keys, none unknown, never changed after reading."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=False, protected_namespaces=()
    )
