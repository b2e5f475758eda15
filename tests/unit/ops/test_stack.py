"""What is said when a stack's outputs cannot be read."""

import json
import stat

import pytest

from ops.stack import StackError, outputs


@pytest.fixture
def pulumi(tmp_path, monkeypatch):
    """Put a `pulumi` on PATH that answers as told."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def answering(answer: str, status: int = 0) -> None:
        script = tmp_path / "pulumi"
        script.write_text(
            f"#!/bin/sh\nif [ {status} != 0 ]; then echo '{answer}' >&2; exit {status}; fi\necho '{answer}'\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IEXEC)

    return answering


def test_a_machine_without_pulumi_is_told_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="`pulumi` is not on PATH"):
        outputs("dev")


def test_an_unknown_stack_is_reported_in_the_words_of_the_engine(pulumi):
    pulumi("error: no stack named dev found", status=1)
    with pytest.raises(StackError, match="stack dev: error: no stack named dev found"):
        outputs("dev")


def test_a_stack_that_was_never_deployed_is_told_apart(pulumi):
    pulumi("{}")
    with pytest.raises(StackError, match=r"stack dev has no output 'environment': run `pulumi up --stack dev` first"):
        outputs("dev")


def test_outputs_of_another_schema_are_refused_with_the_stack_named(pulumi):
    pulumi(json.dumps({"environment": {"schemaVersion": 999}}))
    with pytest.raises(StackError, match=r"stack dev: outputs.schemaVersion: 999"):
        outputs("dev")
