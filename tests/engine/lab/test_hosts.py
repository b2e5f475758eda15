"""Our hosts as processes: how they begin and how they end."""

import signal
import subprocess
from pathlib import Path

import pytest

from lab.engine.install import Engine


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_launched_host_says_its_port_and_ends_quietly_when_told(engine: Engine, tmp_path: Path, how: signal.Signals):
    for script in ("bin/pulumi-language-python", "plugins/*/pulumi-resource-random"):
        (host,) = engine.directory.glob(script)
        with subprocess.Popen(
            [str(host), "-logtostderr", "127.0.0.1:1"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout
            assert int(process.stdout.readline()) > 1023
            process.send_signal(how)
            assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0


def test_a_host_whose_engine_has_gone_ends(engine: Engine):
    host = engine.directory / "bin" / "pulumi-language-python"
    # The shell stands for the engine: it starts the host, waits for its port, and goes.
    script = f"exec 3>&1; {host} 127.0.0.1:1 | {{ read port; echo started >&3; cat >&3; }} & read line; exit 0"
    with subprocess.Popen(
        ["/bin/bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as shell:
        assert shell.stdout
        assert shell.stdin
        assert shell.stdout.readline() == "started\n"
        shell.stdin.write("\n")
        shell.stdin.flush()
        assert shell.stdout.read() == ""  # ends when the host, which holds the pipe, has ended
