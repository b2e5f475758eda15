import os
import threading

import pytest
from rich.console import Console

from lab.progress import Progress
from lab.tools import golang, toolchain
from lab.tools.families import FAMILY_OF, ToolError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache, and no Go and no Pulumi but those that a test puts into `bin`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    forget = (golang.go, toolchain.official_pulumi, toolchain.module_dir)
    for cached in forget:
        cached.cache_clear()
    yield tmp_path / "cache" / "llm-d-lab"
    for cached in forget:
        cached.cache_clear()


def _script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _fake_go(tmp_path, build):
    """A `go` that knows its version and runs `build` (with $out) instead of compiling."""
    find_output = 'for word; do [ "$last" = -o ] && out="$word"; last="$word"; done'
    _script(
        tmp_path / "bin" / "go",
        f'echo "$@" >> {tmp_path}/calls\n[ "$1" = env ] && echo go1.99.0 && exit\n{find_output}\n{build}',
    )


def _calls(tmp_path, command="build"):
    return [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith(command)]


def _quiet():
    return Progress(Console(quiet=True))


def test_a_build_uses_the_flags_of_its_family_and_the_next_call_builds_nothing(tmp_path, cache):
    _fake_go(tmp_path, 'echo program > "$out"')
    first = toolchain.build_all(_quiet(), only=["promtool"])
    assert first == {"promtool": FAMILY_OF["promtool"].output() / "promtool"}
    assert first["promtool"].read_text() == "program\n"
    assert first["promtool"].is_relative_to(cache / "tools")
    [call] = _calls(tmp_path)
    assert call.startswith("build -trimpath -tags remove_all_sd,enable_kubernetes_sd -ldflags -s -w -o ")
    assert call.endswith(" github.com/prometheus/prometheus/cmd/promtool")
    assert toolchain.build_all(_quiet(), only=["promtool"]) == first
    assert toolchain.tool("promtool") == first["promtool"]
    assert len(_calls(tmp_path)) == 1


def test_a_failed_build_names_family_command_and_last_lines_and_leaves_no_binary(tmp_path):
    output = r"seq 1 30; echo go: downloading example.org/y v1; echo x.go:1: broken >&2"
    _fake_go(tmp_path, f'echo half > "$out"; {output}; exit 3')
    with pytest.raises(ToolError) as failure:
        toolchain.build_all(_quiet(), only=["ctr"])
    message = str(failure.value)
    assert message.startswith("containerd: `")
    assert "go build -trimpath" in message
    assert "exit status 3" in message
    assert message.endswith("\n29\n30\nx.go:1: broken")
    assert "downloading" not in message
    assert "\n11\n" not in message
    assert list(FAMILY_OF["ctr"].output().iterdir()) == []
    with pytest.raises(ToolError, match="ctr is not built yet"):
        toolchain.tool("ctr")


def test_two_checkouts_do_not_build_the_same_twice(tmp_path):
    os.mkfifo(tmp_path / "gate")
    _fake_go(tmp_path, f'cat {tmp_path}/gate > "$out"')
    results = []

    def build():
        results.append(toolchain.build_all(_quiet(), only=["etcd"])["etcd"].read_text())

    golang.go()
    threads = [threading.Thread(target=build, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    with (tmp_path / "gate").open("w") as gate:  # opens when the first build reads; a second would never end
        gate.write("program")
    for thread in threads:
        thread.join(20)
    assert results == ["program", "program"]
    assert len(_calls(tmp_path)) == 1


def test_an_unknown_tool_is_refused_with_the_known_ones():
    for call in (lambda: toolchain.tool("helm"), lambda: toolchain.build_all(_quiet(), only=["helm"])):
        with pytest.raises(ToolError, match=r"no such tool: helm; there are etcd, .*kubectl"):
            call()


def test_the_provider_is_built_beside_its_two_generated_files(monkeypatch, tmp_path):
    originals = tmp_path / "module" / "cmd" / "pulumi-resource-kubernetes"
    originals.mkdir(parents=True)
    (originals / "schema.json").write_text('{"name": "kubernetes",\n  "version": "0.0.1"}')
    (originals / "terraform-mapping.json").write_text('{"a":\n 1}')
    monkeypatch.setattr(toolchain, "module_dir", lambda *_: tmp_path / "module")
    _fake_go(tmp_path, f'cp * {tmp_path}; echo program > "$out"')
    built = toolchain.build_all(_quiet(), only=["pulumi-resource-kubernetes"])["pulumi-resource-kubernetes"]
    assert (tmp_path / "schema.json").read_text() == '{"name":"kubernetes","version":"4.25.0"}'
    assert (tmp_path / "terraform-mapping.json").read_text() == '{"a":1}'
    assert "go:embed schema.json" in (tmp_path / "main.go").read_text()
    assert list(built.parent.iterdir()) == [built]
    assert not (FAMILY_OF["pulumi-resource-kubernetes"].source / "schema.json").exists()


def test_a_module_is_found_where_go_says(tmp_path):
    _fake_go(tmp_path, f"""echo '{{"Dir": "{tmp_path}/keda@v2"}}'""")
    assert toolchain.module_dir("keda", "github.com/kedacore/keda/v2") == tmp_path / "keda@v2"
    assert _calls(tmp_path, "mod") == ["mod download -json github.com/kedacore/keda/v2"]


def test_a_module_that_cannot_be_had_is_named_with_the_reason(tmp_path):
    _fake_go(tmp_path, """echo '{"Error": "no such version"}'; exit 1""")
    with pytest.raises(ToolError, match=r"keda: `.*go mod download -json example.org/x` failed: no such version"):
        toolchain.module_dir("keda", "example.org/x")
    with pytest.raises(ToolError, match="no such family: helm"):
        toolchain.module_dir("helm", "example.org/x")


def _pulumi(tmp_path, *, version="v3.300.1", host=b"\x7fELF rest"):
    _script(tmp_path / "bin" / "pulumi", f"[ $1 = version ] && echo {version}")
    (tmp_path / "bin" / "pulumi-language-python").write_bytes(host)


def test_a_recent_official_pulumi_is_used_and_not_built(tmp_path):
    _pulumi(tmp_path)
    assert toolchain.build_all(_quiet(), only=["pulumi"]) == {"pulumi": tmp_path / "bin" / "pulumi"}
    assert toolchain.tool("pulumi") == toolchain.official_pulumi() == tmp_path / "bin" / "pulumi"


@pytest.mark.parametrize(
    "properties",
    [{"version": "v3.219.9"}, {"version": "v2.999.0"}, {"version": "dev"}, {"host": b"#!/usr/bin/python3\n"}],
    ids=["too old", "too old by far", "unknown", "our own"],
)
def test_another_pulumi_is_not_official(tmp_path, properties):
    _pulumi(tmp_path, **properties)
    assert toolchain.official_pulumi() is None


def test_a_pulumi_without_its_language_host_is_not_official(tmp_path):
    _pulumi(tmp_path)
    (tmp_path / "bin" / "pulumi-language-python").unlink()
    assert toolchain.official_pulumi() is None
