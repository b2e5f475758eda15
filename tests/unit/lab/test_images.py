import hashlib
import importlib
import io
import json
import pkgutil
import re
import tarfile

import pytest
from rich.console import Console

from lab import addons
from lab.images import archives, layers, table
from lab.images.layers import Layer
from lab.images.table import Image
from lab.paths import CHECKOUT
from lab.progress import Progress

_PROMISED = {
    "docker.io/library/busybox:latest",
    "docker.io/rancher/local-path-provisioner:v0.0.30",
    "ghcr.io/kedacore/keda-admission-webhooks:2.21.0",
    "ghcr.io/kedacore/keda-metrics-apiserver:2.21.0",
    "ghcr.io/kedacore/keda:2.21.0",
    "lab.llm-d.ai/endpoint-picker:0.10.0",
    "lab.llm-d.ai/endpoint-picker:0.11.0",
    "lab.llm-d.ai/envoy:1.40.0",
    "lab.llm-d.ai/metrics-gate:1",
    "lab.llm-d.ai/model-hub:1",
    "lab.llm-d.ai/pause:1",
    "lab.llm-d.ai/routing-sidecar:0.10.0",
    "lab.llm-d.ai/routing-sidecar:0.11.0",
    "lab.llm-d.ai/service-ca:1",
    "lab.llm-d.ai/tools:1",
    "lab.llm-d.ai/vllm:0.27.1",
    "quay.io/prometheus-operator/prometheus-config-reloader:v0.85.0",
    "quay.io/prometheus-operator/prometheus-operator:v0.85.0",
    "quay.io/prometheus/prometheus:v3.16.0",
    "registry.k8s.io/coredns/coredns:v1.14.7",
}


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """An empty cache, and a machine that has busybox."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "busybox").write_bytes(b"busybox")
    monkeypatch.setattr(layers, "_BUSYBOX", tmp_path / "busybox")
    monkeypatch.setattr(layers.platform, "machine", lambda: "x86_64")


def _layer(name, files, *, key="1", keep=False, made=None):
    def tree(root):
        if made is not None:
            made.append(name)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
            (root / path).chmod(0o700 if path.startswith("bin/") else 0o600)
        return root

    return Layer(name, f"{name}{key}", tree, keep)


def _image(name, *layers):
    return Image(archive="demo", reference=f"lab.example/{name}:1", layers=layers, entrypoint=("/bin/x",))


def _ensure(monkeypatch, *rows):
    monkeypatch.setattr(archives, "images", lambda: rows)
    return archives.ensure_images(Progress(Console(quiet=True)))


def _open(archive):
    with tarfile.open(archive.tar) as tar:
        return {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar.getmembers()}


def test_every_promised_image_is_in_the_table_once():
    references = [image.reference for image in table.images()]
    assert sorted(references) == sorted(_PROMISED)


def test_every_image_that_an_addon_names_is_provided():
    named = set()
    for found in pkgutil.iter_modules(addons.__path__):
        for name, value in vars(importlib.import_module(f"lab.addons.{found.name}")).items():
            if name.endswith("IMAGE"):
                named.add(value)
            elif name.endswith("IMAGES"):
                named.update(value.values())
    assert len(named) > 8
    assert named <= _PROMISED


def test_every_image_has_a_numeric_user_and_only_those_that_must_are_root():
    users = {image.reference: str(image.config()["User"]) for image in table.images()}
    assert all(re.fullmatch(r"\d+:\d+", user) for user in users.values())
    assert {reference for reference, user in users.items() if user == "0:0"} == {
        "docker.io/library/busybox:latest",
        "docker.io/rancher/local-path-provisioner:v0.0.30",
    }


def test_the_sandbox_image_is_in_the_first_archive():
    assert table.images()[0].reference == table.PAUSE


def test_an_archive_says_what_it_holds(monkeypatch):
    base = _layer("base", {"etc/os": "lab"})
    [archive] = _ensure(monkeypatch, _image("a", base, _layer("a", {"bin/a": "A"})), _image("b", base))
    assert (archive.name, archive.references) == ("demo", ("lab.example/a:1", "lab.example/b:1"))
    content = _open(archive)
    a, b = json.loads(content["manifest.json"])
    assert (a["RepoTags"], b["RepoTags"]) == (["lab.example/a:1"], ["lab.example/b:1"])
    assert a["Layers"][0] == b["Layers"][0]
    assert len([name for name in content if name.endswith(".tar")]) == 2  # the shared layer is stored once
    config = json.loads(content[a["Config"]])
    assert config["rootfs"]["diff_ids"] == [
        f"sha256:{hashlib.sha256(content[name]).hexdigest()}" for name in a["Layers"]
    ]
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert config["config"]["Entrypoint"] == ["/bin/x"]
    assert config["config"]["Env"][0].startswith("PATH=")


def test_what_a_strict_umask_left_private_is_readable_in_the_image(monkeypatch):
    [archive] = _ensure(monkeypatch, _image("a", _layer("a", {"etc/os": "lab", "bin/a": "A"})))
    content = _open(archive)
    [layer] = [content[name] for name in content if name.endswith(".tar")]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert {member.name: oct(member.mode) for member in tar.getmembers() if member.isfile()} == {
            "bin/a": "0o755",
            "etc/os": "0o644",
        }


def test_equal_content_gives_equal_bytes(monkeypatch, tmp_path):
    rows = (_image("a", _layer("a", {"bin/a": "A", "etc/b": "B"})),)
    [first] = _ensure(monkeypatch, *rows)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    [second] = _ensure(monkeypatch, *rows)
    assert first.tar != second.tar
    assert first.hash == second.hash
    assert first.tar.read_bytes() == second.tar.read_bytes()


def test_a_change_makes_its_own_layer_again_and_keeps_the_slow_one(monkeypatch):
    made = []
    slow = _layer("slow", {"etc/a": "a"}, keep=True, made=made)
    [first] = _ensure(monkeypatch, _image("a", slow, _layer("code", {"app/x": "1"}, key="1", made=made)))
    [same] = _ensure(monkeypatch, _image("a", slow, _layer("code", {"app/x": "1"}, key="1", made=made)))
    [second] = _ensure(monkeypatch, _image("a", slow, _layer("code", {"app/x": "2"}, key="2", made=made)))
    assert made == ["slow", "code", "code"]
    assert first == same
    assert first.hash != second.hash
    assert first.tar.exists()


def test_a_changed_command_is_another_archive(monkeypatch):
    layer = _layer("a", {"bin/a": "A"})
    [first] = _ensure(monkeypatch, _image("a", layer))
    [second] = _ensure(
        monkeypatch, Image(archive="demo", reference="lab.example/a:1", layers=(layer,), entrypoint=("/bin/y",))
    )
    assert first.hash != second.hash


def test_a_layer_that_fails_leaves_no_archive(monkeypatch, tmp_path):
    def tree(root):
        (root / "half").write_text("half")
        raise layers.ImageError("debootstrap failed")

    with pytest.raises(layers.ImageError, match="debootstrap failed"):
        _ensure(monkeypatch, _image("a", Layer("a", "1", tree, keep=True)))
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []


def test_editing_a_stand_in_changes_that_layer_alone(monkeypatch, tmp_path):
    for name in ("simulation/engine.py", "payload/load.py", "lab/__init__.py", "lab/stand_ins/hub.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(layers, "CHECKOUT", tmp_path)
    before = {layer.name: layer.key for image in table.images() for layer in image.layers}
    (tmp_path / "lab/stand_ins/__pycache__").mkdir()
    (tmp_path / "lab/stand_ins/__pycache__/hub.pyc").write_bytes(b"says nothing")
    assert layers.stand_ins().key == before["stand-ins"]
    (tmp_path / "lab/stand_ins/hub.py").write_text("changed")
    after = {layer.name: layer.key for image in table.images() for layer in image.layers}
    assert {name for name in before if before[name] != after[name]} == {"stand-ins"}
    (tmp_path / "payload/load.py").unlink()
    (tmp_path / "payload").rmdir()
    with pytest.raises(layers.ImageError, match="payload is missing"):
        layers.stand_ins()


def test_another_machine_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(layers.platform, "machine", lambda: "riscv64")
    with pytest.raises(layers.ImageError, match="x86_64 and aarch64, not for riscv64"):
        layers.architecture()


def test_a_missing_busybox_is_named_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setattr(layers, "_BUSYBOX", tmp_path / "nothing")
    with pytest.raises(layers.ImageError, match="busybox-static"):
        table.images()


@pytest.mark.parametrize("script", sorted((layers.IMAGES / "files").rglob("*")), ids=lambda path: path.name)
def test_every_command_of_the_stand_ins_starts_a_module_that_exists(script):
    if script.is_dir():
        return
    found = re.fullmatch(r'#!/bin/sh\nexec python3 -m (\S+) "\$@"\n', script.read_text())
    assert found
    assert script.stat().st_mode & 0o111 == 0o111
    if found[1].startswith("lab."):
        module = CHECKOUT / found[1].replace(".", "/")
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()


@pytest.mark.parametrize("name", ["images/stand-ins", "images/envoy", "tools/go"])
def test_locks_pin_and_hash_everything_and_name_no_index(name):
    lock = (CHECKOUT / "lab" / f"{name}.txt").read_text()
    asked = re.findall(r"^([a-z0-9-]+)[=>]=", (CHECKOUT / "lab" / f"{name}.in").read_text(), re.MULTILINE)
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert "://" not in lock
    assert all(re.match(r"[a-z0-9-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert asked
    assert set(asked) <= {entry.partition("==")[0] for entry in entries}


def test_a_router_image_knows_the_version_that_its_tag_says():
    environments = {one.reference: one.environment.get("STAND_IN_ROUTER_VERSION") for one in table.images()}
    for program in ("endpoint-picker", "routing-sidecar"):
        for version in ("0.10", "0.11"):
            assert environments[f"lab.llm-d.ai/{program}:{version}.0"] == version
