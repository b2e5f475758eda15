"""What a supervisor gives its parts, and how it watches them."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from lab.node import control, supervisor
from lab.node.control import Control, NotRunningError
from lab.node.parts import Part, SocketProbe
from lab.node.records import PartState
from lab.node.spec import LabSpec, NodeOptions
from lab.paths import Instance

DEADLINE = 20


@pytest.fixture
def spec(tmp_path, monkeypatch) -> LabSpec:
    monkeypatch.setattr("lab.paths.STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr("lab.paths.RUN_ROOT", tmp_path / "run")
    instance = Instance("t9")
    (instance.state / "logs").mkdir(parents=True)
    instance.run.mkdir(parents=True)
    return LabSpec(
        instance=instance,
        options=NodeOptions(),
        tools={"etcd": Path("/tools/a/etcd"), "ctr": Path("/tools/b/ctr"), "kubelet": Path("/tools/b/kubelet")},
        cni_plugins=Path("/cni"),
        sandbox_image="pause:1",
    )


def test_parts_find_the_labs_programs_first_and_nothing_of_the_callers_environment(spec, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/home/someone/.kube/config")
    values = supervisor.environment(spec)
    assert values["PATH"].startswith("/tools/a:/tools/b:/usr/local/sbin:")
    assert values["LLM_D_LAB_INSTANCE"] == "t9"
    assert "KUBECONFIG" not in values
    assert "GOMEMLIMIT" not in values


def test_a_go_part_is_told_how_much_memory_it_may_take(spec):
    values = supervisor.environment(spec, Part(name="etcd", command=("x",), memory_mib=128))
    assert values["GOMEMLIMIT"] == "128MiB"


def test_each_listening_socket_is_sent_to_its_own_port_inside(spec):
    instance = spec.instance
    listeners = {instance.api_port: 11, instance.forwards[30080]: 12, instance.forwards[30095]: 13}
    assert supervisor.forwards(instance, listeners) == [
        "11=127.0.0.1:6443",
        "12=10.243.0.2:30080",
        "13=10.243.0.2:30095",
    ]


def test_the_end_of_a_log_is_read_without_the_rest(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert supervisor.last_lines(log, 2) == ("line 99998", "line 99999")
    assert supervisor.last_lines(tmp_path / "none.log") == ()


async def _until(condition, what):
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110  what is waited for is another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not in time: {what()}")


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def scenario(spec, table, body):
    """Run a supervisor over `table` in this process while `body(watched, ask)` looks at it."""

    async def whole():
        watched = supervisor.Supervisor(spec, table, {})
        running = asyncio.create_task(watched.run())
        try:
            await _until(lambda: control.socket_path(spec.instance).exists(), lambda: "no control socket")
            await body(watched, lambda call: asyncio.to_thread(call, Control(spec.instance)))
        finally:
            for record in watched._records.values():
                if record.running:
                    os.kill(record.pid, signal.SIGKILL)
            await _until(lambda: not any(r.running for r in watched._records.values()), lambda: watched._records)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(whole())


def test_a_part_waits_for_what_it_needs_and_a_death_is_recorded_with_its_last_words(spec):
    socket_file = spec.instance.run / "first.sock"
    listening = (
        "import socket, time\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind({str(socket_file)!r}); s.listen()\n"
        "time.sleep(600)"
    )
    table = (
        Part(name="first", command=script(listening), probe=SocketProbe(socket_file)),
        Part(name="second", command=script("print('my last words'); raise SystemExit(7)"), after=frozenset({"first"})),
    )

    async def body(watched, ask):
        await _until(lambda: watched._records["second"].state is PartState.DEAD, lambda: watched._records)
        first, second = await ask(Control.parts)
        assert first.state is PartState.READY
        assert second.exit == "exit status 7"
        assert second.last_lines[-1] == "my last words"

    scenario(spec, table, body)


def test_nothing_is_started_again_until_asked_for(spec, tmp_path):
    marker = tmp_path / "starts"
    once = f"open({str(marker)!r}, 'a').write('x')"
    table = (Part(name="brief", command=script(once)),)

    async def body(watched, ask):
        await _until(lambda: watched._records["brief"].state is PartState.DEAD, lambda: watched._records)
        assert await ask(Control.start_dead) == ("brief",)
        await _until(
            lambda: watched._records["brief"].starts == 2 and watched._records["brief"].state is PartState.DEAD,
            lambda: watched._records,
        )
        assert marker.read_text() == "xx"

    scenario(spec, table, body)


def test_a_part_that_is_stopped_is_silent_and_not_ready(spec):
    table = (Part(name="sleeper", command=script("import time; time.sleep(600)")),)

    async def body(watched, ask):
        await _until(lambda: watched._records["sleeper"].state is PartState.READY, lambda: watched._records)
        pid = watched._records["sleeper"].pid
        os.kill(pid, signal.SIGSTOP)
        await _until(lambda: supervisor._stopped(pid), lambda: "still running")
        assert [record.state for record in await ask(Control.parts)] == [PartState.SILENT]
        os.kill(pid, signal.SIGCONT)
        await _until(lambda: not supervisor._stopped(pid), lambda: "still stopped")
        assert [record.state for record in await ask(Control.parts)] == [PartState.READY]

    scenario(spec, table, body)


def test_a_program_that_is_not_there_is_a_dead_part_with_a_reason(spec):
    table = (Part(name="ghost", command=("/nowhere/ghost",)),)

    async def body(watched, ask):
        await _until(lambda: watched._records["ghost"].state is PartState.DEAD, lambda: watched._records)
        (record,) = await ask(Control.parts)
        assert "No such file or directory: '/nowhere/ghost'" in (record.exit or "")

    scenario(spec, table, body)


def test_the_supervisors_process_is_known_from_its_socket(spec):
    async def body(_, ask):
        assert await ask(Control.pid) == os.getpid()

    scenario(spec, (), body)


def test_a_lab_that_nobody_runs_is_said_to_be_down(spec):
    with pytest.raises(NotRunningError, match="'t9' is not running"):
        Control(spec.instance).parts()


def test_a_supervisor_outside_namespaces_of_its_own_refuses(spec, monkeypatch):
    with (spec.instance.state / "x").open("w") as file:
        monkeypatch.setattr(sys, "argv", ["supervisor", "--instance", "t9", "--alive", str(file.fileno())])
        with pytest.raises(SystemExit, match="must be PID 1"):
            supervisor.main()
