"""Who is alive, and who may change a lab."""

import multiprocessing
import os
import threading

import pytest

from lab import locks
from lab.locks import locked
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


def test_a_command_waits_for_another_one_on_the_same_lab_only(instance):
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with locks.operation(instance, waiting.set):
            order.append("second")

    with locks.operation(instance, lambda: order.append("first waited")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10), "the second command neither waited nor ran"
        with locks.operation(Instance("t8"), lambda: order.append("another lab's waited")):
            order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_command_that_fails_leaves_the_lock_free(instance):
    with pytest.raises(RuntimeError), locks.operation(instance, lambda: None):
        raise RuntimeError
    waited: list[str] = []
    with locks.operation(instance, lambda: waited.append("waited")):
        assert waited == []


def test_a_second_holder_waits_and_says_so(tmp_path):
    lock, order, waiting = tmp_path / "lock", [], threading.Event()

    def second():
        with locked(lock, waiting=waiting.set):
            order.append("second")

    with locked(lock, waiting=lambda: pytest.fail("nobody else holds it")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10), "the second holder did not find the lock taken"
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def _hold_and_die(lock, held):
    with locked(lock):
        held.set()
        multiprocessing.Event().wait()  # until killed


def test_a_killed_holder_gives_the_lock_back(tmp_path):
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=_hold_and_die, args=(tmp_path / "lock", held))
    holder.start()
    assert held.wait(30), "the holder did not start"
    holder.kill()
    holder.join(10)
    with locked(tmp_path / "lock", waiting=lambda: pytest.fail("still held by a dead process")):
        assert holder.exitcode == -9
