"""How a Go program with pflag reads its command line.

`--flag=value` or `--flag value`; a boolean alone is true, and never takes the next word; a list may be given several
times; of anything else the last one counts. The type of a flag is that of its default; a float is a duration in
seconds, written as `30s` or `1m30s`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class FlagError(ValueError):
    """A command line that a program refuses.

    Attributes:
        status: Exit status of the program.
    """

    status: int


class UsageError(FlagError):
    """The command line itself is wrong: an unknown flag, a value of the wrong type, a stray word."""

    status = 2


class InvalidOptionsError(FlagError):
    """Every flag is known and well formed, but the program cannot run like this."""

    status = 1


class HelpRequestedError(Exception):
    """`-h` or `--help`: the message is the usage text."""


def read(
    program: str, arguments: Sequence[str], defaults: Mapping[str, Any], shorthands: Collection[str] = ()
) -> dict[str, Any]:
    """The flags that `arguments` (without the program's name) give, in their order, converted.

    Args:
        program: Name in the usage text.
        arguments: Words of the command line.
        defaults: Every flag the program knows.
        shorthands: Those of one letter that may also follow a single dash: `-v 2`, `-v2`, `-v=2`.

    Raises:
        UsageError: They do not parse.
        HelpRequestedError: They ask for help.
    """
    given: dict[str, Any] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in {"-h", "--help"}:
            rows = [f"      --{name} (default {default!r})" for name, default in sorted(defaults.items())]
            raise HelpRequestedError("\n".join([f"Usage of {program}:", *rows]))
        name, assigned, text = _split(word, program, shorthands)
        if name not in defaults:
            raise UsageError(f"unknown flag: --{name}")
        if not assigned:
            if isinstance(defaults[name], bool):
                text = "true"
            elif words:
                text = words.pop(0)
            else:
                raise UsageError(f"flag needs an argument: --{name}")
        try:
            value = _converted(text, defaults[name])
        except ValueError as error:
            raise UsageError(f"invalid argument {text!r} for --{name}: {error}") from None
        given[name] = given.get(name, ()) + value if isinstance(value, tuple) else value
    return given


def _split(word: str, program: str, shorthands: Collection[str]) -> tuple[str, bool, str]:
    """Name of the flag that `word` gives, whether it holds a value too, and that value."""
    if not word.startswith("-") or word in {"-", "--"}:
        raise UsageError(f"unexpected argument {word!r}: {program} takes flags only")
    if word.startswith("--"):
        name, assigned, text = word[2:].partition("=")
        return name, bool(assigned), text
    if word[1] in shorthands:
        return word[1], bool(word[2:]), word[2:].removeprefix("=")
    raise UsageError(f"unknown shorthand flag: {word[1]!r} in {word}")


def port(name: str, value: int | str) -> int:
    """The value of flag `name` as a TCP port.

    Raises:
        InvalidOptionsError: It is none.
    """
    if not str(value).isdecimal() or int(value) not in range(1, 2**16):
        raise InvalidOptionsError(f"--{name}={value}: not a port")
    return int(value)


def duration_seconds(text: str) -> float:
    """Seconds of a duration such as `30s`, `50ms` or `1m30s`.

    Raises:
        ValueError: It is not written so.
    """
    parts = list(_DURATION_PART.finditer(text))
    if text != "0" and (not text or "".join(part[0] for part in parts) != text):
        raise ValueError("not a duration")
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def _converted(text: str, default: object) -> object:
    """`text` as a value of the type of `default`."""
    if isinstance(default, bool):
        if text not in _BOOLEANS:
            raise ValueError("not a boolean")
        return _BOOLEANS[text]
    if isinstance(default, int):
        return int(text)
    if isinstance(default, float):
        return duration_seconds(text)
    return tuple(filter(None, text.split(","))) if isinstance(default, tuple) else text
