"""Which random resources the lab can make: their inputs, their outputs, and how a value is drawn.

The types, properties and defaults are those of the `random` package (4.x), so that its own provider reads a state made
here, and the other way round.
"""

from __future__ import annotations

import base64
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # the protocol's stand-in for a value that a preview does not have yet

_ARTICLE = {"string": "a string", "integer": "an integer", "boolean": "a boolean", "map": "a map of strings"}

Properties = Mapping[str, Any]

_SPECIAL = "!@#$%&*()-_=+[]{}<>:?"  # the package's own default set
_ADVERBS = (
    "amply boldly calmly dearly evenly fairly gladly highly justly keenly lively mildly neatly openly safely warmly"
)
_ADJECTIVES = (
    "able brave calm eager fair fresh glad keen kind lucid neat proud quick ready sharp solid steady sunny vivid warm"
)
_ANIMALS = "badger bison crane eagle ferret finch gecko heron ibex koala lemur lynx marmot otter puffin raven tapir yak"


@dataclass(frozen=True, kw_only=True)
class Property:
    """One input: `string`, `integer`, `boolean` or `map` (of strings), as a schema writes them."""

    type: str
    required: bool = False
    default: str | int | bool | None = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One resource type.

    Attributes:
        inputs: name to property; a change of any of them makes a new value.
        outputs: names of what a draw adds to the inputs.
        judge: inputs of the right types, with their defaults, to (property, reason) of what cannot be drawn from.
        draw: inputs that pass, with their defaults, to an id and the outputs.
    """

    inputs: Mapping[str, Property]
    outputs: tuple[str, ...]
    judge: Callable[[Properties], list[tuple[str, str]]]
    draw: Callable[[Properties], tuple[str, dict[str, str]]]

    def normal(self, given: Properties) -> dict[str, Any]:
        """`given` with the defaults of what it leaves out, so that spelling out a default is no change."""
        filled = {name: prop.default for name, prop in self.inputs.items() if prop.default is not None}
        return filled | {name: value for name, value in given.items() if value is not None and name in self.inputs}

    def check(self, given: Properties) -> list[tuple[str, str]]:
        """(property, reason) for everything about `given` that is wrong; what is still unknown is taken for right."""
        failures = [
            (name, f"no such property; there are {', '.join(sorted(self.inputs))}")
            for name in given
            if name not in self.inputs
        ]
        for name, prop in self.inputs.items():
            value = given.get(name)
            if value is None:
                failures += [(name, "is required")] if prop.required else []
            elif value != UNKNOWN and not _is(value, prop.type):
                failures.append((name, f"{value!r} is not {_ARTICLE[prop.type]}"))
        whole = self.normal(given)
        return failures if failures or UNKNOWN in whole.values() else self.judge(whole)


def _is(value: object, wanted: str) -> bool:
    match wanted:
        case "integer":  # every number of the protocol is a float
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case _:
            return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())


def _at_least(name: str, floor: int) -> Callable[[Properties], list[tuple[str, str]]]:
    def judge(given: Properties) -> list[tuple[str, str]]:
        return [(name, f"{int(given[name])} is below {floor}")] if given[name] < floor else []

    return judge


def _classes(given: Properties) -> dict[str, tuple[str, int]]:
    """Class of characters to its alphabet and to how many of it are asked for at least, for the classes in use."""
    alphabets = {
        "Lower": (given["lower"], string.ascii_lowercase),
        "Upper": (given["upper"], string.ascii_uppercase),
        "Numeric": (given["numeric"] and given["number"], string.digits),
        "Special": (given["special"], given.get("overrideSpecial") or _SPECIAL),
    }
    return {name: (alphabet, int(given[f"min{name}"])) for name, (wanted, alphabet) in alphabets.items() if wanted}


def _judge_string(given: Properties) -> list[tuple[str, str]]:
    length = int(given["length"])
    least = sum(int(given[f"min{name}"]) for name in ("Lower", "Upper", "Numeric", "Special"))
    if length < 1:
        return [("length", f"{length} is below 1")]
    if least > length:
        return [("length", f"{length} is less than the {least} characters that the minima ask for")]
    if not _classes(given):
        return [("length", "every class of characters is switched off")]
    return []


def _draw_string(given: Properties) -> tuple[str, dict[str, str]]:
    classes = _classes(given)
    drawn = [secrets.choice(alphabet) for alphabet, least in classes.values() for _ in range(least)]
    whole = "".join(alphabet for alphabet, _ in classes.values())
    drawn += [secrets.choice(whole) for _ in range(int(given["length"]) - len(drawn))]
    secrets.SystemRandom().shuffle(drawn)
    result = "".join(drawn)
    return result, {"result": result}


def _draw_id(given: Properties) -> tuple[str, dict[str, str]]:
    value = secrets.token_bytes(int(given["byteLength"]))
    prefix = given.get("prefix", "")
    url = base64.urlsafe_b64encode(value).decode().rstrip("=")
    forms = {
        "b64Std": base64.b64encode(value).decode(),
        "b64Url": url,
        "dec": str(int.from_bytes(value, "big")),
        "hex": value.hex(),
    }
    return url, {name: prefix + form for name, form in forms.items()}


def _draw_pet(given: Properties) -> tuple[str, dict[str, str]]:
    length = int(given["length"])
    words = [secrets.choice(_ADVERBS.split()) for _ in range(length - 2)]
    words += [secrets.choice(_ADJECTIVES.split())] if length > 1 else []
    words.append(secrets.choice(_ANIMALS.split()))
    if given.get("prefix"):
        words.insert(0, given["prefix"])
    return given["separator"].join(words), {}


_KEEPERS = Property(type="map")
_ON = Property(type="boolean", default=True)
_NONE = Property(type="integer", default=0)

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "random:index/randomId:RandomId": Kind(
            inputs={
                "byteLength": Property(type="integer", required=True),
                "keepers": _KEEPERS,
                "prefix": Property(type="string"),
            },
            outputs=("b64Std", "b64Url", "dec", "hex"),
            judge=_at_least("byteLength", 1),
            draw=_draw_id,
        ),
        "random:index/randomString:RandomString": Kind(
            inputs={
                "length": Property(type="integer", required=True),
                "keepers": _KEEPERS,
                "lower": _ON,
                "upper": _ON,
                "numeric": _ON,
                "number": _ON,
                "special": _ON,
                "overrideSpecial": Property(type="string"),
                "minLower": _NONE,
                "minUpper": _NONE,
                "minNumeric": _NONE,
                "minSpecial": _NONE,
            },
            outputs=("result",),
            judge=_judge_string,
            draw=_draw_string,
        ),
        "random:index/randomPet:RandomPet": Kind(
            inputs={
                "length": Property(type="integer", default=2),
                "keepers": _KEEPERS,
                "prefix": Property(type="string"),
                "separator": Property(type="string", default="-"),
            },
            outputs=(),
            judge=_at_least("length", 1),
            draw=_draw_pet,
        ),
    }
)
