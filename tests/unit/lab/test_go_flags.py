"""Command lines are read as pflag reads them."""

import pytest

from lab.stand_ins.go_flags import HelpRequestedError, InvalidOptionsError, UsageError, duration_seconds, port, read

DEFAULTS = {"name": "", "secure": True, "v": 0, "wait": 30.0, "stages": ()}


def given(*words):
    return read("program", words, DEFAULTS, shorthands="v")


@pytest.mark.parametrize("words", [("--name", "a=b"), ("--name=a=b",), ("--name=x", "--name=a=b")])
def test_a_value_is_part_of_the_word_or_the_next_one_and_the_last_counts(words):
    assert given(*words) == {"name": "a=b"}


@pytest.mark.parametrize("words", [("-v", "3"), ("-v3",), ("-v=3",), ("--v", "3"), ("--v=3",)])
def test_a_shorthand_has_every_form(words):
    assert given(*words) == {"v": 3}


def test_a_boolean_alone_does_not_eat_the_next_word():
    assert given("--secure", "--name", "x") == {"secure": True, "name": "x"}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("T", True), ("False", False), ("0", False)])
def test_a_boolean_has_every_form_go_knows(text, value):
    assert given(f"--secure={text}") == {"secure": value}


def test_a_list_may_be_given_several_times():
    assert given("--stages=a,b", "--stages", "c") == {"stages": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("50ms", 0.05), ("1m30s", 90), ("1.5h", 5400), (".5s", 0.5), ("250us", 0.00025), ("0", 0)],
)
def test_durations(text, seconds):
    assert duration_seconds(text) == pytest.approx(seconds)
    assert given(f"--wait={text}") == {"wait": pytest.approx(seconds)}


@pytest.mark.parametrize("text", ["", "30", "s", "30 s", "-", "1m!"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="not a duration"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--no-such",), "unknown flag: --no-such"),
        (("-x",), "unknown shorthand flag: 'x' in -x"),
        (("-name=x",), "unknown shorthand flag: 'n'"),
        (("stray",), "unexpected argument 'stray'"),
        (("--secure", "false"), "unexpected argument 'false'"),
        (("--",), "unexpected argument"),
        (("--name",), "flag needs an argument: --name"),
        (("-v",), "flag needs an argument: --v"),
        (("--v=many",), "invalid argument 'many' for --v"),
        (("--secure=maybe",), "invalid argument 'maybe' for --secure: not a boolean"),
        (("--wait=30",), "invalid argument '30' for --wait: not a duration"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(words, message):
    with pytest.raises(UsageError) as refused:
        given(*words)
    assert message in str(refused.value)
    assert refused.value.status == 2


def test_help_lists_every_flag_with_its_default():
    with pytest.raises(HelpRequestedError, match=r"(?s)Usage of program:.*--secure \(default True\)"):
        given("--name=x", "-h")


@pytest.mark.parametrize("value", [0, 65536, -1, "", "http"])
def test_what_is_no_port(value):
    with pytest.raises(InvalidOptionsError, match=r"--metrics-port=.*: not a port"):
        port("metrics-port", value)
