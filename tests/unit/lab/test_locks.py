"""Who is alive, and who may change a lab."""

import os
import threading

import pytest

from lab import locks
from lab.paths import Instance


@pytest.fixture
def instance(tmp_path, monkeypatch) -> Instance:
    monkeypatch.setattr("lab.paths.RUN_ROOT", tmp_path)
    return Instance("t9")


def test_a_lab_is_alive_exactly_as_long_as_someone_holds_its_lock(instance):
    assert not locks.is_alive(instance)
    descriptor = locks.take_alive(instance)
    assert descriptor is not None
    assert locks.is_alive(instance)
    os.close(descriptor)
    assert not locks.is_alive(instance)


def test_a_second_supervisor_does_not_get_the_lock(instance):
    descriptor = locks.take_alive(instance)
    assert descriptor is not None
    assert locks.take_alive(instance) is None
    os.close(descriptor)


def test_looking_does_not_take_the_lock(instance):
    os.close(locks.take_alive(instance) or -1)
    assert not locks.is_alive(instance)
    descriptor = locks.take_alive(instance)
    assert descriptor is not None
    os.close(descriptor)


def test_a_second_command_waits_for_the_first_and_says_so(instance):
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with locks.operation(instance, waiting.set):
            order.append("second")
            order.append("a third would wait" if locks.operation_path(instance).exists() else "a third would not")

    with locks.operation(instance, lambda: order.append("first waited")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10), "the second command neither waited nor ran"
        order.append("first")
    thread.join(10)
    assert order == ["first", "second", "a third would wait"]


def test_a_command_leaves_no_lock_file(instance):
    with locks.operation(instance, lambda: None):
        assert locks.operation_path(instance).exists()
    assert not locks.operation_path(instance).exists()


def test_a_command_that_fails_leaves_the_lock_free(instance):
    with pytest.raises(RuntimeError), locks.operation(instance, lambda: None):
        raise RuntimeError
    waited: list[str] = []
    with locks.operation(instance, lambda: waited.append("waited")):
        assert waited == []
